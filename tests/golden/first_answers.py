"""Makes first_answers.json: what llama.cpp answers greedily to a few prompts on the sample model.

usage: first_answers.py LLAMA_SERVER MODEL.gguf > first_answers.json

Each answer is kept up to the first token whose likeliest rival is closer than MARGIN (in log probability):
beyond that point two correct engines may differ by rounding.
"""

import json
import subprocess
import sys
import time
import urllib.request

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


def certain_ids(prompt):
    reply = post("/completion", {"prompt": prompt, "n_predict": 32, "temperature": 0, "n_probs": 2,
                                 "cache_prompt": False, "return_tokens": True})
    ids = []
    for step in reply["completion_probabilities"]:
        first, second = step["top_logprobs"][:2]
        if first["logprob"] - second["logprob"] < MARGIN:
            break
        ids.append(step["id"])
    return ids


def main():
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
            answers.append({"raw": text, "prompt_ids": prompt_ids, "ids": certain_ids(prompt_ids)})
        for text in CHAT_PROMPTS:
            rendered = post("/apply-template", {"messages": [{"role": "user", "content": text}]})["prompt"]
            prompt_ids = post("/tokenize", {"content": rendered, "add_special": True,
                                            "parse_special": True})["tokens"]
            answers.append({"chat": text, "prompt_ids": prompt_ids, "ids": certain_ids(prompt_ids)})
        print("[\n" + ",\n".join(json.dumps(answer) for answer in answers) + "\n]")
    finally:
        server.terminate()
        server.wait()


main()
