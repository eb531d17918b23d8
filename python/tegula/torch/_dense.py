"""Dense attention with gradients."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from .. import _calls
from ._common import autocast, detached, lse_rows, new_gradients, new_outputs, rows
from ._operator import Operator


_optional = "Tensor? sinks, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
_options = (
    "str layout, float? scale, bool causal, SymInt left, SymInt right, float softcap, bool deterministic"
)


def _run(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, *options):
    *options, _ = options
    q, k, v, sinks = detached(q, k, v, sinks)
    out, lse = new_outputs(q, v, options[0])
    return _calls.attention(q, k, v, *options, sinks, cu_seqlens_q, cu_seqlens_k, out, lse, "automatic")


def _fake(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, layout, *options):
    return new_outputs(q, v, layout)


def _run_backward(dout, dlse, q, k, v, out, lse, sinks, cu_seqlens_q, cu_seqlens_k, *options):
    *options, deterministic = options
    dq, dk, dv, dsinks = _fake_backward(dout, dlse, q, k, v, out, lse, sinks)
    dout, q, k, v, out, lse, sinks = detached(dout, q, k, v, out, lse, sinks)
    _calls.attention_backward(
        dout, q, k, v, out, lse, dlse, dq, dk, dv, None if sinks is None else dsinks, *options, sinks, cu_seqlens_q,
        cu_seqlens_k, deterministic, "automatic",
    )  # fmt: skip
    return dq, dk, dv, dsinks


def _fake_backward(dout, dlse, q, k, v, out, lse, sinks, *options):
    dsinks = q.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32)
    return (*new_gradients(q, k, v), dsinks)


_attention_backward = Operator(
    "attention_backward",
    "(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_optional}, {_options}) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_backward,
    _fake_backward,
    unbatched=(7, 8, 9),
)


def _backward(ctx, tensors, results, dout, dlse):
    (q, k, v, sinks, cu_seqlens_q, cu_seqlens_k), (out, lse) = tensors, results
    dq, dk, dv, dsinks = _attention_backward(
        (rows(dout, out), lse_rows(dlse), q, k, v, out, lse, sinks, cu_seqlens_q, cu_seqlens_k), *ctx.options
    )
    return dq, dk, dv, None if sinks is None else dsinks.to(sinks.dtype), None, None


_attention = Operator(
    "attention",
    f"(Tensor q, Tensor k, Tensor v, {_optional}, {_options}) -> (Tensor, Tensor)",
    _run,
    _fake,
    _backward,
    unbatched=(3, 4, 5),
)


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
    ``tegula.attention_backward``. Under autocast q, k and v are taken in its dtype.
    """
    q, k, v = autocast(q, k, v)
    return _attention(
        (q, k, v, sinks, cu_seqlens_q, cu_seqlens_k), layout, scale, causal, left, right, softcap, deterministic
    )
