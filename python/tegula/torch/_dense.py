"""Dense attention with gradients."""

from __future__ import annotations

from typing import NoReturn, Optional, Tuple

import torch
from torch import Tensor

from .. import _tegula
from .._keywords import refuse_keywords
from ._common import any_autocast, autocast, lse_rows, new_gradients, new_outputs, rows
from ._operator import Operator


_optional = "Tensor? sinks, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
_options = (
    "str layout, float? scale, bool causal, SymInt left, SymInt right, float softcap, SymInt max_seqlen_q, "
    "SymInt max_seqlen_k, bool deterministic"
)


def _fake(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, layout, *options):
    return new_outputs(q, v, layout)


def _run_backward(dout, dlse, q, k, v, out, lse, *others):
    """The gradients that there are: None for those of sinks that are not given."""
    return _tegula.attention_backward(dout, q, k, v, out, lse, dlse, *others)


def _run_whole_backward(dout, dlse, q, *others):
    *gradients, dsinks = _run_backward(dout, dlse, q, *others)
    return (*gradients, q.new_empty(0, dtype=torch.float32) if dsinks is None else dsinks)


def _fake_backward(dout, dlse, q, k, v, out, lse, sinks, *options):
    dsinks = q.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32)
    return (*new_gradients(q, k, v), dsinks)


_attention_backward = Operator(
    "attention_backward",
    "(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_optional}, {_options}) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_whole_backward,
    _fake_backward,
    at_once=_run_backward,
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
    _tegula.attention,
    _fake,
    _backward,
    of_backward=1,
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
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    deterministic: bool = True,
    **others: NoReturn,
) -> Tuple[Tensor, Tensor]:
    """``tegula.attention`` with gradients of q, k, v and sinks, through out and through lse.

    Arguments, results, errors and source are those of ``tegula.attention``; ``deterministic`` is that of
    ``tegula.attention_backward``. Under autocast q, k and v are taken in its dtype.
    """
    if others:
        refuse_keywords("tegula.torch.attention", others)
    if any_autocast():
        q, k, v = autocast(q, k, v)
    return _attention(
        (q, k, v, sinks, cu_seqlens_q, cu_seqlens_k), layout, scale, causal, left, right, softcap,
        max_seqlen_q, max_seqlen_k, deterministic,
    )  # fmt: skip
