#!/usr/bin/env python3
"""Compares two files of logits, [positions, vocabulary] f32, as `inferd-bench perplexity --logits` and
reference_logits.py write them.

    compare_logits.py REFERENCE.npy OURS.npy [--ids IDS --ctx 512] [--json]

Prints the mean and the highest KL divergence (reference || ours, in nats), the share of positions whose
likeliest token is the same, and with --ids the perplexity of both. Needs numpy alone.
"""

import argparse
import json
import re

import numpy as np

BATCH = 64


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def following_tokens(path, ctx, positions):
    with open(path, encoding="utf-8") as file:
        ids = [int(number) for number in re.findall(r"\d+", file.read())]
    first = ctx // 2
    following = []
    for start in range(0, len(ids) - ctx + 1, ctx):
        following += ids[start + first + 1:start + ctx]
    if len(following) < positions:
        raise SystemExit("the ids give fewer scored positions than the files have rows")
    return np.array(following[:positions])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("reference")
    parser.add_argument("ours")
    parser.add_argument("--ids")
    parser.add_argument("--ctx", type=int, default=512)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reference = np.load(arguments.reference, mmap_mode="r")
    ours = np.load(arguments.ours, mmap_mode="r")
    positions = min(len(reference), len(ours))
    if reference.shape[1] != ours.shape[1] or positions == 0:
        raise SystemExit(f"shapes do not match: {reference.shape} and {ours.shape}")
    following = following_tokens(arguments.ids, arguments.ctx, positions) if arguments.ids else None
    divergences, same, nll = [], 0, np.zeros(2)
    for start in range(0, positions, BATCH):
        a = log_softmax(reference[start:min(start + BATCH, positions)])
        b = log_softmax(ours[start:min(start + BATCH, positions)])
        divergences += (np.exp(a) * (a - b)).sum(axis=1).tolist()
        same += int((a.argmax(axis=1) == b.argmax(axis=1)).sum())
        if following is not None:
            tokens = following[start:start + len(a)]
            row = np.arange(len(a))
            nll -= [a[row, tokens].sum(), b[row, tokens].sum()]
    result = {"positions": positions, "kl_mean": float(np.mean(divergences)),
              "kl_max": float(np.max(divergences)), "top1_agreement": same / positions}
    if following is not None:
        result["perplexity_reference"], result["perplexity_ours"] = np.exp(nll / positions).tolist()
        result["perplexity_ratio"] = result["perplexity_ours"] / result["perplexity_reference"]
    if arguments.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:22} {value:.6g}")


if __name__ == "__main__":
    main()
