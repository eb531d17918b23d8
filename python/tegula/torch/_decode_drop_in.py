"""The function with which FlashAttention decodes from caches, by its signature."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Union

import torch
from torch import Tensor

from ._functions import functions
from ._refusals import expect, refuse

Pair = Tuple[Tensor, Tensor]


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


def _table_of_rows(rows: Tensor, block_table: Optional[Tensor], batch: int) -> Tensor:
    """The rows of a cache without pages as a block table of one page a sequence."""
    if block_table is not None:
        raise ValueError("cache_batch_idx: expected no block table beside it; give the rows of the table")
    expect("cache_batch_idx", rows, "batch", batch)
    return rows.to(torch.int32).unsqueeze(1)


def _positions(lengths: Tensor, queries: int, ascend: bool) -> Tensor:
    """Positions of the queries behind the tokens of each sequence: FlashAttention gives all of them the first one where
    no mask depends on their order."""
    step = torch.arange(queries, dtype=torch.int32, device=lengths.device)
    return lengths[:, None] + (step if ascend else 0 * step)


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
    refuse(
        cache_leftpad=(cache_leftpad is not None, "give a block table, or caches that begin with their tokens"),
        alibi_slopes=(alibi_slopes is not None, "no operator has such biases"),
    )
    if (k is None) != (v is None) or (rotary_cos is None) != (rotary_sin is None):
        raise ValueError("k and v, rotary_cos and rotary_sin: expected both or neither; give both")
    if rotary_cos is not None and (k is None or cache_seqlens is None):
        raise ValueError("rotary_cos: expected k, v and cache_seqlens beside it; rotate q by rope")
    table = block_table if cache_batch_idx is None else _table_of_rows(cache_batch_idx, block_table, q.shape[0])
    lengths = cache_seqlens
    if isinstance(lengths, int):
        lengths = torch.full((q.shape[0],), lengths, dtype=torch.int32, device=q.device)
    is_causal, left = _window(window_size, causal, q.shape[1])
    if k is not None and v is not None:
        if lengths is None:
            raise ValueError("cache_seqlens: expected the tokens of each sequence beside k and v; give them")
        rotary: Dict[str, Any] = {"pairing": "neighbours" if rotary_interleaved else "halves"}
        if rotary_cos is not None and rotary_sin is not None:
            rotary.update(cosine=rotary_cos.float(), sine=rotary_sin.float())
            q = functions["rope"](q, **rotary, positions=_positions(lengths, q.shape[1], is_causal or left >= 0))
        lengths = lengths + k.shape[1]
        with torch.no_grad():
            functions["append_kv"](
                k, k_cache, v=v, v_cache=v_cache, block_table=table, cache_seqlens=lengths, **rotary
            )
    out, lse = functions["attention_with_kv_cache"](
        q, k_cache, v_cache, block_table=table, cache_seqlens=lengths, scale=softmax_scale, causal=is_causal,
        left=left, softcap=softcap, splits=num_splits,
    )  # fmt: skip
    return (out, lse) if return_softmax_lse else out
