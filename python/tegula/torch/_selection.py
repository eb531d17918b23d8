"""The choice of blocks: their scores, with gradients, and the best of a row."""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor

from .. import _tegula
from ._common import any_autocast, autocast
from ._operator import Operator
from ._shapes import is_size, scores_shape


def _fake_scores(q, k, q_block_size, k_block_size, layout, causal, scale, per_kv_head):
    shape = scores_shape(q.shape, k.shape, q_block_size, k_block_size, layout, per_kv_head)
    return None if shape is None else q.new_empty(shape, dtype=torch.float32)


def _lengths(x: Tensor, size: int) -> Tensor:
    """How many rows every block has: the last may be short."""
    starts = torch.arange(0, x.shape[2], size, device=x.device)
    return (x.shape[2] - starts).clamp(max=size).to(torch.float32)


def _block_means(x: Tensor, size: int) -> Tensor:
    """[batch, heads, rows, d] as float32 [batch, heads, blocks, d]."""
    rows = torch.nn.functional.pad(x.float(), (0, 0, 0, -x.shape[2] % size))
    return rows.unflatten(2, (-1, size)).sum(3) / _lengths(x, size)[:, None]


def _spread(means: Tensor, x: Tensor, size: int) -> Tensor:
    """The gradient of rows from that of the means of their blocks, in the dtype of x."""
    return (means / _lengths(x, size)[:, None]).repeat_interleave(size, 2)[:, :, : x.shape[2]].to(x.dtype)


def _backward_scores(ctx, tensors, results, gradient):
    q, k = tensors
    q_block_size, k_block_size, layout, causal, scale, per_kv_head = ctx.options
    if layout == "bshd":
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    group = q.shape[1] // k.shape[1]
    if causal:
        last = torch.arange(1, gradient.shape[2] + 1, device=q.device) * q_block_size - 1
        last = last.clamp(max=q.shape[2] - 1) + k.shape[2] - q.shape[2]
        unseen = torch.arange(gradient.shape[3], device=q.device) * k_block_size > last[:, None]
        gradient = gradient.masked_fill(unseen, 0)
    # One row for a group is that of the mean of its queries; every head of the group has an equal part in it.
    if per_kv_head:
        gradient = gradient.repeat_interleave(group, 1) / group
    gradient = gradient * (q.shape[-1] ** -0.5 if scale is None else scale)
    k_means = _block_means(k, k_block_size).repeat_interleave(group, 1)
    dq = _spread(gradient @ k_means, q, q_block_size)
    of_heads = gradient.transpose(2, 3) @ _block_means(q, q_block_size)
    dk = _spread(of_heads.unflatten(1, (-1, group)).sum(2), k, k_block_size)
    if layout == "bshd":
        dq, dk = dq.transpose(1, 2), dk.transpose(1, 2)
    return dq, dk


_scores = Operator(
    "block_scores",
    "(Tensor q, Tensor k, SymInt q_block_size, SymInt k_block_size, str layout, bool causal, float? scale, "
    "bool per_kv_head) -> Tensor",
    _tegula.block_scores,
    _fake_scores,
    _backward_scores,
    keep_results=False,
)


def block_scores(
    q: Tensor,
    k: Tensor,
    q_block_size: int = 64,
    k_block_size: int = 64,
    *,
    layout: str = "bshd",
    causal: bool = False,
    scale: Optional[float] = None,
    per_kv_head: bool = True,
) -> Tensor:
    """``tegula.block_scores`` with gradients of q and k.

    Arguments, result and errors are those of ``tegula.block_scores``. Under autocast q and k are taken in its dtype;
    the scores stay float32.
    """
    if any_autocast():
        q, k = autocast(q, k)
    return _scores((q, k), q_block_size, k_block_size, layout, causal, scale, per_kv_head)


def _fake_topk(scores, count, *options):
    if scores.dim() != 4 or not is_size(count):
        return None  # the library's to refuse
    return scores.new_empty((*scores.shape[:3], count), dtype=torch.int32)


_topk = Operator(
    "topk_blocks",
    "(Tensor scores, SymInt count, bool keep_first, bool keep_diagonal, SymInt q_block_size, SymInt k_block_size, "
    "SymInt key_offset) -> Tensor",
    _tegula.topk_blocks,
    _fake_topk,
)


def topk_blocks(
    scores: Tensor,
    count: int,
    *,
    keep_first: bool = False,
    keep_diagonal: bool = False,
    q_block_size: int = 64,
    k_block_size: int = 64,
    key_offset: int = 0,
) -> Tensor:
    """``tegula.topk_blocks`` as a custom operator. Block numbers have no gradient; the scores may require one.

    Arguments, result and errors are those of ``tegula.topk_blocks``.
    """
    return _topk((scores.detach(),), count, keep_first, keep_diagonal, q_block_size, k_block_size, key_offset)
