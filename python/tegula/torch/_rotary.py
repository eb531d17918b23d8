"""Rotary positions (Su et al., 2021)."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from ._functions import functions


def rotated(positions: Tensor, base: float, *tensors: Tensor) -> Tuple[Tensor, ...]:
    """Each x [(batch,) tokens, heads, d] rotated by the positions of its tokens; all have as many features."""
    half = tensors[0].shape[-1] // 2
    rates = base ** -(torch.arange(half, device=positions.device, dtype=torch.float32) / half)
    angles = positions.to(torch.float32)[:, None] * rates
    cosine, sine = angles.cos(), angles.sin()
    return tuple(functions["rope"](x, cosine, sine) for x in tensors)


def positions_of(x: Tensor, cu_seqlens: Optional[Tensor], before: int) -> Tensor:
    """Positions of the tokens of x [..., tokens, width] after so many; they restart in each packed sequence."""
    tokens = torch.arange(x.shape[-2], device=x.device)
    if cu_seqlens is None:
        return tokens + before
    sequence = torch.searchsorted(cu_seqlens.to(tokens.dtype), tokens, right=True) - 1
    return tokens - cu_seqlens[sequence] + before
