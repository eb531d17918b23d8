"""Functions with the signatures of other libraries."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from ._common import as_numbers
from ._functions import functions

Pair = Tuple[Tensor, Tensor]


def block_sparse_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_block_size: int,
    k_block_size: int,
    topk_indices: Optional[Tensor] = None,
    **options: Any,
) -> Pair:
    """``tegula.torch.block_sparse_attention`` with the signature of MagiAttention's function of this name.

    Args:
        q: [queries, heads, d], or as ``tegula.torch.block_sparse_attention`` takes it.
        k, v: then [keys, kv_heads, d].
        q_block_size, k_block_size: queries and keys per block.
        topk_indices: the indices of ``block_sparse_attention``; without their first extent for tensors without a batch.
        options: all other options of ``block_sparse_attention``; counts and mask also without their first extent.

    Returns:
        (out, lse) as there; for tensors without a batch, out has the shape of q, and lse is [queries, heads].

    Raises:
        TypeError, ValueError, RuntimeError: as ``block_sparse_attention``.
    """
    attend = functions["block_sparse_attention"]
    options = {**options, "indices": topk_indices, "q_block_size": q_block_size, "k_block_size": k_block_size}
    packed = options.get("cu_seqlens_q") is not None or options.get("cu_seqlens_k") is not None
    if packed or not isinstance(q, Tensor) or q.dim() != 3:
        out, lse = attend(q, k, v, **options)
        return out, lse
    if options.get("layout", "bshd") != "bshd":
        raise ValueError(
            f"layout: tensors without a batch are [tokens, heads, d], given '{options['layout']}'; leave it out"
        )
    for name in ("indices", "counts", "mask"):
        if options.get(name) is not None:
            options[name] = options[name].unsqueeze(0)
    out, lse = attend(*(x.unsqueeze(0) for x in (q, k, v)), **options)
    return out[0], lse[0].transpose(0, 1)


def _expect_of_entries(indices: Tensor, fmask: Tensor, sel_scale: Optional[Tensor]) -> None:
    if fmask.shape != indices.shape or fmask.dtype != torch.bool:
        raise ValueError(
            f"fmask: expected bool {list(indices.shape)}, as selected_block_indices, "
            f"given {fmask.dtype} {list(fmask.shape)}"
        )
    if sel_scale is not None and sel_scale.shape != indices.shape:
        raise ValueError(
            f"sel_scale: expected {list(indices.shape)}, as selected_block_indices, "
            f"given {list(sel_scale.shape)}"
        )


def native_sparse_attend(
    fq: Tensor,
    fk: Tensor,
    fv: Tensor,
    block_size: int,
    selected_block_indices: Tensor,
    fmask: Tensor,
    sel_scale: Optional[Tensor] = None,
    include_block_causal: bool = True,
    return_lse: bool = False,
    block_dk_dv_use_dot: Optional[bool] = None,
    return_sliding_window_out: bool = False,
    *,
    distinct_earlier_blocks: bool = False,
) -> Union[Tensor, Pair, Tuple[Pair, Pair]]:
    """The fine selection of native sparse attention, with the signature of the package native-sparse-attention-pytorch.

    A query sees the keys of its own block up to itself, and in addition all keys of every selected block, even if it is
    after the query, and once more for each time that it is listed; this includes its own block.

    Args:
        fq: [batch, heads, tokens, d]; float32, float16 or bfloat16.
        fk, fv: [batch, kv_heads, tokens, d].
        block_size: keys per block.
        selected_block_indices: int32 or int64 [batch, heads or kv_heads, tokens, entries].
        fmask: bool, in the shape of the indices: the entries that are used.
        sel_scale: float, in the shape of the indices: factors of 1 on the scores of the selected blocks (straight
            through), whose gradient trains the selector.
        include_block_causal: a query also sees its own block up to itself. Otherwise it sees only the selected blocks.
        return_lse: also return the natural logarithms of the sums of exp(score), float32 [batch, heads, tokens].
        block_dk_dv_use_dot: accepted for the signature; the plan chooses how products are formed.
        return_sliding_window_out: also return attention over the keys from ``block_size`` before a query to itself.
        distinct_earlier_blocks: a promise that the used entries of a query are distinct and are blocks before its own,
            as selected by the package's models; then one pass is enough, instead of two whose results are merged. If
            the promise is broken, duplicates count once and later keys are ignored.

    Returns:
        out; ``(out, window_out)`` with the window; ``(out, lse)`` or ``((out, window_out), (lse, window_lse))``
        with return_lse.

    Raises:
        TypeError, ValueError, RuntimeError: as ``tegula.attention``.
    """
    _expect_of_entries(selected_block_indices, fmask, sel_scale)
    choice = torch.where(fmask, as_numbers(selected_block_indices), -1)
    at_once = include_block_causal and distinct_earlier_blocks
    attend = functions["nsa_selected_attention"]
    results = attend(
        fq, fk, fv, choice, sel_scale=sel_scale, block_size=block_size, layout="bhsd", causal=at_once,
        diagonal=at_once, repeats=not distinct_earlier_blocks,
        window=block_size + 1 if return_sliding_window_out else 0,
    )  # fmt: skip
    out, lse = results[:2]
    if include_block_causal and not at_once:
        own = attend(
            fq, fk, fv, choice[..., :0], block_size=block_size, layout="bhsd", causal=True, diagonal=True
        )[:2]
        out, lse = _merged((out, lse), own)
    if not return_sliding_window_out:
        return (out, lse) if return_lse else out
    outs, lses = (out, results[2]), (lse, results[3])
    return (outs, lses) if return_lse else outs


def _merged(one: Pair, other: Pair) -> Pair:
    """Attention over the keys of both; a row without keys has output 0 and lse -inf."""
    top = torch.maximum(one[1], other[1]).detach()
    top = torch.where(top == -torch.inf, 0, top)
    weights = [torch.exp(lse - top) for _, lse in (one, other)]
    total = weights[0] + weights[1]
    # No division by 0, whose gradient would not be finite.
    safe = torch.where(total > 0, total, 1)
    sums = sum(out.float() * (weight / safe).unsqueeze(-1) for (out, _), weight in zip((one, other), weights))
    return sums.to(one[0].dtype), torch.where(total > 0, top + torch.log(safe), -torch.inf)
