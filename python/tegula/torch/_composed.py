"""Gradients that consist of calls of other operators, for tables that name no operator for them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Set

import torch
from torch import Tensor

Named = Dict[str, Any]


def _before_activation(call: Callable[..., Tensor], tensors: Named, options: Named, dout: Tensor) -> Tensor:
    """The gradient of the sum that the activation took, which is computed anew."""
    activation = options["activation"]
    if activation == "none":
        return dout
    z = call(tensors, {**options, "activation": "none", "out_dtype": "float32"})
    dout = dout.float()
    if activation == "relu":
        return dout * (z > 0)
    if activation == "silu":
        return torch.ops.aten.silu_backward(dout, z)
    return torch.ops.aten.gelu_backward(dout, z, approximate="tanh")


def _as_given(gradient: Tensor, transposed: bool, like: Tensor) -> Tensor:
    """A gradient in the shape of its argument: transposed back, and summed where one matrix served every batch."""
    if transposed:
        gradient = gradient.transpose(-1, -2)
    if gradient.dim() > like.dim():
        return gradient.sum(0)
    return gradient.sum(0, keepdim=True) if gradient.shape[0] != like.shape[0] else gradient


def _gemm(call: Callable[..., Tensor], tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    a, b, bias = tensors["a"], tensors["b"], tensors["bias"]
    transpose_a, transpose_b, scale = options["transpose_a"], options["transpose_b"], options["scale"]
    dz = _before_activation(call, tensors, options, gradients["dout"])
    made: Named = {}
    if "bias" in needed:
        made["bias"] = dz.float().flatten(0, -2).sum(0).to(bias.dtype)
    dz = dz.to(a.dtype)
    if "a" in needed:
        da = call({"a": dz, "b": b}, {"transpose_b": not transpose_b, "scale": scale})
        made["a"] = _as_given(da, transpose_a, a)
    if "b" in needed:
        db = call({"a": a, "b": dz}, {"transpose_a": not transpose_a, "scale": scale})
        made["b"] = _as_given(db, transpose_b, b)
    return made


# By the operator's name: from a function that calls it by names, its tensors, its options, the gradients of its results
# (dout) and the names of the tensors whose gradients are needed, these gradients by name.
composed: Dict[str, Callable[[Callable[..., Any], Named, Named, Named, Set[str]], Named]] = {"gemm": _gemm}
