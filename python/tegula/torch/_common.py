"""What the custom operators share."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor


if hasattr(torch, "get_autocast_dtype"):

    def _autocast_dtype(device: str) -> Optional[torch.dtype]:
        """The dtype of autocast on the device; None where it is off."""
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

else:  # PyTorch before 2.4

    def _autocast_dtype(device: str) -> Optional[torch.dtype]:
        if device == "cuda":
            return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the dtype of autocast, where it is on for their device."""
    dtype = _autocast_dtype(tensors[0].device.type)
    if dtype is None:
        return tensors
    return tuple(x.to(dtype) if x.is_floating_point() else x for x in tensors)


def detached(*tensors: Optional[Tensor]) -> list[Any]:
    """The tensors without their history: DLPack exports no others."""
    return [x.detach() if x is not None and x.requires_grad else x for x in tensors]


def rows(gradient: Optional[Tensor], like: Tensor) -> Tensor:
    """A gradient whose features lie side by side; zeros where there is none."""
    if gradient is None:
        return torch.zeros_like(like)
    gradient = gradient.to(like.dtype)
    return gradient if gradient.stride(-1) == 1 or gradient.shape[-1] == 1 else gradient.contiguous()


def lse_rows(gradient: Optional[Tensor]) -> Optional[Tensor]:
    return None if gradient is None else gradient.contiguous()


def new_outputs(q: Tensor, v: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """Tensors of the shapes of (out, lse) of attention."""
    out = q.new_empty(q.shape[:-1] + v.shape[-1:])
    lse_shape = q.shape[:-1]
    if q.dim() == 3 or layout == "bshd":
        lse_shape = lse_shape[:-2] + (lse_shape[-1], lse_shape[-2])
    return out, q.new_empty(lse_shape, dtype=torch.float32)


def new_gradients(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in tensors)
