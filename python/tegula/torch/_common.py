"""What the custom operators share."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from ._shapes import attention_shapes

if hasattr(torch, "get_autocast_dtype"):

    def _autocast_dtype(device: str) -> Optional[torch.dtype]:
        """The dtype of autocast on the device; None where it is off."""
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
    """The tensors in the dtype of autocast, where it is on for their device."""
    if not isinstance(tensors[0], Tensor):
        return tensors
    dtype = _autocast_dtype(tensors[0].device.type)
    if dtype is None:
        return tensors
    return tuple(x.to(dtype) if x.is_floating_point() and x.dtype not in eight_bits else x for x in tensors)


def rows(gradient: Optional[Tensor], like: Tensor) -> Tensor:
    """A gradient in the dtype of its result; zeros where there is none."""
    return torch.zeros_like(like) if gradient is None else gradient.to(like.dtype)


def lse_rows(gradient: Optional[Tensor]) -> Optional[Tensor]:
    return None if gradient is None else gradient.contiguous()


def new_outputs(q: Tensor, v: Tensor, layout: str) -> tuple[Any, Any]:
    """Tensors for (out, lse) of attention; None for shapes that the library refuses."""
    out, lse = attention_shapes(q.shape, v.shape, layout)
    if out is None:
        return None, None
    return q.new_empty(out), q.new_empty(lse, dtype=torch.float32)


def new_gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x, memory_format=torch.contiguous_format) for x in tensors)
