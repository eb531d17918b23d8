"""Host time of warm calls that have next to nothing to do, from NumPy and PyTorch; on a GPU until the call returns.

    python bench/python/calls.py [cpu|cuda]

`scripts/bench calls` and `tegula bench` measure the same from C++.
"""

import sys
import time

import tegula
import tegula.torch
import torch

CALLS, ROUNDS = 100, 60


def microseconds(call, device):
    """The least of many rounds; processor time of the thread where no device works on beside it."""
    clock = time.perf_counter if device == "cuda" else time.thread_time
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = clock()
        for _ in range(CALLS):
            call()
        best = min(best, clock() - begin)
    return best / CALLS * 1e6


def calls(device):
    q = torch.randn(1, 4, 1, 16, device=device)
    leaf = q.clone().requires_grad_()
    a = q[0, :, 0]
    out, lse = tegula.attention(q, q, q)
    blocks = torch.zeros(1, 1, 1, 1, dtype=torch.int32, device=device)
    tokens = torch.zeros(1, 4, 1, 1, dtype=torch.int32, device=device)
    if device == "cpu":
        x = q.numpy()
        yield "attention, NumPy", lambda: tegula.attention(x, x, x)
    for kind, module in (("tegula", tegula), ("tegula.torch", tegula.torch)):
        yield f"{kind}.attention", lambda: module.attention(q, q, q)
        yield f"{kind}.block_sparse_attn", lambda: module.block_sparse_attn(q, q, q, 64, 64, blocks)
        yield f"{kind}.nsa_selected_attention", lambda: module.nsa_selected_attention(q, q, q, tokens)
        yield f"{kind}.gemm", lambda: module.gemm(a, a, transpose_b=True)
    yield "tegula.attention, outputs given", lambda: tegula.attention(q, q, q, out=out, lse=lse)
    yield "tegula.attention_backward", lambda: tegula.attention_backward(out, q, q, q, out, lse)
    yield "tegula.torch.attention with a gradient", lambda: tegula.torch.attention(leaf, q, q)
    yield "the same and its backward", lambda: torch.autograd.grad(tegula.torch.attention(leaf, q, q)[0], leaf, out)


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    for name, call in calls(device):
        print(f"{name:40} {microseconds(call, device):8.1f} us", flush=True)


if __name__ == "__main__":
    main()
