"""The rivals of bench_cuda: cuBLAS, cuDNN and FlexAttention through PyTorch, timed the same way, one line of JSON a
workload.

  rivals.py [WORD...]    only the workloads whose names have one of the words
"""
import argparse
import functools
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROUNDS = 30
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}


def gemms():
    shapes = [(n, n, n, kind, order) for n in (4096, 8192) for order in ("nn", "nt") for kind in ("bf16", "f16")]
    shapes += [(4096, n, n, "bf16", "nt") for n in range(4096, 16385, 1000)]
    shapes += [(n, n, n, "e4m3", "nt") for n in (4096, 8192)]
    for m, n, k, kind, order in shapes:
        yield "gemm %s %dx%dx%d %s" % (kind, m, n, k, order), 2.0 * m * n * k, lambda: gemm(m, n, k, DTYPES[kind], order)


def gemm(m, n, k, dtype, order):
    if dtype is torch.float8_e4m3fn:
        return gemm_of_8_bits(m, n, k, dtype)
    a = torch.randn(m, k, device="cuda", dtype=dtype)
    b = torch.randn(k, n, device="cuda", dtype=dtype) if order == "nn" else torch.randn(n, k, device="cuda", dtype=dtype).t()
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    return lambda: torch.matmul(a, b, out=out)


# cuBLASLt, sums in f32 throughout.
def gemm_of_8_bits(m, n, k, dtype):
    a = torch.randn(m, k, device="cuda").to(dtype)
    b = torch.randn(n, k, device="cuda").to(dtype).t()
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False)


def attentions():
    shapes = [(16384 // s, s, 16, 128) for s in (2048, 4096, 8192, 16384)] + [(2, 8192, 32, 64), (2, 8192, 8, 256)]
    for causal in (False, True):
        for batch, length, heads, dim in shapes:
            name = "attention bf16 %dx%dx%dx%d %s" % (batch, length, heads, dim, "causal" if causal else "full")
            flops = 4.0 * batch * heads * dim * length * length * (0.5 if causal else 1)
            yield name, flops, lambda: attention(batch, length, heads, dim, causal)


def attention(batch, length, heads, dim, causal, group=1):
    q, k, v = [torch.randn(batch, length, n, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
               for n in (heads, heads // group, heads // group)]

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1)
    return call


def grouped_attentions():
    """Dense attention of the heads of sparse workloads, which their rates are compared with."""
    for length, heads, group in ((16384, 64, 8), (8192, 64, 16), (8192, 16, 4)):
        for causal in (False, True):
            name = "attention bf16 1x%dx%dx128 %s group %d" % (length, heads, "causal" if causal else "full", group)
            flops = 4.0 * heads * 128 * length * length * (0.5 if causal else 1)
            yield name, flops, functools.partial(attention, 1, length, heads, 128, causal, group)


def decodes():
    """One query of each sequence; the fastest of PyTorch's backends."""
    for batch, length in ((1, 8192), (1, 32768), (1, 131072), (8, 8192), (16, 8192), (64, 2048)):
        name = "decode bf16 %dx%dx64x128 full group 8" % (batch, length)
        yield name, 4.0 * batch * 64 * 128 * length, functools.partial(decode, batch, length, 64, 8, 128)


def decode(batch, length, heads, kv_heads, dim):
    q = torch.randn(batch, 1, heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
    k, v = [torch.randn(batch, length, kv_heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(2)]

    def by(backend):
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    return fastest({"decode %s" % backend: functools.partial(by, backend) for backend in
                    (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)})


def fastest(calls):
    """Of those that work; the others say why they refuse."""
    able = []
    for name, call in calls.items():
        try:
            call()
            able.append(call)
        except Exception as failure:  # whatever a compiler raises
            print(name, str(failure).splitlines()[0], file=sys.stderr)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    return min(able, key=lambda call: milliseconds(call, flush, 5))


# Tiles of FlexAttention; a workload takes the fastest that it can.
FLEX_TILES = [{"BLOCK_M": m, "BLOCK_N": n, "num_warps": warps, "num_stages": stages}
              for m, n, warps, stages in ((128, 64, 4, 3), (128, 128, 8, 2), (64, 64, 4, 3), (128, 64, 8, 3))]


def sparse_shapes():
    """The rows of sparse_workloads.cpp whose blocks FlexAttention takes: length, extents of the blocks, causal."""
    for causal in (False, True):
        for length in (49152, 8192, 131072):
            for q_block, k_block in ((384, 384), (128, 128), (64, 64), (16, 64), (8, 64)):
                if length == 49152 or 64 <= q_block < 384:
                    yield length, q_block, k_block, causal


def flex_attentions():
    """FlexAttention at the sizes of sparse_workloads.cpp: rows of queries packed by hand, (token, head of the group)."""
    for length, q_block, k_block, causal in sparse_shapes():
        name = "block sparse bf16 %dx64x8x128 %dx%d 1 of 10%s" % (length, q_block, k_block, " causal" if causal else "")
        yield name, None, functools.partial(flex_of, length, q_block, k_block, causal)


def flex_of(length, q_block, k_block, causal):
    chosen = choose_blocks(length, 8, q_block, k_block, causal)
    call = flex(chosen, length, 64, 8, 128, q_block, k_block, causal)
    return call, 4.0 * 8 * 128 * pairs_of(chosen, q_block, k_block, causal)


def choose_blocks(length, kv_heads, q_block, k_block, causal, period=10, device="cuda"):
    """As sparse_choice.cpp draws them: [1, kv_heads, blocks of queries, entries], -1 where a row has fewer."""
    rows, blocks = length // q_block, length // k_block
    entries = blocks // period
    seen = torch.full((rows,), blocks, device=device)
    if causal:
        seen = ((torch.arange(rows, device=device) + 1) * q_block + k_block - 1) // k_block
    order = torch.arange(entries, device=device)
    chosen = order * period + torch.randint(0, period, (1, kv_heads, rows, entries), device=device)
    chosen = torch.where(order < (seen // period)[:, None], chosen, -1)
    if causal:  # and always the last that the row sees
        last = (seen - 1)[:, None].expand(1, kv_heads, rows, 1)
        chosen = torch.cat((chosen, torch.where((chosen == last).any(-1, keepdim=True), -1, last)), -1)
    return chosen.to(torch.int32)


def drifting_blocks(length, kv_heads, q_block, k_block, causal, period=10, device="cuda"):
    """As sparse_choice.cpp draws them where neighbours share 82 %: those of the highest scores, which drift from row to row."""
    rows, blocks, kept = length // q_block, length // k_block, 0.966
    assert not causal
    scores, chosen = torch.randn(kv_heads, blocks, device=device), []
    for begin in range(0, rows, 1024):
        noise = torch.randn(min(1024, rows - begin), kv_heads, blocks, device=device) * (1 - kept * kept) ** 0.5
        for own in noise:
            scores = torch.add(own, scores, alpha=kept, out=own)
        chosen.append(noise.topk(blocks // period, dim=-1).indices)
    return torch.cat(chosen).permute(1, 0, 2)[None].to(torch.int32).contiguous()


def overlap_of(chosen, blocks):
    """The part of its blocks that a row shares with the row before, the mean."""
    shared = 0
    for head in chosen[0].long():
        marks = torch.zeros(head.shape[0], blocks, dtype=torch.bool, device=head.device).scatter_(1, head, True)
        shared += int((marks[1:] & marks[:-1]).sum())
    return shared / chosen[0, :, 1:].numel()


def pairs_of(chosen, q_block, k_block, causal):
    """Of a query and a key that it sees, of one query head of each key head."""
    if not causal:
        return float((chosen >= 0).sum()) * q_block * k_block
    begin = torch.arange(chosen.shape[2], device=chosen.device)[:, None] * q_block - chosen.long() * k_block

    def of_first(queries):  # the n-th query of a block's own, from the first that sees something of it, sees n of its keys
        few = queries.clamp(0, k_block)
        return few * (few + 1) // 2 + (queries - k_block).clamp(min=0) * k_block
    return float(((of_first(begin + q_block) - of_first(begin)) * (chosen >= 0)).sum())


def flex_mask(chosen, length, heads, kv_heads, q_block, k_block, causal):
    """Blocks of which all queries see all keys need no mask of elements."""
    from torch.nn.attention.flex_attention import BlockMask
    group = heads // kv_heads
    begin = torch.arange(chosen.shape[2], device=chosen.device)[:, None] * q_block
    whole = (chosen >= 0) & ((chosen + 1) * k_block <= begin + 1 if causal else True)

    def listed(which):
        blocks = length // k_block
        ascending = torch.where(which, chosen, blocks).sort(-1).values
        room = torch.zeros(1, kv_heads, length // q_block, blocks, device=chosen.device, dtype=torch.int32)
        room[..., :ascending.shape[-1]] = torch.where(ascending < blocks, ascending, 0)
        return which.sum(-1).to(torch.int32), room
    return BlockMask.from_kv_blocks(*listed((chosen >= 0) & ~whole), *listed(whole), BLOCK_SIZE=(q_block * group, k_block),
                                    mask_mod=(lambda b, h, row, key: row // group >= key) if causal else None,
                                    seq_lengths=(group * length, length))


def flex(chosen, length, heads, kv_heads, dim, q_block, k_block, causal=False):
    from torch.nn.attention.flex_attention import flex_attention
    group = heads // kv_heads
    q, k, v = [torch.randn(1, kv_heads, n, dim, device="cuda", dtype=torch.bfloat16)
               for n in (group * length, length, length)]
    mask = flex_mask(chosen, length, heads, kv_heads, q_block, k_block, causal)
    return fastest({"flex %s" % tiles: functools.partial(torch.compile(flex_attention, dynamic=False), q, k, v,
                                                         block_mask=mask, kernel_options=tiles)
                    for tiles in FLEX_TILES
                    if k_block % tiles["BLOCK_N"] == 0 and q_block * group % tiles["BLOCK_M"] == 0})


def backwards():
    shapes = [(16384 // s, s, 16, 128) for s in (2048, 4096, 8192, 16384)] + [(2, 8192, 32, 64)]
    for causal in (False, True):
        for batch, length, heads, dim in shapes:
            name = "backward bf16 %dx%dx%dx%d dense %s" % (batch, length, heads, dim, "causal" if causal else "full")
            flops = 10.0 * batch * heads * dim * length * length * (0.5 if causal else 1)
            for suffix in ("", " any order"):
                yield name + suffix, flops, lambda: backward(batch, length, heads, dim, causal)


def backward(batch, length, heads, dim, causal):
    q, k, v = [torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
               for _ in range(3)]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    dout = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def rounds_of(calls, flush, rounds):
    """Milliseconds of every call in every round, the calls in turns."""
    for call in calls:
        call()
    events = []
    for _ in range(rounds):
        for call in calls:
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flush.zero_()
            begin.record()
            call()
            end.record()
            events.append((begin, end))
    torch.cuda.synchronize()
    times = [begin.elapsed_time(end) for begin, end in events]
    return [times[i::len(calls)] for i in range(len(calls))]


def print_rows(doc, rows, measure):
    """The main program of a script whose rows have names: `measure(row, flush, rounds)` of each wanted one, a line of JSON each."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--part", default="0/1", help="the rows I, I + N, ..., so that several processes can fill the cache")
    config = parser.parse_args()
    part, parts = map(int, config.part.split("/"))
    # It takes longer to fill than a host needs to enqueue any of the calls, so that none waits for its host.
    flush = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    wanted = [row for row in rows if not config.words or any(word in row.name for word in config.words)]
    for row in wanted[part::parts]:
        print(json.dumps(measure(row, flush, config.rounds)), flush=True)


def milliseconds(call, flush, rounds=ROUNDS):
    return statistics.median(rounds_of([call], flush, rounds)[0])


def main(words):
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for workloads in (gemms, attentions, decodes, grouped_attentions, flex_attentions, backwards):
        for name, flops, prepare in workloads():
            if words and not any(word in name for word in words):
                continue
            line = {"workload": name}
            try:
                call = prepare()
                if flops is None:
                    call, flops = call
                line["ms"] = milliseconds(call, flush)
                line["tflops"] = flops / line["ms"] / 1e9
            except (RuntimeError, ValueError) as failure:
                line["failure"] = str(failure).splitlines()[0]
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
