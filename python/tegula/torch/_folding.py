"""Operators of tables under torch.vmap: their dims determine whether its dimension can become part of a larger call."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

from torch import Tensor, stack

from .._tables import Dims, Table, names_of

# Names of a first dim whose entries do not know of each other.
_batches = ("batch", "b")


def _entry(x: Optional[Tensor], dim: Optional[int], index: int) -> Optional[Tensor]:
    return x if x is None or dim is None else x.select(dim, index)


def _stacked(calls: list[Any]) -> Any:
    return stack(calls) if isinstance(calls[0], Tensor) else tuple(stack(results) for results in zip(*calls))


def _in_front(x: Tensor, dim: int) -> Tensor:
    """Moves the dimension of vmap to the front. If it was last, features were not contiguous, so the result is
    copied."""
    return x.movedim(dim, 0).contiguous() if dim == x.dim() - 1 else x.movedim(dim, 0)


class _Folding:
    """How the dimension of vmap becomes a leading extent, or part of the batch, of a call."""

    def __init__(self, table: Table, tensors: Tuple[Any, ...], in_dims: Tuple[Any, ...], size: int, options: Any) -> None:
        self.size = size
        shapes = tuple(
            None if x is None else x.shape if dim is None else (*x.shape[:dim], *x.shape[dim + 1 :])
            for x, dim in zip(tensors, in_dims)
        )
        self.dims = Dims(table, shapes, options[: len(table.options)])
        self.all = tuple(zip(table.inputs, tensors, in_dims))
        self.given = [each for each in self.all if each[1] is not None]
        self.leads, self.batch = False, ""
        self.is_possible = self.dims.solved and self._find(table)
        # The extent of the batch that the call has itself; None if it has none.
        has = self.is_possible and any(self._has_batch(*each) for each in self.given)
        self.own = self.dims.values[self.batch] if has else None

    def _find(self, table: Table) -> bool:
        """Whether all arguments that vmap divides, and all results, begin with such a dim, and nothing else depends on
        it."""
        first = table.inputs[0].dims(self.dims.values)[0]
        self.leads = first["leading"]
        if not self.leads and not (first["optional"] or first["extent"] in _batches):
            return False
        self.batch = "" if self.leads else first["extent"]
        if not all(self._folds(x) for x in table.outputs if self.dims.has(x)):
            return False
        return all(self._folds(x) or (dim is None and not self._names_batch(x)) for x, _, dim in self.given)

    def _folds(self, x: Any) -> bool:
        first = x.dims(self.dims.values)[:1]
        return bool(first) and (first[0]["leading"] if self.leads else first[0]["extent"] == self.batch)

    def _names_batch(self, x: Any) -> bool:
        return any((self.batch or "rows") in names_of(item["extent"]) for item in x.dims(self.dims.values))

    def _has_batch(self, x: Any, tensor: Tensor, dim: Optional[int]) -> bool:
        rank = tensor.dim() - (dim is not None)
        return not self.leads and self._folds(x) and rank == len(x.dims(self.dims.values))

    def folded(self, x: Any, tensor: Optional[Tensor], dim: Optional[int]) -> Optional[Tensor]:
        if tensor is None or not self._folds(x):
            return tensor
        has = self._has_batch(x, tensor, dim)
        if not self.leads and dim is None and (not has or tensor.shape[0] != self.own):
            return tensor  # repeated for every batch by the operator
        spread = tensor.expand(self.size, *tensor.shape) if dim is None else _in_front(tensor, dim)
        if self.own is None:
            return spread
        spread = spread if has else spread.unsqueeze(1)
        return spread.expand(self.size, self.own, *spread.shape[2:]).flatten(0, 1)

    def unfolded(self, output: Any, result: Tensor) -> Tensor:
        if not self.dims.has(output):
            return result.expand(self.size, *result.shape)
        return result if self.own is None else result.unflatten(0, (self.size, self.own))


def make_folding_vmap(operator: Any, table: Table) -> Callable[..., Any]:
    """The torch.vmap rule for an operator of a table: one larger call, or one call per entry."""

    def vmap(info: Any, in_dims: Tuple[Any, ...], *inputs: Any) -> Any:
        count, size = operator.tensors, info.batch_size
        tensors, options = inputs[:count], inputs[count:]
        folding = _Folding(table, tensors, in_dims, size, options)
        if folding.is_possible:
            results = operator.whole(tuple(folding.folded(*each) for each in folding.all), *options)
            if isinstance(results, Tensor):
                return folding.unfolded(table.outputs[0], results), 0
            return tuple(folding.unfolded(*each) for each in zip(table.outputs, results)), (0,) * len(results)
        moved = [(x if x is None or dim is None else _in_front(x, dim), dim) for x, dim in zip(tensors, in_dims)]
        results = _stacked(
            [operator.whole(tuple(_entry(x, dim and 0, i) for x, dim in moved), *options) for i in range(size)]
        )
        return results, 0 if isinstance(results, Tensor) else (0,) * len(results)

    return vmap
