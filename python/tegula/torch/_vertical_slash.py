"""Attention to columns and diagonals of the scores, which are selected by the last few queries."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from ._functions import functions


def vertical_slash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    vertical: Tensor,
    slash: Tensor,
    *,
    q_block_size: int = 64,
    k_block_size: int = 64,
    layout: str = "bshd",
    scale: Optional[float] = None,
) -> Tuple[Tensor, Tensor]:
    """Causal attention to single columns and to the blocks of keys that diagonals cross.

    Args:
        q: [batch, queries, heads, d]; k, v: [batch, keys, kv_heads, ...], or as given by layout. The last query is
            aligned with the last key.
        vertical: int32 or int64 [batch, heads or kv_heads, any number]: keys that all queries see; -1 is padding.
        slash: likewise: distances from a query back to a key, 0 for itself; -1 is padding.
        q_block_size, k_block_size: number of queries that share the blocks of their diagonals, and keys per block.
        layout: bshd or bhsd.
        scale: scale of the scores; default: 1/sqrt(d).

    Returns:
        (out, lse) as ``block_sparse_attention``.
    """
    tokens = 1 if layout == "bshd" else 2
    mask, columns = functions["vertical_slash_blocks"](
        vertical, slash, q.shape[tokens], k.shape[tokens], q_block_size=q_block_size, k_block_size=k_block_size
    )
    attend, common = functions["block_sparse_attention"], {"q_block_size": q_block_size, "layout": layout}
    results = [
        attend(q, k, v, mask=mask, k_block_size=k_block_size, causal=True, scale=scale, **common),
        attend(q, k, v, indices=columns, k_block_size=1, causal=True, scale=scale, **common),
    ]
    out, lse = functions["merge_attention"](
        torch.stack([out for out, _ in results]), torch.stack([lse for _, lse in results]), layout=layout
    )
    return out, lse


def vertical_slash_select(
    q: Tensor,
    k: Tensor,
    verticals: int,
    slashes: int,
    *,
    last: int = 64,
    first_columns: int = 30,
    local_slashes: int = 100,
    layout: str = "bshd",
    scale: Optional[float] = None,
) -> Tuple[Tensor, Tensor]:
    """The columns and diagonals of the largest sums of weights of the last queries, as MInference estimates them.

    Args:
        q, k: as ``vertical_slash_attention`` has them.
        verticals, slashes: number of each, at most the number of keys.
        last: number of queries that are evaluated.
        first_columns, local_slashes: number of first columns, and of smallest distances, that are always selected.
        layout, scale: as ``vertical_slash_attention`` has them.

    Returns:
        (vertical, slash): int32 [batch, heads, ...].
    """
    if layout == "bshd":
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    keys, few = k.shape[2], min(last, q.shape[2])
    recent = q[:, :, q.shape[2] - few :].float()
    shared = k.repeat_interleave(q.shape[1] // k.shape[1], 1).float()
    scores = recent @ shared.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    key = torch.arange(keys, device=q.device)
    distance = torch.arange(keys - few, keys, device=q.device)[:, None] - key
    weights = scores.masked_fill(distance < 0, -torch.inf).softmax(-1)
    columns = weights.sum(2)
    columns[..., :first_columns] = torch.inf
    diagonals = torch.zeros_like(columns)
    diagonals.scatter_add_(-1, distance.clamp(min=0).flatten().expand(*weights.shape[:2], -1), weights.flatten(2))
    diagonals[..., :local_slashes] = torch.inf
    chosen = (x.topk(min(n, keys), -1).indices for x, n in ((columns, verticals), (diagonals, slashes)))
    vertical, slash = (x.to(torch.int32) for x in chosen)
    return vertical, slash
