"""A linear layer with weights -1, 0 and 1 (BitNet b1.58), for inference."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor, nn

from ._functions import functions


def ternary_weights(numbers: Tensor) -> Tensor:
    """Packs -1, 0 and 1, [n, k] with k a multiple of 4, into the ternary weights of `quantised_gemm`, uint8 [n, k /
    4]."""
    if numbers.shape[-1] % 4 != 0:
        raise ValueError(
            f"ternary_weights, argument 'numbers': expected [n, k] with k a multiple of 4, given {tuple(numbers.shape)}; "
            "add columns of zeros"
        )
    if not bool(((numbers == 0) | (numbers.abs() == 1)).all()):
        raise ValueError(
            "ternary_weights, argument 'numbers': expected -1, 0 and 1, given others; round the weights first"
        )
    codes = (numbers.to(torch.int32) + 1).unflatten(-1, (-1, 4))
    shifts = torch.arange(0, 8, 2, device=numbers.device, dtype=torch.int32)
    return (codes << shifts).sum(-1).to(torch.uint8)


class BitLinear(nn.Module):
    """x · Wᵀ + bias, where W is a scale times -1, 0 and 1, and rows of x are rounded to 8 bits.

    Args:
        in_features: a multiple of 4.
        out_features: rows of W.
        bias: whether there is one.
        rounds: whether rows of x are divided by their largest magnitude over 127 and rounded to integers, as in training.
        dtype: of the bias, and of x where it is multiplied without being rounded.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        *,
        rounds: bool = True,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        super().__init__()
        if in_features % 4 != 0:
            raise ValueError(f"BitLinear: expected in_features that are a multiple of 4, given {in_features}; add zeros")
        self.rounds, self.dtype = rounds, dtype
        self.register_buffer("weight", torch.zeros(out_features, in_features // 4, dtype=torch.uint8))
        self.register_buffer("weight_scale", torch.ones(1, out_features))
        self.register_buffer("bias", torch.zeros(out_features, dtype=dtype) if bias else None)

    @classmethod
    def from_weight(cls, weight: Tensor, bias: Optional[Tensor] = None, **options: bool) -> "BitLinear":
        """From a dense matrix [out, in]: it is divided by its mean magnitude, the scale, and rounded to -1, 0 and 1."""
        dtype = weight.dtype if weight.dtype == torch.float16 else torch.bfloat16
        layer = cls(weight.shape[1], weight.shape[0], bias is not None, dtype=dtype, **options).to(weight.device)
        scale = weight.detach().float().abs().mean().clamp(min=1e-5)
        layer.weight.copy_(ternary_weights((weight.detach().float() / scale).round().clamp(-1, 1)))
        layer.weight_scale.fill_(scale)
        if bias is not None:
            layer.bias.copy_(bias.detach())
        return layer

    def forward(self, x: Tensor) -> Tensor:
        rows, step = x.to(self.dtype), None
        if self.rounds:
            step = x.detach().float().abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
            rows, step = (x.float() / step).round().to(torch.int8), step[..., 0]
        return functions["quantised_gemm"](
            rows,
            self.weight,
            self.weight_scale,
            format="ternary",
            group=0,
            row_scale=step,
            bias=self.bias,
            out_dtype=x.dtype,
        )
