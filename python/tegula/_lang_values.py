"""The functions of values, for ``tegula.lang``: those that Python has too take its numbers as well."""

from __future__ import annotations

import builtins
from typing import Any, Callable, NamedTuple, Sequence, Union

from . import _tegula as _t
from ._tegula import Dim, Element, Expr, Var

Number = Union[bool, int, float]
Value = Union[Expr, Element, Dim, Var, Number]


def _is_value(*values: Any) -> bool:
    return any(map(_t.lang_is_value, values))


def max(*values: Any, **options: Any) -> Any:
    """The larger of two values; if one is NaN, the other one. Other arguments go to Python's own function."""
    return _t.lang_max(*values) if len(values) == 2 and _is_value(*values) else builtins.max(*values, **options)


def min(*values: Any, **options: Any) -> Any:
    """The smaller of two values; if one is NaN, the other one. Other arguments go to Python's own function."""
    return _t.lang_min(*values) if len(values) == 2 and _is_value(*values) else builtins.min(*values, **options)


def ceildiv(a: Any, b: Any) -> Any:
    """The quotient rounded up; for Python numbers, a number."""
    return _t.lang_ceildiv(a, b) if _is_value(a, b) else -(-a // b)


def clamp(x: Value, low: Value, high: Value) -> Expr:
    """``min(max(x, low), high)``."""
    return _t.lang_clamp(x, low, high)


def select(condition: Value, a: Value, b: Value) -> Expr:
    """``a`` where the condition holds, otherwise ``b``; both are computed."""
    return _t.lang_select(condition, a, b)


def div(a: Value, b: Value) -> Expr:
    """The quotient, truncated for integers as by ``/`` in C++. ``a // b`` rounds down."""
    return _t.lang_div(a, b)


def mod(a: Value, b: Value) -> Expr:
    """The remainder of div, as by ``%`` in C++. ``a % b`` is the remainder of ``a // b``."""
    return _t.lang_mod(a, b)


def pow(x: Any, exponent: Any, *modulus: Any) -> Any:
    """``x`` to the power of ``exponent``, as by C's ``pow``; for Python numbers, Python's own function."""
    return _t.lang_pow(x, exponent) if _is_value(x, exponent) else builtins.pow(x, exponent, *modulus)


def mul_high(a: Value, b: Value) -> Expr:
    """The upper 32 bits of a product of u32."""
    return _t.lang_mul_high(a, b)


class RandomWords(NamedTuple):
    """Four random words, u32."""

    x: Expr
    y: Expr
    z: Expr
    w: Expr


def philox(counter: Sequence[Value], key: Sequence[Value]) -> RandomWords:
    """Four random words of Philox4x32-10, for a counter of four words and a key of two. There is no state."""
    return RandomWords(*_t.lang_philox(tuple(counter), tuple(key)))


def fma(a: Value, b: Value, c: Value) -> Expr:
    """``a · b + c``, rounded once."""
    return _t.lang_fma(a, b, c)


def bitcast(x: Value, type: Any) -> Expr:
    """The same bits reinterpreted as another type of that width: f32, i32, u32; f64, i64."""
    return _t.lang_bitcast(x, type)


def round(x: Any, *digits: Any) -> Any:
    """Rounds to the nearest integer, ties to even; for Python numbers, Python's own function."""
    return _t.lang_round(x) if _is_value(x) else builtins.round(x, *digits)


def abs(x: Any) -> Any:
    """The absolute value."""
    return _t.lang_abs(x) if _is_value(x) else builtins.abs(x)


def _function(name: str, what: str) -> Callable[[Value], Expr]:
    native = getattr(_t, f"lang_{name}")

    def function(x: Value) -> Expr:
        return native(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = what
    return function


exp = _function("exp", "e to the power of x.")
exp2 = _function("exp2", "2 to the power of x.")
log = _function("log", "The natural logarithm.")
log2 = _function("log2", "The logarithm to base 2.")
sqrt = _function("sqrt", "The square root.")
rsqrt = _function("rsqrt", "1 / sqrt(x).")
rcp = _function("rcp", "1 / x.")
tanh = _function("tanh", "The hyperbolic tangent.")
sin = _function("sin", "The sine.")
cos = _function("cos", "The cosine.")
floor = _function("floor", "Rounded down.")
ceil = _function("ceil", "Rounded up.")
isnan = _function("isnan", "Whether x is NaN.")
popcount = _function("popcount", "The number of bits that are 1.")
erf = _function("erf", "The error function.")
uniform = _function("uniform", "A number in [0, 1), f32, from a random word of philox().")

__all__ = [
    "max", "min", "ceildiv", "clamp", "select", "div", "mod", "pow", "mul_high", "philox", "fma", "bitcast", "round",
    "abs", "RandomWords", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "tanh", "sin", "cos", "floor", "ceil",
    "isnan", "popcount", "erf", "uniform"
]  # fmt: skip
