"""Attention over selected blocks, with gradients."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from .. import _gradients, _operators
from ._block_sparse import as_block_numbers
from ._common import autocast, detached, lse_rows, new_gradients, new_outputs, rows
from ._operator import Operator


def _run_at_once(q, k, v, block_indices, sel_scale, block_counts, cu_seqlens_q, cu_seqlens_k, block_size, layout,
                 causal, diagonal, repeats, window, scale, check_indices):  # fmt: skip
    """The results that there are: two, or four with a window."""
    q, k, v = detached(q, k, v)
    return _operators.nsa_selected_attention(
        q, k, v, block_indices, block_counts=block_counts, block_size=block_size, layout=layout,
        causal=causal, diagonal=diagonal, repeats=repeats, window=window, scale=scale, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k, check_indices=check_indices,
    )  # fmt: skip


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    block_indices: Tensor,
    sel_scale: Optional[Tensor],
    block_counts: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor],
    block_size: int,
    layout: str,
    causal: bool,
    diagonal: bool,
    repeats: bool,
    window: int,
    scale: Optional[float],
    check_indices: bool,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    results = _run_at_once(
        q, k, v, block_indices, sel_scale, block_counts, cu_seqlens_q, cu_seqlens_k, block_size, layout, causal,
        diagonal, repeats, window, scale, check_indices,
    )  # fmt: skip
    return results if window > 0 else (*results, *_no_window(q))


def _no_window(q: Tensor) -> Tuple[Tensor, Tensor]:
    return q.new_empty(0), q.new_empty(0, dtype=torch.float32)


def _fake(q, k, v, block_indices, sel_scale, block_counts, cu_seqlens_q, cu_seqlens_k, block_size, layout, causal,
          diagonal, repeats, window, scale, check_indices):  # fmt: skip
    return (*new_outputs(q, v, layout), *(new_outputs(q, v, layout) if window > 0 else _no_window(q)))


def _run_backward(
    dout: Tensor,
    dlse: Optional[Tensor],
    window_dout: Optional[Tensor],
    window_dlse: Optional[Tensor],
    scale_gradient: bool,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    window_out: Tensor,
    window_lse: Tensor,
    block_indices: Tensor,
    block_counts: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor],
    cu_seqlens_k: Optional[Tensor],
    block_size: int,
    layout: str,
    causal: bool,
    diagonal: bool,
    repeats: bool,
    window: int,
    scale: Optional[float],
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    dout, q, k, v, out, lse, window_out, window_lse = detached(dout, q, k, v, out, lse, window_out, window_lse)
    with_window = window_dout is not None
    *gradients, dscale = _gradients.nsa_selected_attention_backward(
        dout, q, k, v, block_indices, out, lse, dlse=dlse, window_dout=window_dout,
        window_out=window_out if with_window else None, window_lse=window_lse if with_window else None,
        window_dlse=window_dlse, scale_gradient=scale_gradient, block_counts=block_counts, block_size=block_size,
        layout=layout, causal=causal, diagonal=diagonal, repeats=repeats, window=window, scale=scale,
        cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
    )  # fmt: skip
    return (*gradients, q.new_empty(0, dtype=torch.float32) if dscale is None else dscale)


def _fake_backward(dout, dlse, window_dout, window_dlse, scale_gradient, q, k, v, out, lse, window_out, window_lse,
                   block_indices, *options):  # fmt: skip
    dscale = q.new_empty(block_indices.shape if scale_gradient else 0, dtype=torch.float32)
    return (*new_gradients(q, k, v), dscale)


_selected_backward = Operator("nsa_selected_attention_backward", _run_backward, _fake_backward)


def _setup(ctx, inputs, output):
    q, k, v, block_indices, sel_scale, block_counts, cu_seqlens_q, cu_seqlens_k, *ctx.options, _ = inputs
    ctx.scale_dtype = None if sel_scale is None else sel_scale.dtype
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output, block_indices, block_counts, cu_seqlens_q, cu_seqlens_k)


def _backward(ctx, dout, dlse, window_dout, window_dlse):
    q, k, v, out, lse, window_out, window_lse, *choice = ctx.saved_tensors
    window = window_dout is not None or window_dlse is not None
    scale_gradient = ctx.scale_dtype is not None and ctx.needs_input_grad[4]
    dq, dk, dv, dscale = _selected_backward(
        rows(dout, out), lse_rows(dlse), rows(window_dout, window_out) if window else None, lse_rows(window_dlse),
        scale_gradient, q, k, v, out, lse, window_out, window_lse, *choice, *ctx.options,
    )  # fmt: skip
    return (dq, dk, dv, None, dscale.to(ctx.scale_dtype) if scale_gradient else None) + (None,) * 11


_selected = Operator("nsa_selected_attention", _run, _fake, _setup, _backward, _run_at_once)


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
    check_indices: bool = False,
) -> Tuple[Tensor, ...]:
    """``tegula.nsa_selected_attention`` with gradients of q, k and v, through all results.

    Arguments, results, errors and source are those of ``tegula.nsa_selected_attention``. Indices may also be int64.
    sel_scale, a float tensor as block_indices, stands for factors of the scores that are 1: it changes no result,
    and its gradient tells the selector which entries mattered. Under autocast q, k and v are taken in its dtype.
    """
    q, k, v = autocast(q, k, v)
    block_indices = as_block_numbers(block_indices)
    results = _selected(
        q, k, v, block_indices, sel_scale, block_counts, cu_seqlens_q, cu_seqlens_k, block_size, layout, causal,
        diagonal, repeats, window, scale, check_indices,
    )  # fmt: skip
    return results if window > 0 else results[:2]
