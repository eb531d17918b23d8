"""Mixture of experts: a layer, and PyTorch's function for grouped products."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor, nn

from ._functions import functions


def _in_order(matrices: Tensor) -> Tuple[Tensor, Dict[str, Any]]:
    """The matrices of groups in their memory order, and the option that says so."""
    if matrices.stride(-1) != 1 and matrices.stride(-2) == 1:
        return matrices.transpose(-2, -1), {"transpose_b": True}
    return matrices, {"transpose_b": False}


def _begins(ends: Tensor) -> Tensor:
    return nn.functional.pad(ends.to(torch.int32), (1, 0))


def _rows_of_groups(rows: Tensor, matrices: Tensor, ends: Tensor, out_dtype: Optional[torch.dtype]) -> Tensor:
    b, options = _in_order(matrices)
    options["out_dtype"] = out_dtype
    count = rows.shape[0]
    if ends.device.type == "cpu" and ends.numel() > 0:
        # There the library looks at the ends, and all rows belong to groups.
        rows = rows[: int(ends[-1])]
    out = functions["grouped_gemm"](rows.contiguous(), b, offsets=_begins(ends), **options)
    return nn.functional.pad(out, (0, 0, 0, count - rows.shape[0]))


class _InnerGroups(torch.autograd.Function):
    """Products grouped along k: [m, k] · [k, n] -> [groups, m, n]."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, begins: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(a, b, begins)
        out_dtype = str(dtype).partition(".")[2]
        return functions["grouped_gemm_weights"](a, b, begins, out_dtype=out_dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        a, b, begins = ctx.saved_tensors
        dout = gradients[0].to(a.dtype).contiguous()
        da = functions["grouped_gemm"](b, dout, offsets=begins, transpose_b=True)
        return da, functions["grouped_gemm"](a, dout, offsets=begins), None, None


def grouped_mm(
    input: Tensor,
    mat2: Tensor,
    *,
    offs: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    out_dtype: Optional[torch.dtype] = None,
) -> Tensor:
    """``torch.nn.functional.grouped_mm`` (``torch._grouped_mm``): `offs` has the ends of the groups, int32 [groups].

    [m, k] and [groups, k, n]: rows are grouped and multiplied with the matrix of their group, [m, n]; rows after the
    last end are unspecified. [groups, m, k] and [k, n]: columns of the second are grouped, [m, n]. [m, k] and [k, n]:
    columns of the first and rows of the second are grouped, [groups, m, n]. [groups, m, k] and [groups, k, n], without
    ends: one product per group. Differentiable; the host does not read ends on a GPU.
    """
    if bias is not None:
        raise ValueError("grouped_mm: expected no bias, given a tensor; grouped_gemm adds one for each group")
    if (input.dim() == 3 and mat2.dim() == 3) != (offs is None):
        raise ValueError("grouped_mm: expected offs where matrices are divided into groups, and only there")
    if offs is None:
        b, options = _in_order(mat2)
        return functions["grouped_gemm"](input.contiguous(), b, out_dtype=out_dtype, **options)
    if input.dim() == 2 and mat2.dim() == 3:
        return _rows_of_groups(input, mat2, offs, out_dtype)
    if input.dim() == 3:
        return _rows_of_groups(mat2.t(), input.transpose(1, 2), offs, out_dtype).t()
    result: Tensor = _InnerGroups.apply(
        input.t().contiguous(), mat2.contiguous(), _begins(offs), out_dtype or input.dtype
    )
    return result


class MixtureOfExperts(nn.Module):
    """Each token goes to the `topk` experts with the largest logits; their gated units are summed with weights.

    Args:
        dim: features of tokens.
        inner: features of an expert's unit.
        experts: number of experts.
        topk: experts per token.
        shared: features of the unit of an expert for all tokens; 0: none.
        unit: ``silu``, ``gelu``, ``relu`` or ``swiglu_oai``.
        gates: applied to the selected logits, ``softmax`` or ``sigmoid``; sigmoids are divided by their sum.
        bias: whether experts have biases.
        options: options of ``fused_moe``: alpha, limit, interleaved.
    """

    def __init__(
        self,
        dim: int,
        inner: int,
        experts: int,
        topk: int,
        *,
        shared: int = 0,
        unit: str = "silu",
        gates: str = "softmax",
        bias: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.topk, self.gates, self.options = topk, gates, {"unit": unit, **options}
        self.router = nn.Linear(dim, experts, bias=False)

        def of(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * shape[-1] ** -0.5)

        self.w1, self.w2 = of(experts, 2 * inner, dim), of(experts, dim, inner)
        self.bias1 = nn.Parameter(torch.zeros(experts, 2 * inner)) if bias else None
        self.bias2 = nn.Parameter(torch.zeros(experts, dim)) if bias else None
        self.shared1 = of(2 * shared, dim) if shared else None
        self.shared2 = of(dim, shared) if shared else None

    def forward(self, x: Tensor) -> Tensor:
        """Maps x [..., dim] to a result of the same shape."""
        rows = x.flatten(0, -2)
        weights, experts = functions["topk"](
            self.router(rows).float(), count=self.topk, gates=self.gates, normalized=self.gates == "sigmoid"
        )
        out: Tensor = functions["fused_moe"](
            rows, experts, weights, self.w1, self.w2, bias1=self.bias1, bias2=self.bias2, **self.options
        )
        if self.shared1 is not None:
            out = out + functions["gated_mlp"](rows, self.shared1, self.shared2, **self.options)
        return out.view_as(x)
