#!/usr/bin/env python3
"""Writes tiny_models.json: logits of small random models of every tensor type, rope scaling and head shape.

`inferd-bench make-model` writes each model from a seed; the package `gguf` dequantizes its weights to
f32, and Hugging Face's LlamaForCausalLM runs them in double precision (rotary angles in f32, as it has
them); Phi3ForCausalLM, which is the same but for its fused matrices, where heads are rotated in part.  None
of these was written by this project.

Run:  pip install gguf numpy torch transformers && ./make_tiny.py build/release/bin/inferd-bench > tiny_models.json
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
from gguf.quants import dequantize
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM

SHAPE = {"layers": 2, "embedding": 256, "heads": 4, "kv-heads": 2, "feed-forward": 256,
         "vocabulary": 384, "context": 128}
TYPES = ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]
MODELS = [{"name": t, "type": t} for t in TYPES] + [
    {"name": "mixed", "type": "q4_k_m", "embedding-type": "q8_0"},
    {"name": "tied", "type": "q4_0", "tied": True},
    {"name": "linear", "type": "f32", "rope": "linear", "rope-factor": 4},
    {"name": "llama3", "type": "f32", "rope": "llama3", "rope-factor": 8, "rope-base": 500000},
    {"name": "yarn", "type": "f32", "rope": "yarn", "rope-factor": 4},
    {"name": "narrow-heads", "type": "q8_0", "head-dim": 32, "heads": 8, "kv-heads": 8},
    {"name": "tied-f32", "type": "f32", "tied": True},
    {"name": "one-key", "type": "f32", "head-dim": 32, "heads": 8, "kv-heads": 1},
    {"name": "group-of-3", "type": "f32", "embedding": 288, "heads": 9, "kv-heads": 3, "head-dim": 64},
    {"name": "heads-of-18", "type": "f32", "embedding": 266, "heads": 7, "kv-heads": 1, "head-dim": 18},
    {"name": "heads-of-80", "type": "f32", "heads": 4, "kv-heads": 4, "head-dim": 80},
    {"name": "heads-of-128", "type": "f16", "heads": 4, "kv-heads": 2, "head-dim": 128},
    {"name": "heads-of-256", "type": "bf16", "heads": 2, "kv-heads": 1, "head-dim": 256},
    {"name": "biased", "type": "f32", "biases": True},
    {"name": "rotated-in-part", "type": "f32", "rope-dimensions": 32},
    {"name": "long", "type": "f32", "heads": 8, "kv-heads": 2, "head-dim": 32, "context": 1024, "length": 600},
    {"name": "long-linear", "type": "f32", "rope": "linear", "rope-factor": 8, "context": 2048, "length": 600},
    {"name": "long-llama3", "type": "f32", "rope": "llama3", "rope-factor": 8, "rope-base": 500000,
     "context": 4096, "length": 600, "head-dim": 128},
    {"name": "long-yarn", "type": "f32", "rope": "yarn", "rope-factor": 8, "context": 2048, "length": 600,
     "head-dim": 128},
]
LENGTH = 100


def positions(length: int) -> list:
    """Those whose logits are kept: beyond the first block and split of positions, where there are so many."""
    return [0, 17, 99] if length == LENGTH else [70, 300, length - 1]


def field(reader: gguf.GGUFReader, key: str):
    found = reader.get_field(key)
    return None if found is None else found.contents()


def config(reader: gguf.GGUFReader, options: dict) -> LlamaConfig:
    base = float(field(reader, "llama.rope.freq_base"))
    kind = options.get("rope", "none")
    rope = {"rope_type": "default", "rope_theta": base}
    if kind != "none":
        rope = {"rope_type": kind, "rope_theta": base, "factor": float(options["rope-factor"])}
        original = int(field(reader, "llama.context_length") / options["rope-factor"])
        if kind != "linear":
            rope["original_max_position_embeddings"] = original
        if kind == "llama3":
            rope["low_freq_factor"], rope["high_freq_factor"] = 1.0, 4.0
    head_dim = field(reader, "llama.attention.key_length")
    rotated = int(field(reader, "llama.rope.dimension_count"))
    if rotated != head_dim:
        rope["partial_rotary_factor"] = rotated / head_dim
    biases = bool(options.get("biases"))
    kinds = {"attention_bias": biases, "mlp_bias": biases}
    if rotated != head_dim:
        kinds = {"pad_token_id": 0}
    return (LlamaConfig if rotated == head_dim else Phi3Config)(
        vocab_size=field(reader, "llama.vocab_size"), hidden_size=field(reader, "llama.embedding_length"),
        intermediate_size=field(reader, "llama.feed_forward_length"),
        num_hidden_layers=field(reader, "llama.block_count"),
        num_attention_heads=field(reader, "llama.attention.head_count"),
        num_key_value_heads=field(reader, "llama.attention.head_count_kv"),
        head_dim=head_dim,
        max_position_embeddings=field(reader, "llama.context_length"),
        rms_norm_eps=float(field(reader, "llama.attention.layer_norm_rms_epsilon")),
        tie_word_embeddings=bool(options.get("tied")), rope_parameters=rope, attn_implementation="eager", **kinds)


def halves(weight: np.ndarray, heads: int, rotated: int) -> np.ndarray:
    """GGUF rotates neighbours, Hugging Face two halves: reorder the rows (or biases) of a head."""
    per_head = weight.reshape(heads, weight.shape[0] // heads, -1)
    turned, rest = per_head[:, :rotated], per_head[:, rotated:]
    turned = turned.reshape(heads, rotated // 2, 2, -1).swapaxes(1, 2).reshape(turned.shape)
    return np.concatenate([turned, rest], axis=1).reshape(weight.shape)


def fused(out: dict, layers: int) -> dict:
    """As Phi3 has it: one matrix for queries, keys and values, and one for gate and up."""
    for layer in range(layers):
        at = f"model.layers.{layer}."
        for whole, parts in {"self_attn.qkv_proj": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                             "mlp.gate_up_proj": ["mlp.gate_proj", "mlp.up_proj"]}.items():
            out[f"{at}{whole}.weight"] = np.concatenate([out.pop(f"{at}{part}.weight") for part in parts])
    return out


def state(reader: gguf.GGUFReader, cfg: LlamaConfig) -> dict:
    rotated = int(field(reader, "llama.rope.dimension_count"))
    weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
    out = {"model.embed_tokens.weight": weights["token_embd.weight"],
           "model.norm.weight": weights["output_norm.weight"],
           "lm_head.weight": weights.get("output.weight", weights["token_embd.weight"])}
    names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}
    for layer in range(cfg.num_hidden_layers):
        for theirs, ours in names.items():
            for kind in ("weight", "bias"):
                weight = weights.get(f"blk.{layer}.{theirs}.{kind}")
                if weight is None:
                    continue
                if theirs == "attn_q":
                    weight = halves(weight, cfg.num_attention_heads, rotated)
                if theirs == "attn_k":
                    weight = halves(weight, cfg.num_key_value_heads, rotated)
                out[f"model.layers.{layer}.{ours}.{kind}"] = weight
    if isinstance(cfg, Phi3Config):
        out = fused(out, cfg.num_hidden_layers)
    return {name: torch.from_numpy(np.ascontiguousarray(w)).double() for name, w in out.items()}


def fnv1a(data: bytes) -> str:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return f"{value:016x}"


def run(bench: str, index: int, model: dict, folder: pathlib.Path) -> dict:
    path = folder / f"{model['name']}.gguf"
    length = model.get("length", LENGTH)
    options = {**SHAPE, **{k: v for k, v in model.items() if k not in ("name", "length")}, "seed": 100 + index}
    arguments = [bench, "make-model", "--output", str(path)]
    for key, value in options.items():
        arguments += [f"--{key}"] if value is True else [f"--{key}", str(value)]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    reader = gguf.GGUFReader(path)
    cfg = config(reader, options)
    net = (Phi3ForCausalLM if isinstance(cfg, Phi3Config) else LlamaForCausalLM)(cfg).double().eval()
    missing = net.load_state_dict(state(reader, cfg), strict=False)
    assert not missing.missing_keys and not missing.unexpected_keys, missing
    tokens = np.random.default_rng(7 + index).integers(0, SHAPE["vocabulary"], length).tolist()
    with torch.no_grad():
        logits = net(torch.tensor([tokens])).logits[0].numpy()
    best = np.sort(logits, axis=1)[:, -2:]
    print(f"{model['name']}: spread {logits.std():.2f}, repeats its input "
          f"{(logits.argmax(1) == np.array(tokens)).mean():.2f}", file=sys.stderr)
    return {"name": model["name"], "options": options, "file_bytes": path.stat().st_size,
            "file_fnv1a": fnv1a(path.read_bytes()), "tokens": tokens, "positions": positions(length),
            "top1": logits.argmax(1).tolist(), "margins": [float(f"{x:.2g}") for x in best[:, 1] - best[:, 0]],
            "logits": [[float(f"{x:.5g}") for x in logits[p]] for p in positions(length)]}


def main() -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        rows = [run(sys.argv[1], i, m, pathlib.Path(folder)) for i, m in enumerate(MODELS)]
    print("{\"models\": [")
    print(",\n".join(json.dumps(row, separators=(",", ":")) for row in rows))
    print("]}")


main()
