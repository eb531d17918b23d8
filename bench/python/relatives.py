"""Times of the relatives of native sparse attention beside dense attention, forward and with gradients; JSON lines.

    python bench/python/relatives.py [--tokens N] [--device cpu|cuda]
"""

import argparse
import json

import tegula.torch as tt
import torch
from nsa_stages import milliseconds


def calls(config):
    """Name, a function of q, k and v, and their shapes: heads, kv_heads, d."""
    edge = config.tokens // 256
    make = dict(device=config.device, dtype=getattr(torch, config.dtype))
    index_q = {heads: torch.randn(1, config.tokens, heads, 128, **make) for heads in (2, 4)}
    index_k = torch.randn(1, config.tokens, 128, **make)
    yield "dense", lambda q, k, v: tt.attention(q, k, v, causal=True)[0], (32, 2, 128)
    yield "moba", lambda q, k, v: tt.moba_attention(q, k, v, chunk_size=512, count=4), (16, 16, 128)
    yield "infllm", lambda q, k, v: tt.infllm_attention(q, k, v, count=32), (32, 2, 128)
    yield "msa", lambda q, k, v: tt.msa_attention(q, k, v, index_q[4], index_k), (64, 4, 128)
    yield "qsa", lambda q, k, v: tt.qsa_attention(q, k, v, index_q[4], index_k), (24, 2, 256)
    video = {"cube": (4, 4, 4), "count": max(1, config.tokens // 640)}
    yield "video", lambda q, k, v: tt.video_attention(q, k, v, (edge, 16, 16), **video), (16, 16, 128)
    by_parts = {**video, "sub_blocks": 4}
    yield "video_lse", lambda q, k, v: tt.video_attention(q, k, v, (edge, 16, 16), **by_parts), (16, 16, 128)
    yield "xattention", lambda q, k, v: tt.xattention(q, k, v, stride=16), (16, 16, 128)


def main():
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="bfloat16" if gpu else "float32")
    parser.add_argument("--tokens", type=int, default=16384 if gpu else 1024, help="a multiple of 1024")
    parser.add_argument("--rounds", type=int, default=10)
    config = parser.parse_args()
    if config.tokens % 1024:
        parser.error("--tokens must be a multiple of 1024")
    for name, call, (heads, kv_heads, dim) in calls(config):
        make = dict(device=config.device, dtype=getattr(torch, config.dtype), requires_grad=True)
        tensors = [torch.randn(1, config.tokens, n, dim, **make) for n in (heads, kv_heads, kv_heads)]
        with torch.no_grad():
            row = {"name": name, "tokens": config.tokens, "heads": heads, "kv_heads": kv_heads, "d": dim}
            row["forward_ms"] = milliseconds(lambda: call(*tensors), config.device, config.rounds)  # noqa: B023
        out = call(*tensors)
        given = torch.randn_like(out)
        row["backward_ms"] = milliseconds(
            lambda: torch.autograd.grad(out, tensors, given, retain_graph=True),  # noqa: B023
            config.device, config.rounds,
        )  # fmt: skip
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
