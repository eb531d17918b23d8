"""Chosen blocks beside cuDNN's dense attention of the same heads and FlexAttention, in turns in one process: what limits the
power of a processor changes between processes. One line of JSON a row: rates in TFLOPS, and ours by that of dense attention, the
median of all rounds. Gradients of chosen blocks stand beside the same dense forward, which tells what the processor had; dense
gradients beside cuDNN's.

  beside.py [--without-flex] [WORD...]    only the rows whose names have one of the words
"""
import functools
import itertools
import json
import statistics
import sys

import torch

import rivals
import tegula
import tegula.torch

HEADS, KV_HEADS, DIM, DENSE, TOKENS = 64, 8, 128, 16384, 49152
ROUNDS = 20


def ours(chosen, length, q_block, k_block, causal):
    q, k, v = [torch.randn(1, length, heads, DIM, device="cuda", dtype=torch.bfloat16)
               for heads in (HEADS, KV_HEADS, KV_HEADS)]

    def call():
        with torch.no_grad():
            tegula.torch.block_sparse_attn(q, k, v, q_block, k_block, chosen, causal=causal)
    return call


def gradients(chosen, length, kv_heads, block, causal, deterministic):
    q, k, v, dout = [torch.randn(1, length, heads, DIM, device="cuda", dtype=torch.bfloat16)
                     for heads in (HEADS, kv_heads, kv_heads, HEADS)]
    blocks = {"q_block_size": block, "k_block_size": block, "indices": chosen, "causal": causal}
    out, lse = tegula.block_sparse_attention(q, k, v, **blocks)
    return lambda: tegula.block_sparse_attention_backward(dout, q, k, v, out, lse, **blocks, deterministic=deterministic)


def gradient_rows():
    for length, block, group in itertools.product((TOKENS, 8192, 131072), (64, 128), (8, 1)):
        for causal, deterministic in ((False, True), (True, True), (False, False)):
            if deterministic or (block == 128 and group == 1):  # others take the same two passes
                yield length, block, group, causal, deterministic


def dense_gradients(length, causal, flush):
    """The gradients of 16384 tokens of 16 heads, and cuDNN's."""
    batch, heads = DENSE // length, 16
    q, k, v, dout = [torch.randn(batch, length, heads, DIM, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    out, lse = tegula.attention(q, k, v, causal=causal)
    own, rival = rivals.rounds_of([lambda: tegula.attention_backward(dout, q, k, v, out, lse, causal=causal),
                                   rivals.backward(batch, length, heads, DIM, causal)], flush, ROUNDS)
    flops = 10.0 * batch * heads * DIM * length * length * (0.5 if causal else 1)
    return compared(flops, own, flops, rival)


def name_of(length, q_block, k_block, what=""):
    return "block sparse bf16 %dx%dx%dx%d %dx%d 1 of 10%s" % (length, HEADS, KV_HEADS, DIM, q_block, k_block, what)


def rows(with_flex):
    for length, causal in itertools.product((16384, 8192, 4096, 2048), (False, True)):
        yield "dense backward bf16 %dx%dx16x%d%s" % (DENSE // length, length, DIM, " causal" if causal else ""), (
            functools.partial(dense_gradients, length, causal))
    for length, q_block, k_block, causal in rivals.sparse_shapes():
        yield name_of(length, q_block, k_block, " causal" if causal else ""), functools.partial(
            measure, length, q_block, k_block, causal, with_flex)
    # Not for FlexAttention.
    for length, causal in itertools.product((TOKENS, 8192), (False, True)):
        yield name_of(length, 128, 1, " causal" if causal else ""), functools.partial(
            measure, length, 128, 1, causal, False)
    for drift, choose in (("", rivals.choose_blocks), (" drifting", rivals.drifting_blocks)):
        yield name_of(TOKENS, 1, 64, drift), functools.partial(
            measure, TOKENS, 1, 64, False, False, choose=choose)
    for length, block, group, causal, deterministic in gradient_rows():
        name = "backward bf16 %dx%dx%d %dx%d group %d 1 of 10%s%s" % (
            length, HEADS, DIM, block, block, group, " causal" if causal else "", "" if deterministic else " any order")
        yield name, functools.partial(measure_gradients, length, HEADS // group, block, causal, deterministic)


def dense():
    return rivals.attention(1, DENSE, HEADS, DIM, False, HEADS // KV_HEADS), 4.0 * HEADS * DIM * DENSE * DENSE


def compared(flops, own, dense_flops, dense_times):
    return {"ms": statistics.median(own), "tflops": flops / statistics.median(own) / 1e9,
            "dense tflops": dense_flops / statistics.median(dense_times) / 1e9,
            "x dense": statistics.median(flops / a / (dense_flops / b) for a, b in zip(own, dense_times))}


def measure_gradients(length, kv_heads, block, causal, deterministic, flush):
    chosen = rivals.choose_blocks(length, kv_heads, block, block, causal)
    flops = 10.0 * (HEADS // kv_heads) * DIM * rivals.pairs_of(chosen, block, block, causal)
    call, dense_flops = dense()
    own, dense_times = rivals.rounds_of([gradients(chosen, length, kv_heads, block, causal, deterministic), call], flush,
                                        ROUNDS)
    return compared(flops, own, dense_flops, dense_times)


def measure(length, q_block, k_block, causal, with_flex, flush, choose=rivals.choose_blocks):
    chosen = choose(length, KV_HEADS, q_block, k_block, causal)
    flops = 4.0 * (HEADS // KV_HEADS) * DIM * rivals.pairs_of(chosen, q_block, k_block, causal)
    call, dense_flops = dense()
    calls = [ours(chosen, length, q_block, k_block, causal), call]
    if with_flex:
        calls.append(rivals.flex(chosen, length, HEADS, KV_HEADS, DIM, q_block, k_block, causal))
    own, dense_times, *flex = rivals.rounds_of(calls, flush, ROUNDS)
    line = compared(flops, own, dense_flops, dense_times)
    if q_block == 1:
        line["overlap"] = rivals.overlap_of(chosen, length // k_block)
    if flex:
        line["flex tflops"] = flops / statistics.median(flex[0]) / 1e9
    return line


def main(words):
    with_flex = "--without-flex" not in words
    words = [word for word in words if not word.startswith("--")]
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for name, run in rows(with_flex):
        if words and not any(word in name for word in words):
            continue
        line = {"workload": name}
        try:
            line.update(run(flush))
        except (RuntimeError, ValueError) as failure:
            line["failure"] = str(failure).splitlines()[0]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
