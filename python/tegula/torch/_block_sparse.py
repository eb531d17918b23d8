"""Block-sparse attention with gradients."""

from __future__ import annotations

from typing import Any, NoReturn, Optional, Tuple

import torch
from torch import Tensor

from .. import _tegula
from .._keywords import refuse_keywords
from ._common import any_autocast, autocast, lse_rows, new_gradients, new_outputs, rows
from ._operator import Operator


_choice = "Tensor? topk_indices, Tensor? counts, Tensor? mask, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
_options = (
    "SymInt q_block_size, SymInt k_block_size, str layout, bool causal, float? scale, float softcap, "
    "SymInt max_seqlen_q, SymInt max_seqlen_k"
)


def _fake(q, k, v, topk_indices, counts, mask, cu_seqlens_q, cu_seqlens_k, q_block_size, k_block_size, layout,
          *options):  # fmt: skip
    return new_outputs(q, v, layout)


def _run_backward(dout, dlse, q, k, v, out, lse, *others):
    return _tegula.block_sparse_attn_backward(dout, q, k, v, out, lse, dlse, *others)


def _fake_backward(dout, dlse, q, k, v, *others):
    return new_gradients(q, k, v)


_block_sparse_backward = Operator(
    "block_sparse_attn_backward",
    "(Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    f"{_choice}, {_options}, bool deterministic) -> (Tensor, Tensor, Tensor)",
    _run_backward,
    _fake_backward,
    unbatched=(10, 11),
)


def _backward(ctx, tensors, results, dout, dlse):
    (q, k, v, *choice), (out, lse) = tensors, results
    *options, _, deterministic = ctx.options
    gradients = _block_sparse_backward(
        (rows(dout, out), lse_rows(dlse), q, k, v, out, lse, *choice), *options, deterministic
    )
    return (*gradients, *(None for _ in choice))


_block_sparse = Operator(
    "block_sparse_attn",
    f"(Tensor q, Tensor k, Tensor v, {_choice}, {_options}, bool check_indices, bool deterministic) "
    "-> (Tensor, Tensor)",
    _tegula.block_sparse_attn,
    _fake,
    _backward,
    of_backward=1,
    unbatched=(6, 7),
)


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
    cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    deterministic: bool = True,
    check_indices: bool = False,
    **others: NoReturn,
) -> Tuple[Tensor, Tensor]:
    """``tegula.block_sparse_attn`` with gradients of q, k and v, through out and through lse.

    Arguments, results and errors are those of ``tegula.block_sparse_attn``; indices may also be int64, as torch.topk
    gives them. ``deterministic`` is that of ``tegula.block_sparse_attn_backward``. Under autocast q, k and v are taken
    in its dtype.

    Tensors without a batch and without cu_seqlens are taken as MagiAttention's function of this name takes them: q
    [queries, heads, d], k and v [keys, kv_heads, d], topk_indices, counts and mask without their first extent; out is
    as q, and lse is [queries, heads] there.
    """
    if others:
        refuse_keywords("tegula.torch.block_sparse_attn", others)
    packed = cu_seqlens_q is not None or cu_seqlens_k is not None or max_seqlen_q != 0 or max_seqlen_k != 0
    if packed or not isinstance(q, Tensor) or q.dim() != 3:
        if any_autocast():
            q, k, v = autocast(q, k, v)
        return _block_sparse(
            (q, k, v, as_block_numbers(topk_indices), counts, mask, cu_seqlens_q, cu_seqlens_k), q_block_size,
            k_block_size, layout, causal, scale, softcap, max_seqlen_q, max_seqlen_k, check_indices, deterministic,
        )  # fmt: skip
    if layout != "bshd":
        raise ValueError(f"layout: tensors without a batch are [tokens, heads, d], given '{layout}'; leave it out")
    q, k, v = (x.unsqueeze(0) for x in (q, k, v))
    topk_indices, counts, mask = (None if x is None else x.unsqueeze(0) for x in (topk_indices, counts, mask))
    out, lse = block_sparse_attn(
        q, k, v, q_block_size, k_block_size, topk_indices, counts=counts, mask=mask, layout=layout, causal=causal,
        scale=scale, softcap=softcap, deterministic=deterministic, check_indices=check_indices,
    )  # fmt: skip
    return out[0], lse[0].transpose(0, 1)


def as_block_numbers(indices: Any) -> Any:
    """int64 block numbers as int32; what does not fit is no block and stays none."""
    if not isinstance(indices, Tensor) or indices.dtype != torch.int64:
        return indices
    return indices.clamp(-1, 2**31 - 1).to(torch.int32)
