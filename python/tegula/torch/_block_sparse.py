"""Block-sparse attention with gradients."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
from torch import Tensor

from .. import _gradients, _operators
from ._common import autocast, detached, lse_rows, new_gradients, new_outputs, rows
from ._operator import Operator


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    topk_indices: Optional[Tensor],
    counts: Optional[Tensor],
    mask: Optional[Tensor],
    q_block_size: int,
    k_block_size: int,
    layout: str,
    causal: bool,
    scale: Optional[float],
    softcap: float,
    deterministic: bool,
) -> Tuple[Tensor, Tensor]:
    return _operators.block_sparse_attn(
        *detached(q, k, v), q_block_size, k_block_size, topk_indices, counts=counts, mask=mask,
        layout=layout, causal=causal, scale=scale, softcap=softcap,
    )  # fmt: skip


def _fake(q, k, v, topk_indices, counts, mask, q_block_size, k_block_size, layout, causal, scale, softcap, deterministic):
    return new_outputs(q, v, layout)


def _run_backward(
    dout: Tensor,
    dlse: Optional[Tensor],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    topk_indices: Optional[Tensor],
    counts: Optional[Tensor],
    mask: Optional[Tensor],
    q_block_size: int,
    k_block_size: int,
    layout: str,
    causal: bool,
    scale: Optional[float],
    softcap: float,
    deterministic: bool,
) -> Tuple[Tensor, Tensor, Tensor]:
    return _gradients.block_sparse_attn_backward(
        *detached(dout, q, k, v, out, lse), q_block_size, k_block_size, topk_indices, dlse=dlse, counts=counts, mask=mask,
        layout=layout, causal=causal, scale=scale, softcap=softcap, deterministic=deterministic,
    )  # fmt: skip


def _fake_backward(dout, dlse, q, k, v, out, lse, topk_indices, counts, mask, q_block_size, k_block_size, *options):
    return new_gradients(q, k, v)


_block_sparse_backward = Operator("block_sparse_attn_backward", _run_backward, _fake_backward)


def _setup(ctx, inputs, output):
    q, k, v, topk_indices, counts, mask, *ctx.options = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(q, k, v, *output, topk_indices, counts, mask)


def _backward(ctx, dout, dlse):
    q, k, v, out, lse, *choice = ctx.saved_tensors
    gradients = _block_sparse_backward(rows(dout, out), lse_rows(dlse), q, k, v, out, lse, *choice, *ctx.options)
    return tuple(gradients) + (None,) * 10


_block_sparse = Operator("block_sparse_attn", _run, _fake, _setup, _backward)


def block_sparse_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_block_size: int,
    k_block_size: int,
    topk_indices: Optional[Tensor] = None,
    *,
    counts: Optional[Tensor] = None,
    mask: Optional[Tensor] = None,
    layout: str = "bshd",
    causal: bool = False,
    scale: Optional[float] = None,
    softcap: float = 0.0,
    deterministic: bool = True,
) -> Tuple[Tensor, Tensor]:
    """``tegula.block_sparse_attn`` with gradients of q, k and v, through out and through lse.

    Arguments, results and errors are those of ``tegula.block_sparse_attn``; the positional ones are those of
    MagiAttention's function of this name. Indices may also be int64, as torch.topk gives them.
    ``deterministic`` is that of ``tegula.block_sparse_attn_backward``. Under autocast q, k
    and v are taken in its dtype.
    """
    q, k, v = autocast(q, k, v)
    if topk_indices is not None:
        topk_indices = as_block_numbers(topk_indices)
    return _block_sparse(
        q, k, v, topk_indices, counts, mask, q_block_size, k_block_size, layout, causal, scale, softcap,
        deterministic,
    )


def as_block_numbers(indices: Tensor) -> Tensor:
    """int64 block numbers as int32; what does not fit is no block and stays none."""
    if indices.dtype != torch.int64:
        return indices
    return indices.clamp(-1, 2**31 - 1).to(torch.int32)
