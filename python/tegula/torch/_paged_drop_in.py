"""Attention to pages with the arguments of FlashInfer."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import torch
from torch import Tensor

from ._functions import functions
from ._refusals import expect

Pair = Tuple[Tensor, Tensor]

_log2e = 1.4426950408889634


def _keys_and_values(cache: Union[Tensor, Pair], layout: str) -> Pair:
    """Both as [pages, page size, kv_heads, d]."""
    if layout not in ("NHD", "HND"):
        raise ValueError(f"kv_layout: expected NHD or HND, given '{layout}'")
    one = isinstance(cache, Tensor)
    if (cache.dim() != 5 or cache.shape[1] != 2) if one else len(cache) != 2:
        given = f"one of {list(cache.shape)}" if one else f"{len(cache)} tensors"
        raise ValueError(
            f"paged_kv_cache: expected keys and values, or one tensor [pages, 2, page size, kv_heads, d], given {given}; "
            "give a pair"
        )
    k, v = cache.unbind(1) if one else cache
    return (k.transpose(1, 2), v.transpose(1, 2)) if layout == "HND" else (k, v)


def _table_of(bounds: Tensor, pages: Tensor, width: int) -> Tensor:
    """A block table of the lists between boundaries; -1 is behind the end of a list."""
    if pages.shape[0] == 0:
        return torch.full((bounds.shape[0] - 1, width), -1, dtype=torch.int32, device=pages.device)
    entry = torch.arange(width, dtype=torch.int32, device=pages.device)
    places = (bounds[:-1, None] + entry).clamp(max=pages.shape[0] - 1).long()
    return torch.where(entry < (bounds[1:] - bounds[:-1])[:, None], pages[places], -1).to(torch.int32)


def _lengths(bounds: Tensor, in_last_page: Tensor, pages: int, width: int, page_size: int) -> Tensor:
    """Tokens of each sequence. A sequence whose pages are no indices, whose boundaries fall, or whose last page has more
    tokens than a page, gets more than the table has room for: the operator says so when it runs."""
    begins, ends = bounds[:-1], bounds[1:]
    own = ends - begins
    no_list = (begins < 0) | (ends < begins) | (ends > pages)
    wrong = no_list | (own > 0) & ((in_last_page > page_size) | (in_last_page < 1))
    tokens = torch.where(own > 0, (own - 1) * page_size + in_last_page, 0)
    return torch.where(wrong, width * page_size + 1, tokens).to(torch.int32)


def batch_decode_with_paged_kv_cache(
    q: Tensor,
    paged_kv_cache: Union[Tensor, Pair],
    kv_indptr: Tensor,
    kv_indices: Tensor,
    kv_last_page_len: Tensor,
    *,
    kv_layout: str = "NHD",
    max_pages: Optional[int] = None,
    window_left: int = -1,
    logits_soft_cap: Optional[float] = None,
    sm_scale: Optional[float] = None,
    q_scale: Optional[float] = None,
    k_scale: Optional[float] = None,
    v_scale: Optional[float] = None,
    return_lse: bool = False,
) -> Union[Tensor, Pair]:
    """Attention of one token per sequence to pages, with the arguments of FlashInfer's batch decode; without a plan.

    Args:
        q: [batch, heads, d].
        paged_kv_cache: keys and values, each [pages, page size, kv_heads, d] for NHD and [pages, kv_heads, page size, d]
            for HND; or one tensor with a dimension of 2 after the pages.
        kv_indptr: int32 [batch + 1]: boundaries of the pages of each sequence in kv_indices.
        kv_indices: int32: pages.
        kv_last_page_len: int32 [batch]: tokens in the last page of each sequence.
        kv_layout: NHD or HND.
        max_pages: an upper bound on the pages of a sequence; default: the number of all pages. Lengths are on the
            device and are not read by the host, so calls can be captured.
        window_left: keys before the last that are visible; -1: all.
        logits_soft_cap: scores become c * tanh(score / c).
        sm_scale: default: 1 / sqrt(d).
        q_scale, k_scale, v_scale: factors of queries, keys and values.
        return_lse: also return the base-2 logarithms of the sums, float32 [batch, heads], as FlashInfer does.

    Returns:
        out as q; ``(out, lse)`` with return_lse.
    """
    if q.dim() != 3:
        raise ValueError(f"q: expected [batch, heads, d], given {list(q.shape)}; give one token of each sequence")
    expect("kv_indptr", kv_indptr, "boundaries", q.shape[0] + 1)
    expect("kv_last_page_len", kv_last_page_len, "batch", q.shape[0])
    expect("kv_indices", kv_indices, "pages", -1)
    k, v = _keys_and_values(paged_kv_cache, kv_layout)
    width = kv_indices.shape[0] if max_pages is None else max_pages
    scale = (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale) * (q_scale or 1) * (k_scale or 1)
    out, lse = functions["attention_with_kv_cache"](
        q.unsqueeze(1), k, v, block_table=_table_of(kv_indptr, kv_indices, width),
        cache_seqlens=_lengths(kv_indptr, kv_last_page_len, kv_indices.shape[0], width, k.shape[1]), scale=scale,
        left=window_left, softcap=logits_soft_cap or 0.0,
    )  # fmt: skip
    out = out[:, 0] if v_scale is None else (out[:, 0].float() * v_scale).to(q.dtype)
    return (out, lse[..., 0] * _log2e) if return_lse else out
