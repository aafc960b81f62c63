#!/usr/bin/env python3
"""Writes the seeds of the GGUF fuzz target into corpus/gguf/: small files that reach every section. And those
of the model target into corpus/model/: models of one layer that can be loaded.

Run:  pip install gguf numpy && ./make_gguf.py
"""
import pathlib

import gguf
import numpy as np

FOLDER = pathlib.Path(__file__).parent / "gguf"


def writer(name: str) -> gguf.GGUFWriter:
    return gguf.GGUFWriter(FOLDER / name, "llama")


def finish(w: gguf.GGUFWriter) -> None:
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def scalars() -> None:
    w = writer("scalars.gguf")
    w.add_uint8("u8", 255), w.add_int8("i8", -1), w.add_uint16("u16", 65535)
    w.add_int16("i16", -2), w.add_uint32("u32", 7), w.add_int32("i32", -3)
    w.add_uint64("u64", 2**63), w.add_int64("i64", -4), w.add_bool("flag", True)
    w.add_float32("f32", 0.5), w.add_float64("f64", 0.25), w.add_string("text", "")
    w.add_array("ints", [1, -2]), w.add_array("floats", [0.5]), w.add_array("flags", [True, False])
    finish(w)


def tensors() -> None:
    w = writer("tensors.gguf")
    w.add_custom_alignment(64)
    for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K", "Q2_K"):
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        if name in ("F32", "F16"):
            w.add_tensor(name, np.arange(6, dtype=np.float32 if name == "F32" else np.float16).reshape(2, 3))
        else:
            w.add_tensor(name, np.arange(2 * size, dtype=np.uint8).reshape(2, size), raw_dtype=kind)
    finish(w)


def vocabulary(name: str, model: str) -> None:
    w = writer(name)
    w.add_tokenizer_model(model)
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(["<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "ab"])
    w.add_token_types([2, 3, 3, 6, 1, 1, 1])
    if model == "llama":
        w.add_token_scores([0.0, 0.0, 0.0, 0.0, -1.0, -2.0, -3.0])
    else:
        w.add_token_merges(["a b"])
    w.add_bos_token_id(1), w.add_eos_token_id(2), w.add_unk_token_id(0)
    w.add_chat_template([{"name": "default", "template": "{{ x }}"}, {"name": "tool_use", "template": "{{ y }}"}])
    finish(w)


def model(name: str, kind: str, tied: bool, rope: str) -> None:
    width, rows, vocabulary = 32, 32, 8
    w = gguf.GGUFWriter(FOLDER.parent / "model" / name, "llama")
    w.add_context_length(64), w.add_embedding_length(width), w.add_block_count(1)
    w.add_feed_forward_length(rows), w.add_head_count(2), w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5), w.add_rope_freq_base(10000.0)
    if rope:
        w.add_rope_scaling_type(gguf.RopeScalingType(rope)), w.add_rope_scaling_factor(2.0)
        w.add_rope_scaling_orig_ctx_len(32)

    def matrix(tensor: str, count: int) -> None:
        if kind == "F32":
            w.add_tensor(tensor, np.full((count, width), 0.25, dtype=np.float32))
            return
        quantization = gguf.GGMLQuantizationType[kind]
        elements, size = gguf.GGML_QUANT_SIZES[quantization]
        w.add_tensor(tensor, np.full((count, width // elements * size), 0x11, dtype=np.uint8), raw_dtype=quantization)

    def norm(tensor: str) -> None:
        w.add_tensor(tensor, np.ones(width, dtype=np.float32))

    matrix("token_embd.weight", vocabulary), norm("output_norm.weight")
    if not tied:
        matrix("output.weight", vocabulary)
    for part in ("attn_norm", "ffn_norm"):
        norm(f"blk.0.{part}.weight")
    for part, count in (("attn_q", 32), ("attn_k", 16), ("attn_v", 16), ("attn_output", 32),
                        ("ffn_gate", rows), ("ffn_up", rows), ("ffn_down", width)):
        matrix(f"blk.0.{part}.weight", count)
    finish(w)


FOLDER.mkdir(exist_ok=True)
(FOLDER.parent / "model").mkdir(exist_ok=True)
scalars()
tensors()
vocabulary("bpe.gguf", "gpt2")
vocabulary("spm.gguf", "llama")
model("q8_0.gguf", "Q8_0", True, "")
model("q4_0_yarn.gguf", "Q4_0", False, "yarn")
model("q5_1_linear.gguf", "Q5_1", True, "linear")
