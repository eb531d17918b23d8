"""The tile language, for functions decorated with ``@tegula.kernel``.

Names and meanings are those of C++ (docs/language.md), with context managers instead of functions as bodies and ``a[i,
j]`` instead of ``a(i, j)``. ``from tegula.lang import *`` imports everything; ``max``, ``min``, ``abs``, ``round``,
``input`` and ``print`` behave as in Python unless an argument is a value of a kernel.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, Callable, ContextManager, Dict, NamedTuple, Optional, Sequence, Tuple, Union

from . import _tegula as _t
from ._lang_values import *  # noqa: F403
from ._lang_values import Number, Value
from ._tegula import Dim, DType, Element, Expr, Fragment, PackedShared, PackedTensor, PackedType, PackedWindow
from ._tegula import ProgramError, Shared, Tensor, Tile, Var, Window

_dtypes: Dict[str, DType] = _t.lang_dtypes
boolean = _dtypes["bool"]
i8, i16, i32, i64 = (_dtypes[name] for name in ("i8", "i16", "i32", "i64"))
u8, u32 = _dtypes["u8"], _dtypes["u32"]
e4m3, e5m2 = _dtypes["e4m3"], _dtypes["e5m2"]
f16, bf16, f32, f64 = (_dtypes[name] for name in ("f16", "bf16", "f32", "f64"))
i4, u4, i2, u2, e2m1 = (_t.lang_packed_types[name] for name in ("i4", "u4", "i2", "u2", "e2m1"))

inf = math.inf
log2e = 1.4426950408889634

Extents = Union[Value, Sequence[Value]]
Place = Union[Window, Tensor, Tile, PackedWindow, PackedTensor, PackedShared]

# ---- the signature of a kernel


def input(name: str, shape: Extents = (), type: Any = None) -> Any:
    """A tensor that is read, a PackedTensor if the type is packed. Without a shape and a type, Python's own ``input``."""
    if type is None:
        return builtins.input(name)  # type: ignore[return-value]
    return _t.lang_parameter("input", name, shape, type, False)


def output(name: str, shape: Extents, type: Any, *, zero: bool = False) -> Any:
    """A tensor that is written; with ``zero`` it is cleared before the first grid."""
    return _t.lang_parameter("output", name, shape, type, zero)


def inout(name: str, shape: Extents, type: Any) -> Any:
    """A tensor that is read and written."""
    return _t.lang_parameter("inout", name, shape, type, False)


def workspace(name: str, shape: Extents, type: Any, *, zero: bool = False) -> Any:
    """A tensor that exists during one call; it is not a parameter."""
    return _t.lang_parameter("workspace", name, shape, type, zero)


def scalar(name: str, type: Any) -> Expr:
    """A number that is passed at the call."""
    return _t.lang_scalar(name, type)


def may_alias(a: Tensor, b: Tensor) -> None:
    """Allows two tensors to overlap in memory."""
    _t.lang_may_alias(a, b)


def require(condition: Union[Expr, bool], message: str) -> None:
    """A condition on dims and scalars, checked at every call; a Python bool is checked immediately."""
    _t.lang_require(condition, message)


def processors() -> Expr:
    """Number of processors of the device."""
    return _t.lang_processors()


# ---- grids, loops and branches


class Order(NamedTuple):
    """The order in which the blocks of a grid start."""

    kind: str
    rows: int = 0
    cost: Optional[Callable[..., Value]] = None
    together: Optional[Value] = None

    @staticmethod
    def row() -> Order:
        """The first index changes fastest."""
        return Order("row")

    @staticmethod
    def column() -> Order:
        """The second index changes fastest."""
        return Order("column")

    @staticmethod
    def grouped(rows: int) -> Order:
        """Strips of ``rows`` values of the second index, for the cache."""
        return Order("grouped", rows)

    @staticmethod
    def heavy_first(cost: Callable[..., Value], together: Optional[Value] = None) -> Order:
        """Blocks with the highest cost first; the cost is a function of the grid's indices, dims and scalars."""
        return Order("heavy_first", 0, cost, together)


def grid(
    *extents: Value,
    threads: int = 0,
    persistent: bool = False,
    order: Optional[Order] = None,
    cluster: int = 1,
    blocks_per_processor: int = 0,
) -> ContextManager[Any]:
    """``with grid(nx, ny) as (bx, by):`` runs the body once for every index, in independent blocks and in any order."""
    return _t.lang_grid(extents, threads, persistent, order, cluster, blocks_per_processor)


def parallel(*extents: Union[Value, Tile]) -> ContextManager[Any]:
    """``with parallel(n, m) as (i, j):``, or over the elements of a tile: independent iterations, in any order."""
    return _t.lang_parallel(*extents)


def serial(*ends: Value) -> ContextManager[Expr]:
    """``with serial(n) as i:`` or ``serial(begin, end)``: in order."""
    return _t.lang_serial(*ends)


def pipelined(*ends: Value, stages: int = 0) -> ContextManager[Expr]:
    """Like serial, with the hint that loads of later iterations may start early."""
    return _t.lang_pipelined(*ends, stages=stages)


def unrolled(count: int) -> ContextManager[Expr]:
    """Like serial with a constant count, but unrolled. A Python ``for`` does the same with Python numbers."""
    return _t.lang_unrolled(count)


def each_group(count: int, group: str = "warp") -> ContextManager[Expr]:
    """``count`` independent instances of the body, each run by one "warp" or "warpgroup"."""
    if group not in ("warp", "warpgroup"):
        raise ValueError(f"each_group, group: expected 'warp' or 'warpgroup', given {group!r}")
    return _t.lang_each_group(count, group == "warp")


def when(condition: Value) -> ContextManager[None]:
    """``with when(c):`` is a branch on a device value; ``with otherwise():`` may follow directly."""
    return _t.lang_when(condition)


def otherwise() -> ContextManager[None]:
    """The else branch of the ``when`` that directly precedes it."""
    return _t.lang_otherwise()


def when_rows(*conditions: Value, together: Optional[Value] = None) -> ContextManager[None]:
    """A step that affects only some rows, with one condition per run of rows of the fragments that the body changes."""
    return _t.lang_when_rows(conditions, together)


def loop_while(condition: Callable[[], Value]) -> ContextManager[None]:
    """``with loop_while(lambda: n < 10):``, where n is a Var; the condition is computed before every iteration."""
    return _t.lang_loop_while(condition)


def break_if(condition: Value) -> None:
    """Leaves the innermost non-parallel loop if the condition is true."""
    _t.lang_break_if(condition)


def exit_if(condition: Value) -> None:
    """Ends the block if the condition is true."""
    _t.lang_exit_if(condition)


def print(*values: Any, **options: Any) -> None:
    """``print("label", value)`` in a kernel writes both while it runs; of a tile, every element with its coordinates.

    With other arguments it is Python's own ``print``.
    """
    if len(values) == 2 and not options and _t.lang_is_value(values[1]):
        _t.lang_print(str(values[0]), values[1])
    elif len(values) == 2 and not options and _t.lang_is_tile(values[1]):
        _t.lang_print_tile(str(values[0]), values[1])
    else:
        builtins.print(*values, **options)


def assert_that(condition: Value, message: str) -> None:
    """Ends the call with a ProgramError that has this message if the condition is false."""
    _t.lang_assert_that(condition, message)


# ---- operations on tiles


def copy(source: Place, target: Place, *, fill: float = 0) -> None:
    """Window to tile, tile to window, or tile to tile; elements outside the tensor read as ``fill``."""
    _t.lang_copy(source, target, fill)


def load(source: Place, shape: Sequence[int], type: Any = None) -> Fragment:
    """A new Fragment with the contents, of the tensor's type or ``type``."""
    return _t.lang_load(source, shape, type)


def clone(tile: Tile) -> Fragment:
    """A new Fragment with the same contents."""
    return _t.lang_clone(tile)


def fill(tile: Tile, value: Value) -> None:
    """Sets all elements to the value."""
    _t.lang_fill(tile, value)


def clear(tile: Tile) -> None:
    """Sets all elements to 0, or to false."""
    _t.lang_clear(tile)


def gather(source: Tensor, rows: Union[Tile, Tensor, Callable[[Expr], Value]], tile: Tile) -> None:
    """``tile[i, …] = source[rows[i], …]``; rows may be a function of i. A row outside the view reads as zeros."""
    _t.lang_gather(source, rows, tile)


def gemm(
    a: Tile,
    b: Tile,
    c: Fragment,
    *,
    accumulate: str = "promoted",
    precision: str = "ieee",
    warps: str = "automatic",
    swap: Optional[bool] = None,
    from_registers: Optional[bool] = None,
) -> None:
    """``c += a · b`` with a [m, k] and b [k, n]; a transposed operand is ``a.T``."""
    _t.lang_gemm(a, b, c, accumulate, precision, warps, swap, from_registers)


def gemm_sparse(
    values: Tile, metadata: Tile, b: Tile, c: Fragment, *, accumulate: str = "promoted", warps: str = "automatic"
) -> None:
    """``c += a · b`` where a [m, k] is 2:4 sparse: it has ``values`` [m, k / 2] at the positions given by ``metadata``
    [m, k / 8], as returned by ``tegula.compress_24``."""
    _t.lang_gemm_sparse(values, metadata, b, c, accumulate, warps)


def _reduction(name: str, what: str) -> Callable[..., Any]:
    function = getattr(_t, f"lang_{name}")

    def reduce(tile: Tile, into: Optional[Fragment] = None, *, dim: int = -1) -> Any:
        return function(tile, into, dim)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"{what} along a dimension: a new Fragment, or combined with what ``into`` holds."
    return reduce


reduce_sum = _reduction("reduce_sum", "The sum")
reduce_max = _reduction("reduce_max", "The largest element")
reduce_min = _reduction("reduce_min", "The smallest element")
reduce_absmax = _reduction("reduce_absmax", "The largest magnitude")
reduce_any = _reduction("reduce_any", "Whether some element is true")
reduce_all = _reduction("reduce_all", "Whether all elements are true")


def reduce_argmax(tile: Tile, *, dim: int = -1) -> Fragment:
    """The position of the largest element along a dimension (i32), the first of equal ones. NaN is ignored."""
    return _t.lang_reduce_argmax(tile, dim)


def reduce_argmin(tile: Tile, *, dim: int = -1) -> Fragment:
    """The position of the smallest element along a dimension (i32), the first of equal ones. NaN is ignored."""
    return _t.lang_reduce_argmin(tile, dim)


def _scan(name: str, what: str) -> Callable[..., Fragment]:
    function = getattr(_t, f"lang_{name}")

    def scan(
        tile: Tile, starts: Optional[Tile] = None, *, dim: int = -1, exclusive: bool = False, reverse: bool = False
    ) -> Fragment:
        return function(tile, starts, dim, exclusive, reverse)

    scan.__name__ = scan.__qualname__ = name
    scan.__doc__ = (
        f"{what} of the elements up to each along a dimension: a new Fragment. ``exclusive`` leaves out the element "
        "itself, ``reverse`` begins at the last one, and each true element of ``starts`` begins a new segment."
    )
    return scan


scan_sum = _scan("scan_sum", "The sum")
scan_max = _scan("scan_max", "The maximum")
scan_min = _scan("scan_min", "The minimum")


def atomic_add(place: Union[Element, Window], value: Union[Value, Tile]) -> None:
    """``place += value``, atomically: for an element and a value, or for a window and a tile."""
    _t.lang_atomic_add(place, value)


def atomic_max(place: Union[Element, Window], value: Union[Value, Tile]) -> None:
    """``place = max(place, value)``, atomically."""
    _t.lang_atomic_max(place, value)


def atomic_min(place: Union[Element, Window], value: Union[Value, Tile]) -> None:
    """``place = min(place, value)``, atomically."""
    _t.lang_atomic_min(place, value)


def atomic_or(place: Element, value: Value) -> None:
    """``place |= value``, atomically."""
    _t.lang_atomic_or(place, value)


def atomic_and(place: Element, value: Value) -> None:
    """``place &= value``, atomically."""
    _t.lang_atomic_and(place, value)


def accumulate(
    window: Window, tile: Tile, *, order: Optional[Value] = None, consecutive: bool = False, overwrite: bool = False
) -> None:
    """``window += tile``, atomically; with an order the contributions to an element are added in increasing order."""
    _t.lang_accumulate(window, tile, order, consecutive, overwrite)


__all__ = [
    name for name in dir() if not name.startswith("_") and name not in (
        "annotations", "builtins", "math", "Any", "Callable", "ContextManager", "Dict", "NamedTuple", "Optional",
        "Sequence", "Tuple", "Union", "Number", "Value", "Extents", "Place")
]  # fmt: skip
