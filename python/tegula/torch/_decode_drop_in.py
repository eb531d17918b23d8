"""Functions with the signatures of FlashAttention, FlashMLA and FlashInfer for decoding with caches."""

from __future__ import annotations

from typing import Any, Optional, Tuple, Union

import torch
from torch import Tensor

from ._functions import functions

Pair = Tuple[Tensor, Tensor]

# Bytes of a record of latents: 512 of 8 bits, 4 factors of float32, 64 bfloat16, or 448 of 8 bits, 64 bfloat16 and,
# behind all of these of a page, 7 exponents of 2 and an unused byte.
_record, _record_of_powers = 656, 584
_log2e = 1.4426950408889634


def _refuse(**unsupported: Any) -> None:
    for name, (given, remedy) in unsupported.items():
        if given:
            raise ValueError(f"{name}: this argument is not supported; {remedy}")


def _expect(name: str, given: Optional[Tensor], dims: str, *extents: int) -> None:
    """Refuses a tensor of another shape; -1: any extent."""
    if given is None:
        return
    shape = tuple(given.shape)
    if len(shape) != len(extents) or any(n not in (-1, own) for n, own in zip(extents, shape)):
        wanted = ", ".join(part if n < 0 else f"{part} = {n}" for part, n in zip(dims.split(), extents))
        raise ValueError(f"{name}: expected [{wanted}], given {list(shape)}; reshape it, or check q")


def _window(window_size: Tuple[int, int], causal: bool, queries: int) -> Tuple[bool, int]:
    """Whether later keys are hidden, and how many earlier ones are visible; -1: all."""
    left, right = window_size
    if causal or right == 0:
        return True, left
    if 0 < right < queries - 1:
        raise ValueError(
            f"window_size: expected a right side of 0, of -1, or of {queries - 1} or more, which hides no key from "
            f"{queries} queries, given {right}; give fewer queries"
        )
    return False, left


def flash_attn_with_kvcache(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    k: Optional[Tensor] = None,
    v: Optional[Tensor] = None,
    rotary_cos: Optional[Tensor] = None,
    rotary_sin: Optional[Tensor] = None,
    cache_seqlens: Optional[Union[int, Tensor]] = None,
    cache_batch_idx: Optional[Tensor] = None,
    cache_leftpad: Optional[Tensor] = None,
    block_table: Optional[Tensor] = None,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Optional[Tensor] = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Union[Tensor, Pair]:
    """``append_kv`` and ``attention_with_kv_cache`` with the signature of FlashAttention's function of this name.

    Args:
        q: [batch, queries, heads, d].
        k_cache, v_cache: [sequences, keys, kv_heads, d], or [pages, page size, kv_heads, d] with a block table; pages
            may have any size.
        k, v: [batch, new tokens, kv_heads, d], which are appended to the cache.
        rotary_cos, rotary_sin: [positions, r / 2]: the first r features of q and k are rotated; k is rotated before it
            is stored.
        cache_seqlens: tokens of each sequence before the new ones, or one number for all.
        cache_batch_idx: [batch]: the row of each sequence in a cache without pages.
        block_table: [batch, width]: the pages of each sequence.
        softmax_scale: default: 1 / sqrt(d).
        causal: hide later keys; the last query is aligned with the last key.
        window_size: how many keys before and after its position a query sees; -1: all. A right side between 0 and the
            number of queries is not supported.
        softcap: scores become softcap * tanh(score / softcap); 0: off.
        rotary_interleaved: features 2j and 2j + 1 are rotated together, otherwise j and j + r / 2.
        num_splits: number of splits of the keys; 0 leaves it to the plan.
        return_softmax_lse: also return the logarithms of the sums of exp(score), float32 [batch, heads, queries].

    Returns:
        out as q; ``(out, lse)`` with return_softmax_lse.

    Raises:
        ValueError: for cache_leftpad, alibi_slopes and other arguments that are not supported; otherwise as
        attention_with_kv_cache.
    """
    _refuse(
        cache_leftpad=(cache_leftpad is not None, "give a block table, or caches that begin with their tokens"),
        alibi_slopes=(alibi_slopes is not None, "no operator has such biases"),
    )
    if (k is None) != (v is None) or (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("k and v, rotary_cos and rotary_sin: expected both or neither; give both")
    if rotary_cos is not None and (k is None or cache_seqlens is None):
        raise ValueError("rotary_cos: expected k, v and cache_seqlens beside it; rotate q by rope")
    if cache_batch_idx is not None:
        if block_table is not None:
            raise ValueError("cache_batch_idx: expected no block table beside it; give the rows of the table")
        _expect("cache_batch_idx", cache_batch_idx, "batch", q.shape[0])
        block_table = cache_batch_idx.to(torch.int32).unsqueeze(1)
    lengths = cache_seqlens
    if isinstance(lengths, int):
        lengths = torch.full((q.shape[0],), lengths, dtype=torch.int32, device=q.device)
    is_causal, left = _window(window_size, causal, q.shape[1])
    if k is not None and v is not None:
        if lengths is None:
            raise ValueError("cache_seqlens: expected the tokens of each sequence beside k and v; give them")
        if rotary_cos is not None:
            step = torch.arange(q.shape[1], dtype=torch.int32, device=q.device)
            position = lengths[:, None] + (step if is_causal or left >= 0 else 0 * step)
        lengths = lengths + k.shape[1]
        pairing = "neighbours" if rotary_interleaved else "halves"
        tables = () if rotary_cos is None else (rotary_cos.float(), rotary_sin.float())  # type: ignore[union-attr]
        with torch.no_grad():
            functions["append_kv"](
                k, k_cache, v=v, v_cache=v_cache, block_table=block_table, cache_seqlens=lengths,
                **dict(zip(("cosine", "sine"), tables)), pairing=pairing,
            )  # fmt: skip
        if tables:
            q = functions["rope"](q, *tables, positions=position, pairing=pairing)
    out, lse = functions["attention_with_kv_cache"](
        q, k_cache, v_cache, block_table=block_table, cache_seqlens=lengths, scale=softmax_scale, causal=is_causal,
        left=left, softcap=softcap, splits=num_splits,
    )  # fmt: skip
    return (out, lse) if return_softmax_lse else out


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


def _counted(indices: Tensor, count: Optional[Tensor]) -> Tensor:
    """Lists [batch, queries, entries] in which the unused entries of each sequence are replaced by padding."""
    if count is None:
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
        _refuse(head_dim_v=(head_dim_v != 512, "records have 512 features that are values"))
    _expect("attn_sink", attn_sink, "heads", q.shape[2])
    if indices is None:
        _refuse(
            extra_k_cache=(extra_k_cache is not None, "give indices beside it"),
            topk_length=(topk_length is not None or extra_topk_length is not None, "give indices beside it"),
        )
        cache = k_cache.squeeze(2) if k_cache.dim() == 4 else k_cache
        cache = cache.view(torch.uint8) if is_fp8_kvcache else cache
        out, lse = functions["mla_decode"](
            q, cache, block_table=block_table, cache_seqlens=cache_seqlens, d_v=head_dim_v, scale=softmax_scale,
            causal=causal,
        )  # fmt: skip
        return _with_sink(out, lse.transpose(1, 2), attn_sink), lse
    _refuse(causal=(causal, "lists say what a query sees"))
    if (extra_k_cache is None) != (extra_indices_in_kvcache is None):
        raise ValueError("extra_k_cache and extra_indices_in_kvcache: expected both or neither; give both")
    for name, own in (("indices", indices), ("extra_indices_in_kvcache", extra_indices_in_kvcache)):
        _expect(name, own, "batch queries entries", q.shape[0], q.shape[1], -1)
    for name, own in (("topk_length", topk_length), ("extra_topk_length", extra_topk_length)):
        _expect(name, own, "batch", q.shape[0])
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    extra = None if extra_indices_in_kvcache is None else _counted(extra_indices_in_kvcache, extra_topk_length)
    out, lse = _sparse_decode(
        q.flatten(0, 1), head_dim_v, scale, is_fp8_kvcache, (k_cache, _counted(indices, topk_length), "k_cache"),
        (extra_k_cache, extra, "extra_k_cache"),
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
    _expect("indices", indices, "queries kv_heads entries", q.shape[0], -1, -1)
    _expect("topk_length", topk_length, "queries", q.shape[0])
    _expect("attn_sink", attn_sink, "heads", q.shape[1])
    counts = None if topk_length is None else topk_length[:, None].expand(indices.shape[:2]).contiguous()
    out, lse = functions["sparse_mla"](q, kv, indices, counts=counts, d_v=d_v, scale=sm_scale)
    return _with_sink(out, lse, attn_sink), None, lse


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
    if kv_layout not in ("NHD", "HND"):
        raise ValueError(f"kv_layout: expected NHD or HND, given '{kv_layout}'")
    one = isinstance(paged_kv_cache, Tensor)
    if (paged_kv_cache.dim() != 5 or paged_kv_cache.shape[1] != 2) if one else len(paged_kv_cache) != 2:
        given = f"one of {list(paged_kv_cache.shape)}" if one else f"{len(paged_kv_cache)} tensors"
        raise ValueError(
            f"paged_kv_cache: expected keys and values, or one tensor [pages, 2, page size, kv_heads, d], given {given}; "
            "give a pair"
        )
    if q.dim() != 3:
        raise ValueError(f"q: expected [batch, heads, d], given {list(q.shape)}; give one token of each sequence")
    _expect("kv_indptr", kv_indptr, "boundaries", q.shape[0] + 1)
    _expect("kv_last_page_len", kv_last_page_len, "batch", q.shape[0])
    _expect("kv_indices", kv_indices, "pages", -1)
    k, v = paged_kv_cache.unbind(1) if one else paged_kv_cache
    if kv_layout == "HND":
        k, v = k.transpose(1, 2), v.transpose(1, 2)
    width = kv_indices.shape[0] if max_pages is None else max_pages
    pages = kv_indptr[1:] - kv_indptr[:-1]
    entry = torch.arange(width, dtype=torch.int32, device=q.device)
    places = (kv_indptr[:-1, None] + entry).clamp(max=max(kv_indices.shape[0] - 1, 0)).long()
    if kv_indices.shape[0] == 0:
        table = torch.full((q.shape[0], width), -1, dtype=torch.int32, device=q.device)
    else:
        table = torch.where(entry < pages[:, None], kv_indices[places], -1).to(torch.int32)
    # A sequence whose pages are no indices, whose boundaries fall, or whose last page has more tokens than a page, has no
    # room: the operator says so when it runs.
    begins, ends = kv_indptr[:-1], kv_indptr[1:]
    no_list = (begins < 0) | (ends < begins) | (ends > kv_indices.shape[0])
    wrong = no_list | (pages > 0) & ((kv_last_page_len > k.shape[1]) | (kv_last_page_len < 1))
    own = torch.where(pages > 0, (pages - 1) * k.shape[1] + kv_last_page_len, 0)
    lengths = torch.where(wrong, width * k.shape[1] + 1, own).to(torch.int32)
    scale = (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale) * (q_scale or 1) * (k_scale or 1)
    out, lse = functions["attention_with_kv_cache"](
        q.unsqueeze(1), k, v, block_table=table, cache_seqlens=lengths, scale=scale, left=window_left,
        softcap=logits_soft_cap or 0.0,
    )  # fmt: skip
    out = out[:, 0] if v_scale is None else (out[:, 0].float() * v_scale).to(q.dtype)
    return (out, lse[..., 0] * _log2e) if return_lse else out
