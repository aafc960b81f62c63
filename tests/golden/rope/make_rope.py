#!/usr/bin/env python3
"""Writes rope.json: rotary frequencies of other implementations for the scaling variants of GGUF metadata.

Each case has the metadata as a GGUF file states it (without the architecture's prefix), for llama 3 the factors of
the tensor rope_freqs.weight, and what transformers computes from the same configuration; or llama.cpp's rotary
embedding, for extrapolation factors, which transformers has not, and attention factors, which it reads otherwise.

Run:  pip install torch transformers && ./make_rope.py LLAMA_SOURCE > rope.json
(llama.cpp's source, built in LLAMA_SOURCE/build)
"""
import json
import os
import subprocess
import sys
import tempfile

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
    ("yarn-that-shrinks", 64, 4096, 10000.0,
     {"scaling.type": "yarn", "scaling.factor": 0.5, "scaling.original_context_length": 8192},
     {"rope_type": "yarn", "factor": 0.5, "original_max_position_embeddings": 8192}),
    ("rotated-in-part", 80, 2048, 10000.0, {"dimension_count": 20}, {**PLAIN, "partial_rotary_factor": 0.25}),
    ("llama3", 128, 131072, 500000.0, {},
     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}),
    ("llama3-of-small-models", 64, 131072, 500000.0, {},
     {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}),
]

# For llama.cpp. Name, head size, original context, base, factor; keys that are absent have these values.
DEFAULTS = {"scaling.yarn_ext_factor": 1.0, "scaling.attn_factor": 1.0,
            "scaling.yarn_beta_fast": 32.0, "scaling.yarn_beta_slow": 1.0}
YARN_CASES = [
    ("yarn-of-both", 128, 8192, 10000.0, 16.0, {}),
    ("yarn-extrapolates-half", 128, 4096, 10000.0, 8.0, {"scaling.yarn_ext_factor": 0.5}),
    ("yarn-extrapolates-nothing", 64, 4096, 10000.0, 4.0, {"scaling.yarn_ext_factor": 0.0}),
    ("yarn-with-attention-factor", 64, 4096, 10000.0, 4.0, {"scaling.attn_factor": 0.75}),
    ("yarn-of-all-keys", 96, 8192, 500000.0, 40.0,
     {"scaling.yarn_ext_factor": 0.25, "scaling.attn_factor": 1.25, "scaling.yarn_beta_fast": 20.0,
      "scaling.yarn_beta_slow": 3.0}),
    ("yarn-of-attention-alone", 64, 2048, 10000.0, 2.0, {"scaling.yarn_ext_factor": 0.0, "scaling.attn_factor": 1.5}),
]


def frequencies(head: int, context: int, base: float, parameters: dict):
    config = LlamaConfig(hidden_size=head, num_attention_heads=1, head_dim=head, max_position_embeddings=context,
                         rope_parameters={"rope_theta": base, **parameters})
    return ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"))


def turned_by_llama(source: str) -> list:
    libraries = os.path.join(source, "build/bin")
    here = os.path.dirname(os.path.abspath(__file__))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "ggml_rope")
        subprocess.run(["g++", "-std=c++17", os.path.join(here, "ggml_rope.cpp"), "-o", program,
                        "-I" + os.path.join(source, "ggml/include"), "-L" + libraries, "-lggml-cpu", "-lggml-base",
                        "-Wl,-rpath," + libraries], check=True)
        for name, head, context, base, factor, keys in YARN_CASES:
            values = [head, context, base, factor, *{**DEFAULTS, **keys}.values()]
            done = subprocess.run([program, *map(str, values)], check=True, capture_output=True, text=True)
            pairs = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
            rows.append({"name": name, "head_dim": head, "context": int(context * factor),
                         "metadata": {"freq_base": base, "scaling.type": "yarn", "scaling.factor": factor,
                                      "scaling.original_context_length": context, **keys},
                         "magnitude": round(pairs[0][1], 6),
                         "frequencies": [float(f"{angle:.7g}") for angle, _ in pairs]})
    return rows


def main(source: str) -> None:
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
    rows += turned_by_llama(source)
    print("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]")


main(sys.argv[1])
