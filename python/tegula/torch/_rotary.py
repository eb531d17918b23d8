"""Rotary positions (Su et al., 2021)."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor


def turned(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """x [..., tokens, heads, d] rotated by its positions."""
    half = x.shape[-1] // 2
    rates = base ** -(torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = (positions.to(torch.float32)[:, None] * rates)[:, None]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


def positions_of(x: Tensor, cu_seqlens: Optional[Tensor], before: int) -> Tensor:
    """Positions of the tokens of x [..., tokens, width] after so many; they restart in each packed sequence."""
    tokens = torch.arange(x.shape[-2], device=x.device)
    if cu_seqlens is None:
        return tokens + before
    sequence = torch.searchsorted(cu_seqlens.to(tokens.dtype), tokens, right=True) - 1
    return tokens - cu_seqlens[sequence] + before
