"""Operators under torch.vmap: its dimension becomes part of their batch, or every entry of it a call."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

from torch import Tensor, stack

from .._tables import Dims, Table, names_of


def _folded(x: Optional[Tensor], dim: Optional[int], size: int) -> Optional[Tensor]:
    """[batch, …] as [size * batch, …]; what vmap does not divide is repeated."""
    if x is None:
        return None
    spread = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
    return spread.flatten(0, 1)


def _unfolded(x: Tensor, size: int) -> Tensor:
    # Results that the call does not have, such as gradients of what is not given, have no batch.
    return x.unflatten(0, (size, x.shape[0] // size)) if x.numel() else x.expand(size, *x.shape)


def _entry(x: Optional[Tensor], dim: Optional[int], index: int) -> Optional[Tensor]:
    return x if x is None or dim is None else x.select(dim, index)


def _each(results: Any, change: Callable[..., Tensor]) -> Any:
    return change(results) if isinstance(results, Tensor) else tuple(change(x) for x in results)


def _stacked(calls: list[Any]) -> Any:
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
            results = _stacked(
                [operator.whole(tuple(_entry(x, dim, i) for x, dim in given), *options) for i in range(size)]
            )
        return results, 0 if isinstance(results, Tensor) else (0,) * len(results)

    return vmap


_batches = ("batch", "b")


def _in_front(x: Tensor, dim: int) -> Tensor:
    """The dimension of vmap as the first. One that was the last lay between features, which belong side by side."""
    return x.movedim(dim, 0).contiguous() if dim == x.dim() - 1 else x.movedim(dim, 0)


class _Folding:
    """How a dimension of torch.vmap becomes part of the leading extents, or the batch, of the tensors of a table."""

    def __init__(self, table: Table, tensors: Tuple[Any, ...], in_dims: Tuple[Any, ...], size: int, options: Any) -> None:
        self.size = size
        shapes = tuple(
            None if x is None else x.shape if dim is None else (*x.shape[:dim], *x.shape[dim + 1 :])
            for x, dim in zip(tensors, in_dims)
        )
        self.dims = Dims(table, shapes, options[: len(table.options)])
        self.given = tuple(zip(table.inputs, tensors, in_dims))
        self.leads, self.batch = False, ""
        self.is_possible = self.dims.solved and self._find(table)
        has = [x for x, tensor, dim in self.given if tensor is not None and self._folds(x) and self._has_batch(x, tensor, dim)]
        # The extent of the batch that the call has itself; 0 if it has none.
        self.own = self.dims.values[self.batch] if self.batch and has else 0

    def _find(self, table: Table) -> bool:
        first = table.inputs[0].dims(self.dims.values)[0]
        self.leads = first["leading"]
        if not self.leads and not (first["optional"] or first["extent"] in _batches):
            return False
        self.batch = "" if self.leads else first["extent"]
        outputs = all(self._folds(x) for x in table.outputs if self.dims.has(x))
        return outputs and all(self._folds(x) or (dim is None and not self._names_batch(x)) for x, tensor, dim in self.given if tensor is not None)

    def _folds(self, x: Any) -> bool:
        first = x.dims(self.dims.values)[:1]
        return bool(first) and (first[0]["leading"] if self.leads else first[0]["extent"] == self.batch)

    def _names_batch(self, x: Any) -> bool:
        return any((self.batch or "rows") in names_of(item["extent"]) for item in x.dims(self.dims.values))

    def _has_batch(self, x: Any, tensor: Tensor, dim: Optional[int]) -> bool:
        return self.leads or tensor.dim() - (dim is not None) == len(x.dims(self.dims.values))

    def folded(self, x: Any, tensor: Optional[Tensor], dim: Optional[int]) -> Optional[Tensor]:
        if tensor is None or not self._folds(x):
            return tensor
        if self.leads:
            return tensor.expand(self.size, *tensor.shape) if dim is None else _in_front(tensor, dim)
        has = self._has_batch(x, tensor, dim)
        if dim is None and (not has or tensor.shape[0] != self.own):
            return tensor  # repeated for every batch by the operator
        spread = tensor.expand(self.size, *tensor.shape) if dim is None else _in_front(tensor, dim)
        if not self.own:
            return spread
        spread = spread if has else spread.unsqueeze(1)
        return spread.expand(self.size, self.own, *spread.shape[2:]).flatten(0, 1)

    def unfolded(self, result: Tensor) -> Tensor:
        if self.leads or not self.own:
            return result
        return result.unflatten(0, (self.size, self.own)) if result.numel() else result.new_empty(self.size, *result.shape)


def make_folding_vmap(operator: Any, table: Table) -> Callable[..., Any]:
    """The rule of torch.vmap for an operator of a table: one larger call, or one for every entry."""

    def vmap(info: Any, in_dims: Tuple[Any, ...], *inputs: Any) -> Any:
        count, size = operator.tensors, info.batch_size
        tensors, options = inputs[:count], inputs[count:]
        folding = _Folding(table, tensors, in_dims, size, options)
        if folding.is_possible:
            results = operator.whole(tuple(folding.folded(*each) for each in folding.given), *options)
            results = _each(results, folding.unfolded)
        else:
            given = [(x if x is None or dim is None else _in_front(x, dim), dim) for x, dim in zip(tensors, in_dims)]
            results = _stacked(
                [operator.whole(tuple(_entry(x, dim and 0, i) for x, dim in given), *options) for i in range(size)]
            )
        return results, 0 if isinstance(results, Tensor) else (0,) * len(results)

    return vmap
