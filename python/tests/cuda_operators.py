"""Calls of operators that tests repeat on a GPU, by name."""

import functools

import tegula.torch
import torch
from torch_references import choice

TOKENS = 200


def heads(dtype=torch.float32, tokens=TOKENS):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn((1, tokens, n, 64), generator=generator).to(dtype) for n in (4, 2, 2)]


BLOCKS = choice(4, 4, 2)  # for blocks of 64 queries
NARROW, WIDE = choice(TOKENS, 13, 4), choice(TOKENS, 4, 2)  # for every token; blocks of 16 and of 64 keys


@functools.lru_cache(maxsize=None)
def lists():
    """The same on the GPU, once: a graph holds no copies from the host."""
    return [x.int().cuda() for x in (BLOCKS, NARROW.transpose(1, 2), WIDE.transpose(1, 2))]


def by_choice(q, k, v, *_):
    """Scores, the choice of blocks by them, and MagiAttention's form of attention over it."""
    chosen = tegula.torch.topk_blocks(tegula.torch.block_scores(q, k, q_block_size=64, k_block_size=64), 2)
    return tegula.torch.block_sparse_attn(q[0], k[0], v[0], 64, 64, chosen[0])


def drop_in(q, k, v, blocks, narrow, wide):
    indices = wide.transpose(1, 2)
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    (out, near), (lse, near_lse) = tegula.torch.native_sparse_attend(
        q, k, v, 64, indices, indices > 0, return_lse=True, return_sliding_window_out=True, distinct_earlier_blocks=True
    )
    return out, lse, near, near_lse


OPERATORS = {
    "attention": lambda q, k, v, *_: tegula.torch.attention(q, k, v, causal=True),
    "sinks": lambda q, k, v, *_: tegula.torch.attention(q, k, v, causal=True, sinks=v[0, 0, 0, :4]),
    "window": lambda q, k, v, *_: tegula.torch.attention(q, k, v, causal=True, left=31, softcap=10.0),
    "block_sparse": lambda q, k, v, blocks, *_: tegula.torch.block_sparse_attn(q, k, v, 64, 64, blocks, causal=True),
    "nsa_selected": lambda q, k, v, blocks, narrow, wide: tegula.torch.nsa_selected_attention(
        q, k, v, narrow, block_size=16, diagonal=True, window=17
    ),
    "nsa_wide_blocks": lambda q, k, v, blocks, narrow, wide: tegula.torch.nsa_selected_attention(
        q, k, v, wide, block_size=64
    ),
    "by_choice": by_choice,
    "native_sparse_attend": drop_in,
    "gemm": lambda q, k, v, *_: (
        tegula.torch.gemm(q[0, :, 0], k[0, :, 0], transpose_b=True, bias=v[0, :, 0, 0], activation="silu"),
    ),
}
