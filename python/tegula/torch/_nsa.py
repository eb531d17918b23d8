"""Attention over selected blocks, with gradients."""

from __future__ import annotations

from typing import NoReturn, Optional, Tuple

import torch
from torch import Tensor

from .. import _tegula
from .._keywords import refuse_keywords
from ._block_sparse import as_block_numbers
from ._common import any_autocast, autocast, lse_rows, new_gradients, new_outputs, rows
from ._operator import Operator


_optional = "Tensor? block_counts, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
_options = (
    "SymInt block_size, str layout, bool causal, bool diagonal, bool repeats, SymInt window, float? scale, "
    "SymInt max_seqlen_q, SymInt max_seqlen_k"
)


def _run_at_once(q, k, v, block_indices, sel_scale, *others):
    """The results that there are: two, or four with a window."""
    return _tegula.nsa_selected_attention(q, k, v, block_indices, *others)


def _run(q, *others):
    results = _run_at_once(q, *others)
    return results if len(results) == 4 else (*results, *_no_window(q))


def _no_window(q: Tensor) -> Tuple[Tensor, Tensor]:
    return q.new_empty(0), q.new_empty(0, dtype=torch.float32)


def _fake(q, k, v, block_indices, sel_scale, block_counts, cu_seqlens_q, cu_seqlens_k, *options):
    _, layout, _, _, _, window, *_ = options
    return (*new_outputs(q, v, layout), *(new_outputs(q, v, layout) if window > 0 else _no_window(q)))


def _run_backward(dout, dlse, window_dout, window_dlse, q, k, v, out, lse, window_out, window_lse, *others):
    """The gradients that there are: None for that of a scale that is not wanted."""
    return _tegula.nsa_selected_attention_backward(
        dout, q, k, v, out, lse, dlse, window_dout, window_out, window_lse, window_dlse, *others
    )


def _run_whole_backward(dout, dlse, window_dout, window_dlse, q, *others):
    *gradients, dscale = _run_backward(dout, dlse, window_dout, window_dlse, q, *others)
    return (*gradients, q.new_empty(0, dtype=torch.float32) if dscale is None else dscale)


def _new_dscale(q: Tensor, block_indices: Tensor, wanted: bool) -> Tensor:
    return q.new_empty(block_indices.shape if wanted else 0, dtype=torch.float32)


def _fake_backward(dout, dlse, window_dout, window_dlse, q, k, v, out, lse, window_out, window_lse, block_indices,
                   *others):  # fmt: skip
    return (*new_gradients(q, k, v), _new_dscale(q, block_indices, others[-1]))


_selected_backward = Operator(
    "nsa_selected_attention_backward",
    "(Tensor dout, Tensor? dlse, Tensor? window_dout, Tensor? window_dlse, Tensor q, Tensor k, Tensor v, Tensor out, "
    f"Tensor lse, Tensor? window_out, Tensor? window_lse, Tensor block_indices, {_optional}, {_options}, "
    "bool scale_gradient) -> (Tensor, Tensor, Tensor, Tensor)",
    _run_whole_backward,
    _fake_backward,
    at_once=_run_backward,
    unbatched=(13, 14),
)


def _backward(ctx, tensors, results, dout, dlse, window_dout=None, window_dlse=None):
    (q, k, v, block_indices, sel_scale, *choice), (out, lse, *window) = tensors, results
    if window_dout is None and window_dlse is None:
        window_dout = window_out = window_lse = None
    else:
        window_out, window_lse = window
        window_dout = rows(window_dout, window_out)
    scale_gradient = sel_scale is not None and ctx.needs_input_grad[4]
    dq, dk, dv, dscale = _selected_backward(
        (rows(dout, out), lse_rows(dlse), window_dout, lse_rows(window_dlse), q, k, v, out, lse, window_out,
         window_lse, block_indices, *choice), *ctx.options[:-1], scale_gradient,
    )  # fmt: skip
    return dq, dk, dv, None, dscale.to(sel_scale.dtype) if scale_gradient else None, None, None, None


_selected = Operator(
    "nsa_selected_attention",
    f"(Tensor q, Tensor k, Tensor v, Tensor block_indices, Tensor? sel_scale, {_optional}, {_options}, "
    "bool check_indices) -> (Tensor, Tensor, Tensor, Tensor)",
    _run,
    _fake,
    _backward,
    at_once=_run_at_once,
    unbatched=(6, 7),
)


def _check_scale(sel_scale: Optional[Tensor], block_indices: Tensor) -> None:
    """The library never sees it."""
    if sel_scale is None or not (isinstance(sel_scale, Tensor) and isinstance(block_indices, Tensor)):
        return
    if sel_scale.shape != block_indices.shape or not sel_scale.is_floating_point():
        raise ValueError(
            f"sel_scale: expected floats {list(block_indices.shape)}, as block_indices, given {sel_scale.dtype} "
            f"{list(sel_scale.shape)}"
        )


def nsa_selected_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_indices: Tensor,
    *,
    sel_scale: Optional[Tensor] = None,
    block_counts: Optional[Tensor] = None,
    block_size: int = 64,
    layout: str = "bshd",
    causal: bool = True,
    diagonal: bool = False,
    repeats: bool = False,
    window: int = 0,
    scale: Optional[float] = None,
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    check_indices: bool = False,
    **others: NoReturn,
) -> Tuple[Tensor, ...]:
    """``tegula.nsa_selected_attention`` with gradients of q, k and v, through all results.

    Arguments, results, errors and source are those of ``tegula.nsa_selected_attention``. Indices may also be int64.
    sel_scale, a float tensor as block_indices, stands for factors of the scores that are 1: it changes no result,
    and its gradient tells the selector which entries mattered. Under autocast q, k and v are taken in its dtype.
    """
    if others:
        refuse_keywords("tegula.torch.nsa_selected_attention", others)
    if any_autocast():
        q, k, v = autocast(q, k, v)
    block_indices = as_block_numbers(block_indices)
    _check_scale(sel_scale, block_indices)
    results = _selected(
        (q, k, v, block_indices, sel_scale, block_counts, cu_seqlens_q, cu_seqlens_k), block_size, layout, causal,
        diagonal, repeats, window, scale, max_seqlen_q, max_seqlen_k, check_indices,
    )  # fmt: skip
    return results if window > 0 else results[:2]
