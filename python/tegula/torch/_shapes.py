"""Shapes of results from those of arguments, for tracers, which call no library; None for what it refuses."""

from __future__ import annotations

from typing import Any


def is_size(value: Any) -> bool:
    """Whether outputs can be made by it; what cannot is the library's to refuse."""
    return hasattr(type(value), "__index__") and value >= 1


def attention_shapes(q: Any, v: Any, layout: str) -> tuple[Any, Any]:
    """The shapes of (out, lse) from those of q and v; None for what is not attention."""
    if len(q) != len(v):
        return None, None
    if len(q) == 4:
        batch, first, second, _ = q
        return (batch, first, second, v[3]), (batch, second, first) if layout == "bshd" else (batch, first, second)
    if len(q) == 3:
        return (q[0], q[1], v[2]), (q[1], q[0])
    return None, None


def scores_shape(
    q: Any, k: Any, q_block_size: int, k_block_size: int, layout: str, per_kv_head: bool
) -> tuple[int, int, int, int] | None:
    """The shape of the result of block_scores, from those of q and k; None for what has none."""
    if len(q) != 4 or len(k) != 4 or not (is_size(q_block_size) and is_size(k_block_size)):
        return None
    sequence, heads = (1, 2) if layout == "bshd" else (2, 1)
    rows, columns = -(-q[sequence] // q_block_size), -(-k[sequence] // k_block_size)
    return q[0], (k if per_kv_head else q)[heads], rows, columns
