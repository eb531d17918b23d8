"""Shapes of results from those of arguments, for tracers, which call no library; None for what it refuses."""

from __future__ import annotations

from typing import Any


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
