"""Helpers that the custom operators share."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

if hasattr(torch, "get_autocast_dtype"):

    def _autocast_dtype(device: str) -> Optional[torch.dtype]:
        """The dtype of autocast on the device; None if it is disabled."""
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

else:  # PyTorch before 2.4

    def _autocast_dtype(device: str) -> Optional[torch.dtype]:
        if device == "cuda":
            return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


# What autocast leaves alone: scales go with it. PyTorch before 2.1 has none.
eight_bits = tuple(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name))
# Whether it is on for any device: what to ask before the call of ``autocast``.
any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the dtype of autocast, if it is enabled for their device."""
    if not isinstance(tensors[0], Tensor):
        return tensors
    dtype = _autocast_dtype(tensors[0].device.type)
    if dtype is None:
        return tensors
    return tuple(x if x is None or not x.is_floating_point() or x.dtype in eight_bits else x.to(dtype) for x in tensors)


def as_numbers(indices: Any) -> Any:
    """int64 numbers as int32, clamped to -1 and the largest int32."""
    if not isinstance(indices, Tensor) or indices.dtype != torch.int64:
        return indices
    return indices.clamp(-1, 2**31 - 1).to(torch.int32)
