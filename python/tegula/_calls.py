"""The functions of the extension module, with refusals that name the option whose type is wrong."""

from __future__ import annotations

import functools
import operator
import re
from typing import Any, Callable, TypeVar, cast

from . import _tegula

Function = TypeVar("Function", bound=Callable[..., Any])

_limit = 2**31  # of options that are integers


def _converts(conversion: Callable[[Any], Any], value: Any) -> bool:
    try:
        conversion(value)
    except (TypeError, ValueError):
        return False
    return True


def _fits(value: Any, expected: str) -> bool:
    if expected == "bool":
        return isinstance(value, bool)
    if expected == "int":
        return not isinstance(value, float) and _converts(operator.index, value)
    if expected == "float":
        return not isinstance(value, str) and _converts(float, value)
    if expected == "str":
        return isinstance(value, str)
    return (expected == "None") == (value is None)


def _type_name(value: Any) -> str:
    kind = type(value)
    if value is None:
        return "None"
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _explanation(function: Any, arguments: tuple[Any, ...]) -> str | None:
    """What is wrong with the arguments of a call, by the signature of the function; None if that does not tell."""
    signature = function.__nb_signature__[0][0]
    parameters = re.findall(r"(\w+): ([\w| ]+)", signature.partition("->")[0])
    if len(parameters) != len(arguments):
        return None
    for (name, expected), value in zip(parameters, arguments):
        kinds = expected.split(" | ")
        if not any(_fits(value, kind) for kind in kinds):
            wanted = " or ".join("an array" if kind == "object" else kind for kind in kinds)
            return f"{name}: expected {wanted}, given {_type_name(value)}"
    for (name, expected), value in zip(parameters, arguments):
        if expected == "int" and not -_limit <= operator.index(value) < _limit:
            return f"{name}: expected an integer of 32 bits, given {value}"
    return None


def _explained(function: Function) -> Function:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except TypeError as error:
            if "incompatible function arguments" not in str(error):
                raise
            explanation = _explanation(function, arguments)
            if explanation is None:
                raise
        raise TypeError(f"{function.__name__}: {explanation}")

    return cast(Function, call)


attention = _explained(_tegula.attention)
attention_backward = _explained(_tegula.attention_backward)
block_scores = _explained(_tegula.block_scores)
block_sparse_attn = _explained(_tegula.block_sparse_attn)
block_sparse_attn_backward = _explained(_tegula.block_sparse_attn_backward)
gemm = _explained(_tegula.gemm)
nsa_selected_attention = _explained(_tegula.nsa_selected_attention)
nsa_selected_attention_backward = _explained(_tegula.nsa_selected_attention_backward)
topk_blocks = _explained(_tegula.topk_blocks)
