#!/usr/bin/env python3
"""Logits of a llama-family GGUF file by an implementation that inferd's authors did not write.

The weights are dequantized to f32 by the PyPI package gguf and run in f32 by LlamaForCausalLM of the
PyPI package transformers, on the CPU. Windows, scored positions and BOS are those of
`inferd-bench perplexity` (and llama-perplexity), so the rows of the two files match one to one.

    reference_logits.py --model M.gguf --ids IDS --ctx 512 [--limit-windows N] --logits OUT.npy
    reference_logits.py --model M.gguf --ids IDS --golden OUT.json   (see below)

IDS is a file of token ids, anything but digits between them, as `llama-tokenize --ids` writes it.
--golden runs all ids as one sequence and writes what tests/ keeps in the repository: the ids, and for each
position the eight likeliest next tokens with their log probabilities, and the negative log
likelihood of the token that follows.

Needs: pip install gguf torch transformers numpy
"""

import argparse
import json
import re

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOP = 8


def field(reader, key, default=None):
    found = reader.get_field(key)
    if found is None:
        if default is None:
            raise SystemExit(f"the model has no {key}")
        return default
    return found.contents()


def llama_config(reader, vocabulary, tied):
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        raise SystemExit(f"{architecture} is not a llama model")
    if reader.get_field("llama.rope.scaling.type") or any(
        tensor.name == "rope_freqs.weight" for tensor in reader.tensors
    ):
        raise SystemExit("this script does not know RoPE scaling")
    heads = field(reader, "llama.attention.head_count")
    width = field(reader, "llama.embedding_length")
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=field(reader, "llama.attention.head_count_kv", heads),
        head_dim=field(reader, "llama.attention.key_length", width // heads),
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=field(reader, "llama.attention.layer_norm_rms_epsilon"),
        rope_theta=float(field(reader, "llama.rope.freq_base", 10000.0)),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": float(field(reader, "llama.rope.freq_base", 10000.0)),
        },
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )


def split_halves(matrix, heads):
    """GGUF stores the rows of a rotated head as pairs (0, 1), (2, 3), ...; transformers rotates row i with
    row i + half. Puts the even rows first, then the odd ones, within each head."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


PLACES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def load_model(path):
    reader = gguf.GGUFReader(path)
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    embedding = tensors["token_embd.weight"]
    config = llama_config(reader, embedding.shape[0], "output.weight" not in tensors)
    state = {"model.embed_tokens.weight": embedding,
             "model.norm.weight": tensors["output_norm.weight"],
             "lm_head.weight": tensors.get("output.weight", embedding)}
    for name, values in tensors.items():
        match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
        if not match:
            continue
        layer, kind = match.groups()
        if kind == "attn_q":
            values = split_halves(values, config.num_attention_heads)
        elif kind == "attn_k":
            values = split_halves(values, config.num_key_value_heads)
        state[f"model.layers.{layer}.{PLACES[kind]}.weight"] = values
    model = LlamaForCausalLM(config).float().eval()
    state = {key: torch.from_numpy(np.array(value, dtype=np.float32)) for key, value in state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if missing or unexpected:
        raise SystemExit(f"tensors do not fit: missing {missing}, unexpected {unexpected}")
    bos = None
    if field(reader, "tokenizer.ggml.add_bos_token", 0):
        bos = field(reader, "tokenizer.ggml.bos_token_id")
    return model, bos


def read_ids(path):
    with open(path, encoding="utf-8") as file:
        return [int(number) for number in re.findall(r"\d+", file.read())]


def write_windows(model, bos, ids, arguments):
    windows = len(ids) // arguments.ctx
    if arguments.limit_windows:
        windows = min(windows, arguments.limit_windows)
    first = arguments.ctx // 2
    rows = arguments.ctx - 1 - first
    out = np.lib.format.open_memmap(arguments.logits, mode="w+", dtype=np.float32,
                                    shape=(windows * rows, model.config.vocab_size))
    nll = 0.0
    for window in range(windows):
        tokens = ids[window * arguments.ctx:(window + 1) * arguments.ctx]
        if bos is not None:
            tokens[0] = bos
        with torch.no_grad():
            logits = model(torch.tensor([tokens[:-1]])).logits[0, first:].float()
        out[window * rows:(window + 1) * rows] = logits.numpy()
        following = torch.tensor(tokens[first + 1:])
        nll += torch.nn.functional.cross_entropy(logits.double(), following, reduction="sum").item()
        print(f"window {window + 1} of {windows}: {np.exp(nll / ((window + 1) * rows)):.4f}", flush=True)
    out.flush()


def write_golden(model, bos, ids, arguments):
    tokens = ([bos] if bos is not None else []) + ids
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].double()
    log_probabilities = torch.log_softmax(logits, dim=-1)
    top = torch.topk(log_probabilities, TOP, dim=-1)
    following = torch.tensor(tokens[1:])
    nll = -log_probabilities[:-1].gather(1, following[:, None])[:, 0]
    golden = {
        "model": arguments.model.rsplit("/", 1)[-1],
        "reference": "gguf dequantize to f32, transformers LlamaForCausalLM, float32, CPU",
        "ids": tokens,
        "top_ids": top.indices.tolist(),
        "top_logprobs": [[round(v, 4) for v in row] for row in top.values.tolist()],
        "nll": [round(v, 4) for v in nll.tolist()],
    }
    with open(arguments.golden, "w", encoding="utf-8") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")
    print(f"{len(tokens)} positions, perplexity {np.exp(nll.mean().item()):.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--ids", required=True)
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--limit-windows", type=int, default=0)
    parser.add_argument("--logits")
    parser.add_argument("--golden")
    parser.add_argument("--threads", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model, bos = load_model(arguments.model)
    ids = read_ids(arguments.ids)
    if arguments.logits:
        write_windows(model, bos, ids, arguments)
    if arguments.golden:
        write_golden(model, bos, ids, arguments)


if __name__ == "__main__":
    main()
