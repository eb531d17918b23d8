"""Layers whose work is linear in the number of tokens: linear attention, retention, Mamba-2 and gated delta
networks."""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._functions import functions
from ._rotary import positions_of, rotated


class RecurrentCache:
    """The state of a recurrent layer: one state per head, and the last tokens of a convolution.

    Its size is fixed. A layer fills it, and a later call with it continues from there.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.state: Optional[Tensor] = None
        self.conv: Optional[Tensor] = None


def retention_decays(heads: int) -> Tensor:
    """Logarithms of the decays of retention (Sun et al., 2023): log(1 - 2^(-5 - h)) for head h."""
    return torch.log1p(-(2.0 ** (-5 - torch.arange(heads, dtype=torch.float64)))).float()


def lightning_decays(heads: int, layer: int, layers: int) -> Tensor:
    """Logarithms of the decays of lightning attention (Qin et al., 2024): later layers, counted from 0, decay more
    slowly."""
    if not 0 <= layer < layers:
        raise ValueError(f"layer: expected 0 to {layers - 1}, given {layer}")
    return -8.0 / heads * (1 - layer / layers) * torch.arange(1, heads + 1, dtype=torch.float32)


class _Recurrent(nn.Module):
    """Common code of the layers: calls with a cache, and the gated norm of a head's results."""

    def _scan(self, operator: str, *tensors: Tensor, cache: Optional[RecurrentCache], **options: Any) -> Tensor:
        if cache is None:
            out, _ = functions[operator](*tensors, **options)
            return out
        out, cache.state = functions[operator](
            *tensors, initial_state=cache.state, output_final_state=True, **options
        )
        return out

    def _convolve(
        self, x: Tensor, conv: _ShortConvolution, cache: Optional[RecurrentCache], cu_seqlens: Optional[Tensor]
    ) -> Tensor:
        options = {"bias": conv.bias, "silu": True, "cu_seqlens": cu_seqlens}
        if cache is None:
            return functions["causal_conv1d"](x, conv.weight, **options)[0]
        out, cache.conv = functions["causal_conv1d"](
            x, conv.weight, initial_state=cache.conv, output_final_state=True, **options
        )
        return out


class _ShortConvolution(nn.Module):
    def __init__(self, width: int, tokens: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, tokens).uniform_(-(tokens**-0.5), tokens**-0.5))
        self.bias = nn.Parameter(torch.zeros(width))


class _GatedNorm(nn.Module):
    """RMS normalisation of rows, times a learned factor per feature and the silu of a gate."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return functions["rms_norm"](x, weight=self.weight, eps=1e-5) * F.silu(gate)


def _steps_of(heads: int, least: float = 1e-3, most: float = 0.1) -> Tensor:
    """Biases for which softplus gives step sizes between the two, spaced evenly on a logarithmic scale."""
    steps = torch.exp(torch.rand(heads) * (math.log(most) - math.log(least)) + math.log(least))
    return steps + torch.log(-torch.expm1(-steps))


def _advance(cache: Optional[RecurrentCache], x: Tensor) -> None:
    if cache is not None:
        cache.tokens += x.shape[-2]


class LinearAttention(_Recurrent):
    """A layer of linear attention (Katharopoulos et al., 2020): attention weights are products of elu(q) + 1 and elu(k)
    + 1.

    Args:
        width: features of x and the result.
        heads, kv_heads: heads of queries and values; heads of keys, default: as many.
        dim, value_dim: features of a head's keys and values; default: width / heads.
        normalize: divide results by the sums of their weights.
        decays: logarithms of the decays of heads, such as ``lightning_decays``; not learned; default: no decay.

    ``layer(x)`` takes x [batch, tokens, width], or packed [tokens, width] with ``cu_seqlens``. With a ``RecurrentCache``
    the tokens continue those of earlier calls, and the results are those of the whole sequence. The cache is for
    inference, under ``torch.no_grad()``. This holds for all recurrent layers.
    """

    decays: Optional[Tensor]

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: Optional[int] = None,
        *,
        dim: Optional[int] = None,
        value_dim: Optional[int] = None,
        normalize: bool = True,
        decays: Optional[Tensor] = None,
    ) -> None:
        super().__init__()
        self.dim, self.value_dim = dim or width // heads, value_dim or width // heads
        self.shapes = [(kv_heads or heads) * self.dim] * 2 + [heads * self.value_dim]
        self.normalize = normalize
        self.register_buffer("decays", decays)
        self.project = nn.Linear(width, sum(self.shapes), bias=False)
        self.merge = nn.Linear(heads * self.value_dim, width, bias=False)

    def forward(
        self, x: Tensor, cache: Optional[RecurrentCache] = None, cu_seqlens: Optional[Tensor] = None
    ) -> Tensor:
        q, k, v = self.project(x).split(self.shapes, -1)
        q, k = (F.elu(rows.unflatten(-1, (-1, self.dim))) + 1 for rows in (q, k))
        out = self._scan(
            "linear_attention", q, k, v.unflatten(-1, (-1, self.value_dim)), cache=cache,
            g_gamma=None if self.decays is None else self.decays.float(), normalize=self.normalize, cu_seqlens=cu_seqlens,
        )  # fmt: skip
        _advance(cache, x)
        return self.merge(out.flatten(-2))


class Retention(_Recurrent):
    """A layer of multi-scale retention (Sun et al., 2023): every head decays at its own rate.

    Args:
        width: features of x and the result.
        heads: number of heads of queries, keys and values.
        dim, value_dim: features of a head's keys (even) and values; default: width / heads, and twice that.
        rotary_base: base of the rotary positions; None: no positions.
        decays: logarithms of the decays of heads; default: ``retention_decays``.
    """

    decays: Tensor

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        dim: Optional[int] = None,
        value_dim: Optional[int] = None,
        rotary_base: Optional[float] = 10000.0,
        decays: Optional[Tensor] = None,
    ) -> None:
        super().__init__()
        self.dim, self.value_dim = dim or width // heads, value_dim or 2 * width // heads
        if rotary_base is not None and self.dim % 2:
            raise ValueError(f"dim: expected an even number for rotary positions, given {self.dim}")
        self.rotary_base = rotary_base
        self.shapes = [heads * self.dim] * 2 + [heads * self.value_dim] * 2
        self.register_buffer("decays", retention_decays(heads) if decays is None else decays)
        self.project = nn.Linear(width, sum(self.shapes), bias=False)
        self.norm = _GatedNorm(self.value_dim)
        self.merge = nn.Linear(heads * self.value_dim, width, bias=False)

    def forward(
        self, x: Tensor, cache: Optional[RecurrentCache] = None, cu_seqlens: Optional[Tensor] = None
    ) -> Tensor:
        q, k, v, gate = self.project(x).split(self.shapes, -1)
        q, k = (rows.unflatten(-1, (-1, self.dim)) for rows in (q, k))
        if self.rotary_base is not None:
            positions = positions_of(x, cu_seqlens, cache.tokens if cache else 0)
            q, k = rotated(positions, self.rotary_base, q, k)
        v, gate = (rows.unflatten(-1, (-1, self.value_dim)) for rows in (v, gate))
        decays = self.decays.float()
        out = self._scan("linear_attention", q, k, v, cache=cache, g_gamma=decays, cu_seqlens=cu_seqlens)
        _advance(cache, x)
        return self.merge(self.norm(out, gate).flatten(-2))


class Mamba2(_Recurrent):
    """A layer of Mamba-2 (Dao and Gu, 2024): a short convolution, a state space scan, and a gate.

    Args:
        width: features of x and the result.
        expand: width of the scan divided by the width of x.
        head_dim: features of a head of the scan, a divisor of the scan's width.
        state: state size per feature of a head.
        groups: groups of heads that share B and C, which write and read the states.
        conv: width of the convolution in tokens, 2 to 8.
    """

    def __init__(
        self, width: int, *, expand: int = 2, head_dim: int = 64, state: int = 128, groups: int = 1, conv: int = 4
    ) -> None:
        super().__init__()
        inner = expand * width
        if inner % head_dim:
            raise ValueError(f"head_dim: expected a divisor of expand * width = {inner}, given {head_dim}")
        heads = inner // head_dim
        if heads % groups:
            raise ValueError(f"groups: expected a divisor of the {heads} heads, given {groups}")
        self.head_dim, self.state = head_dim, state
        self.inside = [inner, groups * state, groups * state]
        self.shapes = [inner, sum(self.inside), heads]
        self.project = nn.Linear(width, sum(self.shapes), bias=False)
        self.conv = _ShortConvolution(sum(self.inside), conv)
        self.rates = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        self.shares = nn.Parameter(torch.ones(heads))
        self.steps = nn.Parameter(_steps_of(heads))
        self.norm = _GatedNorm(inner)
        self.merge = nn.Linear(inner, width, bias=False)

    def forward(
        self, x: Tensor, cache: Optional[RecurrentCache] = None, cu_seqlens: Optional[Tensor] = None
    ) -> Tensor:
        gate, inside, dt = self.project(x).split(self.shapes, -1)
        values, b, c = self._convolve(inside.contiguous(), self.conv, cache, cu_seqlens).split(self.inside, -1)
        b, c = (rows.unflatten(-1, (-1, self.state)) for rows in (b, c))
        out = self._scan(
            "ssd", values.unflatten(-1, (-1, self.head_dim)), dt, -torch.exp(self.rates.float()), b, c, cache=cache,
            D=self.shares.float(), dt_bias=self.steps.float(), dt_softplus=True, cu_seqlens=cu_seqlens,
        )  # fmt: skip
        _advance(cache, x)
        return self.merge(self.norm(out.flatten(-2), gate))


class GatedDeltaNet(_Recurrent):
    """A layer of a gated delta network (Yang et al., 2024): states decay, and the value stored under a key is replaced.

    Args:
        width: features of x and the result.
        heads, value_heads: heads of queries and keys; heads of values, a multiple, default: as many.
        dim, value_dim: features of a head's keys and values; default: width / heads.
        conv: width in tokens of the short convolution of queries, keys and values, 2 to 8.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        value_heads: Optional[int] = None,
        *,
        dim: Optional[int] = None,
        value_dim: Optional[int] = None,
        conv: int = 4,
    ) -> None:
        super().__init__()
        value_heads = value_heads or heads
        if value_heads % heads:
            raise ValueError(f"value_heads: expected a multiple of heads = {heads}, given {value_heads}")
        self.dim, self.value_dim = dim or width // heads, value_dim or width // heads
        values = value_heads * self.value_dim
        self.inside = [heads * self.dim, heads * self.dim, values]
        self.shapes = [sum(self.inside), values, value_heads, value_heads]
        self.project = nn.Linear(width, sum(self.shapes), bias=False)
        self.conv = _ShortConvolution(sum(self.inside), conv)
        self.rates = nn.Parameter(torch.empty(value_heads).uniform_(1, 16).log())
        self.steps = nn.Parameter(_steps_of(value_heads))
        self.norm = _GatedNorm(self.value_dim)
        self.merge = nn.Linear(values, width, bias=False)

    def forward(
        self, x: Tensor, cache: Optional[RecurrentCache] = None, cu_seqlens: Optional[Tensor] = None
    ) -> Tensor:
        inside, gate, beta, steps = self.project(x).split(self.shapes, -1)
        q, k, v = self._convolve(inside.contiguous(), self.conv, cache, cu_seqlens).split(self.inside, -1)
        q, k = (rows.unflatten(-1, (-1, self.dim)) for rows in (q, k))
        v, gate = (rows.unflatten(-1, (-1, self.value_dim)) for rows in (v, gate))
        decays = -torch.exp(self.rates.float()) * F.softplus(steps.float() + self.steps)
        out = self._scan(
            "gated_delta_rule", q, k, v, beta.sigmoid(), cache=cache, g=decays, qk_l2norm=True, cu_seqlens=cu_seqlens
        )
        _advance(cache, x)
        return self.merge(self.norm(out, gate).flatten(-2))
