#!/usr/bin/env python3
"""Writes rope.json: rotary frequencies of Hugging Face's implementation for the scaling variants of GGUF metadata.

Each case has the metadata as a GGUF file states it (without the architecture's prefix), for llama 3 the factors of
the tensor rope_freqs.weight, and what transformers computes from the same configuration.

Run:  pip install torch transformers && ./make_rope.py > rope.json
"""
import json

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

PLAIN = {"rope_type": "linear", "factor": 1.0}

# name, head size, context, base, further metadata, transformers' parameters
CASES = [
    ("plain", 64, 2048, 10000.0, {}, PLAIN),
    ("none", 128, 8192, 1e6, {"scaling.type": "none"}, PLAIN),
    ("linear", 64, 16384, 10000.0, {"scaling.type": "linear", "scaling.factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ("linear-by-its-old-key", 64, 8192, 10000.0, {"scale_linear": 2.5}, {"rope_type": "linear", "factor": 2.5}),
    ("yarn", 128, 131072, 10000.0,
     {"scaling.type": "yarn", "scaling.factor": 16.0, "scaling.original_context_length": 8192},
     {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192}),
    ("yarn-with-other-turns", 96, 65536, 500000.0,
     {"scaling.type": "yarn", "scaling.factor": 8.0, "scaling.original_context_length": 8192,
      "scaling.yarn_beta_fast": 24.0, "scaling.yarn_beta_slow": 2.0},
     {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 24.0, "beta_slow": 2.0}),
    ("yarn-of-few-pairs", 16, 4096, 10000.0,
     {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64},
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}),
    ("rotated-in-part", 80, 2048, 10000.0, {"dimension_count": 20}, {**PLAIN, "partial_rotary_factor": 0.25}),
    ("llama3", 128, 131072, 500000.0, {},
     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}),
    ("llama3-of-small-models", 64, 131072, 500000.0, {},
     {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}),
]


def frequencies(head: int, context: int, base: float, parameters: dict):
    config = LlamaConfig(hidden_size=head, num_attention_heads=1, head_dim=head, max_position_embeddings=context,
                         rope_parameters={"rope_theta": base, **parameters})
    return ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"))


def main() -> None:
    rows = []
    for name, head, context, base, metadata, parameters in CASES:
        values, magnitude = frequencies(head, context, base, parameters)
        row = {"name": name, "head_dim": head, "context": context,
               "metadata": {"freq_base": base, **metadata}, "magnitude": round(magnitude, 7)}
        if parameters["rope_type"] == "llama3":
            plain, _ = frequencies(head, context, base, PLAIN)
            # What the factors are is how the GGUF format has this scaling: plain frequency / scaled frequency.
            row["factors"] = [float(f"{x:.8g}") for x in (plain.double() / values.double()).tolist()]
        row["frequencies"] = [float(f"{x:.7g}") for x in values.tolist()]
        rows.append(row)
    print("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]")


main()
