"""How functions with the signatures of other libraries refuse what they do not support."""

from __future__ import annotations

from typing import Any, Optional

from torch import Tensor


def refuse(**unsupported: Any) -> None:
    for name, (given, remedy) in unsupported.items():
        if given:
            raise ValueError(f"{name}: this argument is not supported; {remedy}")


def expect(name: str, given: Optional[Tensor], dims: str, *extents: int) -> None:
    """Refuses a tensor of another shape; -1: any extent."""
    if given is None:
        return
    shape = tuple(given.shape)
    if len(shape) != len(extents) or any(n not in (-1, own) for n, own in zip(extents, shape)):
        wanted = ", ".join(part if n < 0 else f"{part} = {n}" for part, n in zip(dims.split(), extents))
        raise ValueError(f"{name}: expected [{wanted}], given {list(shape)}; reshape it, or check q")
