"""Makes first_answers.json: what llama.cpp answers greedily to a few prompts on the sample model.

usage: first_answers.py LLAMA_SERVER MODEL.gguf > first_answers.json

Each answer is kept up to the first token whose likeliest rival is closer than MARGIN (in log probability):
beyond that point two correct engines may differ by rounding. llama.cpp's own rounding can be larger than
that, so the same weights in f32 (transformers, see logits/reference_logits.py) must agree by half of it.

Needs: pip install gguf torch transformers numpy
"""

import json
import os
import subprocess
import sys
import time
import urllib.request

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "logits"))
from reference_logits import load_model

MARGIN = 0.5
PORT = 18437
RAW_PROMPTS = [
    "The capital of France is",
    "1, 2, 3, 4, 5,",
    "def fibonacci(n):\n    if n <",
    "Monday, Tuesday, Wednesday,",
    "The quick brown fox jumps over the lazy",
    "To be, or not to be, that is the",
    "HTTP status 404 means",
    "a",
]
CHAT_PROMPTS = [
    "What is the capital of Italy? Answer with one word.",
    "Repeat exactly: inferd shares one model among many programs.",
    "What is the largest ocean on Earth?",
]


def post(path, body):
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (PORT, path), json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def agreed(model, prompt, ids):
    if not ids:
        return ids
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1:-1]
    best = torch.log_softmax(logits, -1).topk(2)
    for i, (values, tokens) in enumerate(zip(best.values, best.indices)):
        if tokens[0] != ids[i] or values[0] - values[1] < MARGIN / 2:
            return ids[:i]
    return ids


def certain_ids(model, prompt):
    reply = post("/completion", {"prompt": prompt, "n_predict": 32, "temperature": 0, "n_probs": 2,
                                 "cache_prompt": False, "return_tokens": True})
    ids = []
    for step in reply["completion_probabilities"]:
        first, second = step["top_logprobs"][:2]
        if first["logprob"] - second["logprob"] < MARGIN:
            break
        ids.append(step["id"])
    return agreed(model, prompt, ids)


def main():
    model, _ = load_model(sys.argv[2])
    server = subprocess.Popen([sys.argv[1], "-m", sys.argv[2], "--port", str(PORT), "-t", "2", "-c", "2048",
                               "--jinja"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen("http://127.0.0.1:%d/health" % PORT)
                break
            except OSError:
                time.sleep(0.2)
        answers = []
        for text in RAW_PROMPTS:
            prompt_ids = post("/tokenize", {"content": text, "add_special": True})["tokens"]
            answers.append({"raw": text, "prompt_ids": prompt_ids, "ids": certain_ids(model, prompt_ids)})
        for text in CHAT_PROMPTS:
            rendered = post("/apply-template", {"messages": [{"role": "user", "content": text}]})["prompt"]
            prompt_ids = post("/tokenize", {"content": rendered, "add_special": True,
                                            "parse_special": True})["tokens"]
            answers.append({"chat": text, "prompt_ids": prompt_ids, "ids": certain_ids(model, prompt_ids)})
        print("[\n" + ",\n".join(json.dumps(answer) for answer in answers) + "\n]")
    finally:
        server.terminate()
        server.wait()


main()
