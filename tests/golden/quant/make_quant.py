#!/usr/bin/env python3
"""Writes quant_blocks.json: random blocks of every tensor type and what they mean in f32.

The values come from the PyPI package `gguf` (gguf.quants.dequantize), an implementation that this
project did not write.  Run:  pip install gguf numpy && ./make_quant.py > quant_blocks.json

Every byte is random but the f16 scales, which are finite: the bits of a NaN are nobody's promise.
"""
import json
import struct
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

# type: (blocks, offsets of f16 scales within a block)
TYPES = {
    "F32": (24, []), "F16": (24, [0]), "BF16": (24, []),
    "Q8_0": (6, [0]), "Q4_0": (6, [0]), "Q4_1": (6, [0, 2]), "Q5_0": (6, [0]), "Q5_1": (6, [0, 2]),
    "Q4_K": (4, [0, 2]), "Q5_K": (4, [0, 2]), "Q6_K": (4, [208]),
}
FNV_PRIME, MASK = 0x100000001B3, (1 << 64) - 1


def finite_half(rng: np.random.Generator) -> bytes:
    """A random f16 that is neither infinite nor NaN; every fourth one subnormal."""
    bits = int(rng.integers(0, 0x7C00)) | int(rng.integers(0, 2)) << 15
    if rng.integers(0, 4) == 0:
        bits &= 0x83FF
    return struct.pack("<H", bits)


def blocks_of(name: str, rng: np.random.Generator) -> bytes:
    count, scales = TYPES[name]
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][1]
    data = bytearray()
    for _ in range(count):
        block = bytearray(rng.integers(0, 256, size, dtype=np.uint8).tobytes())
        for at in scales:
            block[at:at + 2] = finite_half(rng)
        if name in ("F32", "BF16"):
            block[-1] = block[-1] & 0xBF  # exponent below 128: finite
        data += block
    return bytes(data)


def digest_of_halves() -> str:
    """FNV-1a over the f32 bits of every f16 that is not a NaN, in order of its bits."""
    halves = np.arange(0x10000, dtype=np.uint32).astype(np.uint16).view(np.float16)
    value = 0xCBF29CE484222325
    for byte in halves[~np.isnan(halves)].astype(np.float32).tobytes():
        value = ((value ^ byte) * FNV_PRIME) & MASK
    return f"{value:016x}"


def main() -> None:
    rng = np.random.default_rng(20261130)
    out = {"all_f16_fnv1a": digest_of_halves()}
    for name in TYPES:
        data = blocks_of(name, rng)
        kind = gguf.GGMLQuantizationType[name]
        if name == "F32":
            values = np.frombuffer(data, np.float32)
        elif name == "F16":
            values = np.frombuffer(data, np.float16).astype(np.float32)
        else:
            size = gguf.GGML_QUANT_SIZES[kind][1]
            rows = np.frombuffer(data, np.uint8).reshape(-1, size)
            with np.errstate(over="ignore"):
                values = dequantize(rows, kind)
        assert np.isfinite(values).all(), name
        values = np.ascontiguousarray(values, dtype="<f4")
        out[name] = {"blocks": data.hex(), "f32": values.tobytes().hex()}
    json.dump(out, sys.stdout, indent=1)
    print()


main()
