"""Functions with the signatures of FlashMLA."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ._functions import functions
from ._refusals import expect, refuse

Pair = Tuple[Tensor, Tensor]

# Bytes of a record of latents: 512 of 8 bits, 4 factors of float32, 64 bfloat16, or 448 of 8 bits, 64 bfloat16 and,
# behind all of these of a page, 7 exponents of 2 and an unused byte.
_record, _record_of_powers = 656, 584


def _with_sink(out: Tensor, lse: Tensor, sink: Optional[Tensor]) -> Tensor:
    """Adds one logit per head without a value to results [.., heads, d]; lse [.., heads] excludes it."""
    if sink is None:
        return out
    share = torch.sigmoid(lse - sink.float())
    return (out.float() * torch.where(lse == -torch.inf, 0, share).unsqueeze(-1)).to(out.dtype)


def _rows_of(cache: Tensor, name: str) -> Tensor:
    """Pages [pages, page size, 1, features] as rows, without a copy."""
    if cache.dim() != 4 or cache.shape[2] != 1:
        raise ValueError(f"{name}: expected [pages, page size, 1, features], given {list(cache.shape)}; reshape it")
    try:
        return cache.view(cache.shape[0] * cache.shape[1], *cache.shape[2:])
    except RuntimeError:
        raise ValueError(f"{name}: expected pages one after another, given strides {cache.stride()}") from None


def _counted(q: Tensor, name: str, indices: Optional[Tensor], name_of_count: str, count: Optional[Tensor]) -> Any:
    """Lists [batch, queries, entries] in which the unused entries of each sequence are replaced by padding."""
    expect(name, indices, "batch queries entries", q.shape[0], q.shape[1], -1)
    expect(name_of_count, count, "batch", q.shape[0])
    if indices is None or count is None:
        return indices
    entry = torch.arange(indices.shape[-1], device=indices.device)
    return torch.where(entry < count[:, None, None], indices, -1)


def _expect_records(cache: Tensor, name: str) -> None:
    sizes = (_record, _record_of_powers)
    if cache.element_size() != 1 or cache.dim() != 4 or cache.shape[2] != 1 or cache.shape[-1] not in sizes:
        raise ValueError(
            f"{name}: expected records [pages, page size, 1, {_record} or {_record_of_powers} bytes] with is_fp8_kvcache, "
            f"given {list(cache.shape)} of {cache.dtype}; leave out is_fp8_kvcache, or give views to sparse_mla_decode"
        )


def _attend_records(q: Tensor, cache: Tensor, name: str, indices: Tensor, scale: float) -> Pair:
    _expect_records(cache, name)
    rows = cache[:, :, 0].view(torch.uint8)
    powers = rows.shape[-1] == _record_of_powers
    if powers:
        pages, page = rows.shape[:2]
        try:
            own = rows.view(pages, page * _record_of_powers)
        except RuntimeError:
            raise ValueError(f"{name}: expected pages without gaps, given strides {cache.stride()}") from None
        rows, exponents = own[:, : 576 * page].unflatten(1, (page, 576)), own[:, 576 * page :].unflatten(1, (page, 8))
        values, scales, ropes = rows[..., :448], exponents[..., :7], rows[..., 448:]
    else:
        values, scales, ropes = rows[..., :512], rows[..., 512:528].view(torch.float32), rows[..., 528:]
    out, lse = functions["sparse_mla_decode"](
        q, values.view(torch.float8_e4m3fn), scales, indices, ropes=ropes.view(torch.bfloat16), ropes_are_values=powers,
        scale=scale,
    )  # fmt: skip
    return out, lse


def _sparse_decode(q: Tensor, head_dim_v: int, scale: float, is_fp8: bool, *sources: Any) -> Pair:
    """Attention of queries [rows, heads, d] to pages by the lists of one or two sources."""
    caches = [(cache, indices.flatten(0, 1), name) for cache, indices, name in sources if cache is not None]
    if is_fp8:
        results = [_attend_records(q, cache, name, indices, scale) for cache, indices, name in caches]
        if len(results) == 1:
            return results[0]
        out, lse = functions["merge_attention"](
            torch.stack([out for out, _ in results]).unsqueeze(1),
            torch.stack([lse.transpose(0, 1) for _, lse in results]).unsqueeze(1),
        )
        return out[0], lse[0].transpose(0, 1)
    rows = [(_rows_of(cache, name), indices.unsqueeze(1)) for cache, indices, name in caches]
    more = {"more_kv": rows[1][0], "more_indices": rows[1][1]} if len(rows) > 1 else {}
    out, lse = functions["sparse_mla"](q, *rows[0], d_v=head_dim_v, scale=scale, **more)
    return out, lse


def _latents_of(cache: Tensor, is_fp8: bool) -> Tensor:
    """Pages without their dimension of one head, of bytes where they consist of records."""
    cache = cache.squeeze(2) if cache.dim() == 4 else cache
    return cache.view(torch.uint8) if is_fp8 else cache


def flash_mla_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    block_table: Optional[Tensor],
    cache_seqlens: Optional[Tensor],
    head_dim_v: int,
    tile_scheduler_metadata: Any = None,
    num_splits: Any = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    is_fp8_kvcache: bool = False,
    indices: Optional[Tensor] = None,
    attn_sink: Optional[Tensor] = None,
    extra_k_cache: Optional[Tensor] = None,
    extra_indices_in_kvcache: Optional[Tensor] = None,
    topk_length: Optional[Tensor] = None,
    extra_topk_length: Optional[Tensor] = None,
) -> Pair:
    """``mla_decode``, or sparse decoding, with the signature of FlashMLA's function of this name.

    Args:
        q: [batch, queries, heads, d].
        k_cache: [pages, page size, 1, d] in the dtype of q, or, with is_fp8_kvcache, records in any 8-bit dtype,
            [pages, page size, 1, 656] for d = 576, [pages, page size, 1, 584] for d = 512. Pages may be apart.
        block_table, cache_seqlens: int32 [batch, width] and [batch]; they may be None if indices are given.
        head_dim_v: features of a row that are values: 512 of records.
        tile_scheduler_metadata, num_splits: ignored, because nothing is planned in advance.
        softmax_scale: default: 1 / sqrt(d).
        causal: hide later keys; the last query is aligned with the last key. Without indices only.
        is_fp8_kvcache: the cache consists of records.
        indices: int32 [batch, queries, entries]: the rows of all pages that a query sees, page * page size + row; -1 is
            padding.
        attn_sink: [heads]: one logit per head that is added to the sum but has no value. The lse excludes it.
        extra_k_cache, extra_indices_in_kvcache: a second cache, and the rows of it that a query sees.
        topk_length, extra_topk_length: [batch]: entries of each list that are used.

    Returns:
        (out [batch, queries, heads, head_dim_v], lse float32 [batch, heads, queries]).
    """
    if q.dim() != 4:
        raise ValueError(f"q: expected [batch, queries, heads, d], given {list(q.shape)}; reshape it")
    if is_fp8_kvcache:
        _expect_records(k_cache, "k_cache")
        refuse(head_dim_v=(head_dim_v != 512, "records have 512 features that are values"))
    expect("attn_sink", attn_sink, "heads", q.shape[2])
    if indices is None:
        refuse(
            extra_k_cache=(extra_k_cache is not None, "give indices beside it"),
            topk_length=(topk_length is not None or extra_topk_length is not None, "give indices beside it"),
        )
        out, lse = functions["mla_decode"](
            q, _latents_of(k_cache, is_fp8_kvcache), block_table=block_table, cache_seqlens=cache_seqlens,
            d_v=head_dim_v, scale=softmax_scale, causal=causal,
        )  # fmt: skip
        return _with_sink(out, lse.transpose(1, 2), attn_sink), lse
    refuse(causal=(causal, "lists say what a query sees"))
    if (extra_k_cache is None) != (extra_indices_in_kvcache is None):
        raise ValueError("extra_k_cache and extra_indices_in_kvcache: expected both or neither; give both")
    lists = _counted(q, "indices", indices, "topk_length", topk_length)
    extra = _counted(
        q, "extra_indices_in_kvcache", extra_indices_in_kvcache, "extra_topk_length", extra_topk_length
    )
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    out, lse = _sparse_decode(
        q.flatten(0, 1), head_dim_v, scale, is_fp8_kvcache,
        (k_cache, lists, "k_cache"), (extra_k_cache, extra, "extra_k_cache"),
    )  # fmt: skip
    out, lse = (x.unflatten(0, q.shape[:2]) for x in (_with_sink(out, lse, attn_sink), lse))
    return out, lse.transpose(1, 2)


def flash_mla_sparse_fwd(
    q: Tensor,
    kv: Tensor,
    indices: Tensor,
    sm_scale: float,
    d_v: int = 512,
    attn_sink: Optional[Tensor] = None,
    topk_length: Optional[Tensor] = None,
) -> Tuple[Tensor, None, Tensor]:
    """``sparse_mla`` with the signature of FlashMLA's function of this name.

    Args:
        q: [queries, heads, d].
        kv: [keys, kv_heads, d].
        indices: int32 [queries, kv_heads, entries]: the rows that a query sees; -1 and rows that do not exist are
            padding.
        sm_scale: scale of the scores.
        d_v: features of a row that are values.
        attn_sink: [heads]: one logit per head that is added to the sum but has no value. The lse excludes it.
        topk_length: [queries]: entries of each list that are used.

    Returns:
        (out [queries, heads, d_v], None, lse float32 [queries, heads], natural logarithms). FlashMLA's second result,
        the largest scores, is not available.
    """
    if q.dim() != 3:
        raise ValueError(f"q: expected [queries, heads, d], given {list(q.shape)}; reshape it")
    expect("indices", indices, "queries kv_heads entries", q.shape[0], -1, -1)
    expect("topk_length", topk_length, "queries", q.shape[0])
    expect("attn_sink", attn_sink, "heads", q.shape[1])
    counts = None if topk_length is None else topk_length[:, None].expand(indices.shape[:2]).contiguous()
    out, lse = functions["sparse_mla"](q, kv, indices, counts=counts, d_v=d_v, scale=sm_scale)
    return _with_sink(out, lse, attn_sink), None, lse
