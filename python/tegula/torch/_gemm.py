"""Matrix products with gradients."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .. import _tegula
from .._arrays import dtype_name
from ._common import any_autocast, autocast, eight_bits
from ._operator import Operator
from ._shapes import gemm_shape, product_dtype


def _fake(a, b, bias, transpose_a, transpose_b, activation, scale, out_dtype):
    shape = gemm_shape(a.shape, b.shape, transpose_a, transpose_b)
    if shape is None:
        return None
    out_dtype = product_dtype(a, out_dtype)
    return a.new_empty(shape, dtype=getattr(torch, out_dtype)) if out_dtype else a.new_empty(shape)


def _before_activation(
    dout: Tensor, tensors: Any, transpose_a: bool, transpose_b: bool, activation: str, scale: float
) -> Tensor:
    """The gradient of the sum that the activation took, which is computed anew."""
    if activation == "none":
        return dout
    z = _gemm(tensors, transpose_a, transpose_b, "none", scale, "float32")
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
    return gradient if gradient.dim() == like.dim() else gradient.sum(0)


def _refuse_gradients_of_8_bits(a: Tensor) -> None:
    if a.dtype in eight_bits:
        raise RuntimeError(
            f"tegula.torch.gemm: products of {a.dtype} have no gradients of a and b, nor have those of PyTorch itself; "
            "pass tensor.detach(), or convert a and b to bfloat16"
        )


def _backward(ctx, tensors, results, dout):
    a, b, bias = tensors
    transpose_a, transpose_b, activation, scale, _ = ctx.options
    if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
        _refuse_gradients_of_8_bits(a)
    dz = _before_activation(dout, tensors, transpose_a, transpose_b, activation, scale)
    da = db = dbias = None
    if bias is not None and ctx.needs_input_grad[2]:
        dbias = dz.float().flatten(0, -2).sum(0).to(bias.dtype)
    dz = dz.to(a.dtype)
    if ctx.needs_input_grad[0]:
        da = _as_given(_gemm((dz, b, None), False, not transpose_b, "none", scale, None), transpose_a, a)
    if ctx.needs_input_grad[1]:
        db = _as_given(_gemm((a, dz, None), not transpose_a, False, "none", scale, None), transpose_b, b)
    return da, db, dbias


_gemm = Operator(
    "gemm",
    "(Tensor a, Tensor b, Tensor? bias, bool transpose_a, bool transpose_b, str activation, float scale, "
    "str? out_dtype) -> Tensor",
    _tegula.gemm,
    _fake,
    _backward,
    keep_results=False,
    unbatched=None,
)


def gemm(
    a: Tensor,
    b: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    bias: Optional[Tensor] = None,
    activation: str = "none",
    scale: float = 1.0,
    out_dtype: Any = None,
) -> Tensor:
    """``tegula.gemm`` with gradients of a, b and bias.

    Arguments, results and errors are those of ``tegula.gemm``; scale is a number without a gradient. Under autocast a
    and b are taken in its dtype, unless they have 8 bits. Those have no gradient (RuntimeError), the bias has.
    """
    if any_autocast():
        a, b = autocast(a, b)
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in (a, b)):
        _refuse_gradients_of_8_bits(a)
    return _gemm((a, b, bias), transpose_a, transpose_b, activation, scale, dtype_name(out_dtype))
