"""Native sparse attention with the signatures of flash-linear-attention."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor

from ._common import as_numbers
from ._functions import functions


Boundaries = Union[Tensor, Tuple[Tensor, Tensor], None]


def _ends(cu_seqlens: Boundaries) -> Tuple[Optional[Tensor], Optional[Tensor]]:
    """The boundaries of queries and of keys as int32: one tensor for both, or a pair."""
    if cu_seqlens is None:
        return None, None
    of_q, of_k = cu_seqlens if isinstance(cu_seqlens, tuple) else (cu_seqlens, cu_seqlens)
    ends = of_q.to(torch.int32)
    return ends, ends if of_k is of_q else of_k.to(torch.int32)


def _of_both(cu_seqlens: Boundaries) -> Optional[Tensor]:
    """The boundaries, which are those of queries and of keys."""
    of_q, of_k = _ends(cu_seqlens)
    if of_q is not of_k and of_q is not None and of_k is not None and not torch.equal(of_q, of_k):
        raise ValueError(
            "cu_seqlens: expected the same boundaries for queries and keys where there is a compressed branch, given "
            "others; pass the sequences one by one"
        )
    return of_q


def _packed(cu_seqlens: Boundaries, *tensors: Optional[Tensor]) -> List[Optional[Tensor]]:
    """The tensors without the batch of 1 in which that library packs sequences."""
    if cu_seqlens is None:
        return list(tensors)
    for x in tensors:
        if x is not None and x.shape[0] != 1:
            raise ValueError(f"cu_seqlens: packed sequences are a batch of 1, given {x.shape[0]}; concatenate them")
    return [None if x is None else x[0] for x in tensors]


def _entries_by_begin(x: Tensor, cu_seqlens: Tensor, block_size: int, tokens: int) -> Tensor:
    """Moves contiguous rows, including shorter last blocks, to the rows that ``nsa_compress`` uses."""
    begins, ends = cu_seqlens[:-1].long(), cu_seqlens[1:].long()
    blocks = (ends - begins + block_size - 1) // block_size
    whole = (ends - begins) // block_size
    sequence = torch.repeat_interleave(torch.arange(len(blocks), device=x.device), blocks)
    number = torch.arange(len(sequence), device=x.device) - (blocks.cumsum(0) - blocks)[sequence]
    kept = number < whole[sequence]  # a short block is seen by no query
    places = (begins // block_size)[sequence] + number
    out = x.new_zeros(tokens // block_size, *x.shape[1:])
    return out.index_copy(0, places[kept], x[: len(sequence)][kept])


def _compressed(
    q: Tensor, k: Tensor, v: Tensor, tokens: int, block_size: int, scale: Optional[float], ends: Optional[Tensor]
) -> Any:
    sizes = {"length": block_size, "stride": block_size, "scale": scale, "cu_seqlens": ends}
    return functions["nsa_compressed_attention"](q, k, v, key_tokens=0 if ends is not None else tokens, **sizes)


def parallel_nsa_compression(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    TK: int,
    block_size: int = 64,
    scale: Optional[float] = None,
    cu_seqlens: Boundaries = None,
) -> Tuple[Tensor, Tensor]:
    """Attention over blocks of tokens that end at or before the query.

    Args:
        q: [batch, tokens, heads, d]; the last query is aligned with the last of the TK tokens.
        k, v: [batch, blocks, kv_heads, d]: the representatives of blocks, including a shorter last one of a sequence.
        TK: number of key tokens.
        block_size: tokens of a block.
        scale: scale of the scores; default: 1/sqrt(d).
        cu_seqlens: boundaries of packed sequences; then the batch is 1. A pair has those of queries and of keys, here
            the same.

    Returns:
        (out, lse): out like q, 0 where no block is visible; lse float32 [batch, tokens, heads], also 0 there.

    Raises:
        TypeError, ValueError, RuntimeError: as ``tegula.nsa_compressed_attention``.
    """
    ends = _of_both(cu_seqlens)
    q, k, v = _packed(cu_seqlens, q, k, v)
    if ends is not None:
        k, v = (_entries_by_begin(x, ends, block_size, q.shape[0]) for x in (k, v))
    else:
        k, v = (x[:, : TK // block_size] for x in (k, v))
    out, lse = _compressed(q, k, v, TK, block_size, scale, ends)
    lse = torch.where(lse == -torch.inf, 0, lse).transpose(-1, -2)
    return (out, lse) if ends is None else (out[None], lse[None])


def _weighted(out: Tensor, gate: Optional[Tensor]) -> Tensor:
    return out if gate is None else out * gate.unsqueeze(-1).to(out.dtype)


def parallel_nsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_cmp: Optional[Tensor] = None,
    g_slc: Optional[Tensor] = None,
    g_swa: Optional[Tensor] = None,
    block_indices: Optional[Tensor] = None,
    block_counts: Union[Tensor, int, None] = 16,
    block_size: int = 64,
    window_size: int = 0,
    scale: Optional[float] = None,
    cu_seqlens: Boundaries = None,
    head_first: bool = False,
) -> Tensor:
    """The branches of native sparse attention, weighted and summed.

    Args:
        q: [batch, tokens, heads, d].
        k, v: [batch, tokens, kv_heads, d].
        g_cmp, g_slc, g_swa: [batch, tokens, heads], weights (not logits) of the branches: means of blocks, selected
            blocks, the window. The first branch exists if g_cmp is given.
        block_indices: int32 or int64 [batch, tokens, kv_heads, entries]; duplicates count repeatedly. Default: the
            first block, the last two, and those with the largest weights in the first branch.
        block_counts: number of entries that are used [batch, tokens, kv_heads]; or how many to choose if there are no
            block_indices, of which otherwise all are used.
        block_size: tokens of a block.
        window_size: keys of the window, including the query's own; 0: no such branch.
        scale: scale of the scores; default: 1/sqrt(d).
        cu_seqlens: boundaries of packed sequences; then the batch is 1. A pair has those of queries and of keys, which
            may differ without g_cmp; the last query of a sequence is aligned with its last key.
        head_first: must be false.

    Returns:
        A tensor like q, with the features of v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of.
    """
    if head_first:
        raise ValueError("head_first: expected False, given True; transpose heads and tokens")
    if block_indices is None and (g_cmp is None or not isinstance(block_counts, int)):
        raise ValueError("block_indices: expected indices, or g_cmp and a number as block_counts by which to choose")
    of_rows = block_counts if isinstance(block_counts, Tensor) else None
    given = (q, k, v, g_cmp, g_slc, g_swa, block_indices, of_rows)
    q, k, v, g_cmp, g_slc, g_swa, block_indices, of_rows = _packed(cu_seqlens, *given)
    tokens, branches = k.shape[-3], []
    if g_cmp is not None:
        ends = _of_both(cu_seqlens)
        windows: Dict[str, Any] = {"length": block_size, "stride": block_size, "cu_seqlens": ends}
        means = [functions["nsa_compress"](x, **windows) for x in (k, v)]
        out, lse = _compressed(q, *means, tokens, block_size, scale, ends)
        branches.append(_weighted(out, g_cmp))
        if block_indices is None:
            block_indices = functions["nsa_select"](
                q, means[0], lse, block_counts, block_size=block_size, scale=scale,
                key_tokens=0 if ends is not None else tokens, **windows,
            )  # fmt: skip
    ends_q, ends_k = _ends(cu_seqlens)
    fine = functions["nsa_selected_attention"](
        q, k, v, as_numbers(block_indices), block_counts=None if of_rows is None else as_numbers(of_rows),
        block_size=block_size, repeats=True, window=window_size, scale=scale, cu_seqlens_q=ends_q, cu_seqlens_k=ends_k,
    )  # fmt: skip
    branches.append(_weighted(fine[0], g_slc))
    if window_size > 0:
        branches.append(_weighted(fine[2], g_swa))
    out = branches[0]
    for branch in branches[1:]:
        out = out + branch
    return out if cu_seqlens is None else out[None]


def naive_nsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g_slc: Tensor,
    g_swa: Optional[Tensor],
    block_indices: Tensor,
    block_counts: Union[Tensor, int, None] = None,
    block_size: int = 64,
    window_size: int = 0,
    scale: Optional[float] = None,
    cu_seqlens: Boundaries = None,
    head_first: bool = False,
) -> Tensor:
    """``parallel_nsa`` for given blocks, with the argument order of that library's reference; a number as block_counts
    uses as many of the entries."""
    if isinstance(block_counts, int):
        block_indices = block_indices[..., :block_counts]
    return parallel_nsa(
        q, k, v, None, g_slc, g_swa, block_indices, block_counts, block_size, window_size, scale, cu_seqlens, head_first
    )
