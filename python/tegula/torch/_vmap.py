"""Operators under torch.vmap: its dimension becomes part of their batch, or every entry of it a call."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

from torch import Tensor, stack


def _folded(x: Optional[Tensor], dim: Optional[int], size: int) -> Optional[Tensor]:
    """[batch, …] as [size * batch, …]; what vmap does not divide is repeated."""
    if x is None:
        return None
    spread = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return spread.flatten(0, 1)


def _unfolded(x: Tensor, size: int) -> Tensor:
    # Results that the call does not have, such as gradients of what is not given, have no batch.
    return x.unflatten(0, (size, x.shape[0] // size)) if x.numel() else x.expand(size, *x.shape)


def entry(x: Optional[Tensor], dim: Optional[int], index: int) -> Optional[Tensor]:
    return x if x is None or dim is None else x.select(dim, index)


def _each(results: Any, change: Callable[..., Tensor]) -> Any:
    return change(results) if isinstance(results, Tensor) else tuple(change(x) for x in results)


def stacked(calls: list[Any]) -> Any:
    return stack(calls) if isinstance(calls[0], Tensor) else tuple(stack(results) for results in zip(*calls))


def make_vmap(operator: Any, unbatched: Optional[Tuple[int, ...]]) -> Callable[..., Any]:
    """The rule of torch.vmap for an operator; `unbatched` as in ``Operator``."""

    def vmap(info: Any, in_dims: Tuple[Any, ...], *inputs: Any) -> Any:
        tensors, options = inputs[: operator.tensors], inputs[operator.tensors :]
        given, size = tuple(zip(tensors, in_dims)), info.batch_size
        if unbatched is not None and all(tensors[number] is None for number in unbatched):
            results = operator.whole(tuple(_folded(x, dim, size) for x, dim in given), *options)
            results = _each(results, lambda x: _unfolded(x, size))
        else:
            results = stacked(
                [operator.whole(tuple(entry(x, dim, i) for x, dim in given), *options) for i in range(size)]
            )
        return results, 0 if isinstance(results, Tensor) else (0,) * len(results)

    return vmap
