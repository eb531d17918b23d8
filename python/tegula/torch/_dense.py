"""Dense attention with gradients."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from .. import _tegula
from ._common import autocast, detached, lse_rows, new_gradients, new_outputs, rows
from ._operator import Operator


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor],
    layout: str,
    scale: Optional[float],
    causal: bool,
    left: int,
    right: int,
    softcap: float,
    deterministic: bool,
) -> Tuple[Tensor, Tensor]:
    q, k, v, sinks = detached(q, k, v, None if sinks is None else sinks.float())
    out, lse = new_outputs(q, v, layout)
    return _tegula.attention(
        q, k, v, layout, scale, causal, left, right, softcap, sinks, cu_seqlens_q, cu_seqlens_k, out, lse, "automatic"
    )


def _fake(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, layout, scale, causal, left, right, softcap, deterministic):
    return new_outputs(q, v, layout)


def _run_backward(
    dout: Tensor,
    dlse: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    sinks: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor],
    layout: str,
    scale: Optional[float],
    causal: bool,
    left: int,
    right: int,
    softcap: float,
    deterministic: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv = new_gradients(q, k, v)
    dsinks = q.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32)
    sinks = None if sinks is None else sinks.float()
    dout, q, k, v, out, lse, sinks = detached(dout, q, k, v, out, lse, sinks)
    _tegula.attention_backward(
        dout, q, k, v, out, lse, dlse, dq, dk, dv, None if sinks is None else dsinks, layout, scale, causal, left,
        right, softcap, sinks, cu_seqlens_q, cu_seqlens_k, deterministic, "automatic",
    )  # fmt: skip
    return dq, dk, dv, dsinks


def _fake_backward(dout, dlse, q, k, v, out, lse, sinks, *options):
    dsinks = q.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32)
    return (*new_gradients(q, k, v), dsinks)


_attention_backward = Operator("attention_backward", 10, _run_backward, _fake_backward, unbatched=(7, 8, 9))


def _backward(ctx, tensors, results, dout, dlse):
    (q, k, v, sinks, cu_seqlens_q, cu_seqlens_k), (out, lse) = tensors, results
    dq, dk, dv, dsinks = _attention_backward(
        (rows(dout, out), lse_rows(dlse), q, k, v, out, lse, sinks, cu_seqlens_q, cu_seqlens_k), *ctx.options
    )
    return dq, dk, dv, None if sinks is None else dsinks.to(sinks.dtype), None, None


_attention = Operator("attention", 6, _run, _fake, _backward, unbatched=(3, 4, 5))


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    layout: str = "bshd",
    scale: Optional[float] = None,
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    softcap: float = 0.0,
    sinks: Optional[Tensor] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    deterministic: bool = True,
) -> Tuple[Tensor, Tensor]:
    """``tegula.attention`` with gradients of q, k, v and sinks, through out and through lse.

    Arguments, results, errors and source are those of ``tegula.attention``; ``deterministic`` is that of
    ``tegula.attention_backward``. Under autocast q, k and v are taken in
    its dtype.
    """
    q, k, v = autocast(q, k, v)
    return _attention(
        (q, k, v, sinks, cu_seqlens_q, cu_seqlens_k), layout, scale, causal, left, right, softcap, deterministic
    )
