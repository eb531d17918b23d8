"""The operators, for arrays of any library."""

from __future__ import annotations

from typing import Any, NoReturn

from . import _tegula
from ._arrays import Array
from ._keywords import refuse_keywords


def block_sparse_attn(
    q: Array,
    k: Array,
    v: Array,
    q_block_size: int,
    k_block_size: int,
    topk_indices: Array | None = None,
    *,
    counts: Array | None = None,
    mask: Array | None = None,
    layout: str = "bshd",
    causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    check_indices: bool = False,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
    **others: NoReturn,
) -> tuple[Any, Any]:
    """Attention in which every block of queries sees its own choice of key blocks.

    Args:
        q, k, v, layout, scale, softcap, out, lse, target: as in ``attention``.
        q_block_size, k_block_size: queries and keys of a block, at least 1; the last blocks may be short.
        topk_indices: int32 [batch, heads, q_blocks, entries]; heads of k, for all query heads of the group, or of q.
            Entries that are no block number, such as -1, are passed over; one that is repeated counts once.
        counts: int32 [batch, heads, q_blocks], how many entries of a row count; all unless given.
        mask: bool [batch, heads, q_blocks, k_blocks], instead of topk_indices.
        causal: a query sees no key after its position, inside the chosen blocks.
        cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k: as in ``attention``. topk_indices, counts and mask have
            a member for every packed sequence instead of the batch, with the blocks of the longest one or more; blocks
            count from the beginning of their sequence, and rows that a sequence has not may hold anything. Where
            cu_seqlens are not read, the rows are a promise as max_seqlen is.
        check_indices: refuse entries that count and are neither -1 nor a block number. On a GPU this waits for it.

    Returns:
        ``(out, lse)`` as those of ``attention``; a query whose blocks hold no key that it sees has out 0, lse -inf.

    Raises:
        TypeError, ValueError, RuntimeError: as ``attention``.

    Source: the form of MagiAttention's function of this name (SandAI, 2026), with masks, counts and causality besides.
    """
    if others:
        refuse_keywords("tegula.block_sparse_attn", others)
    _tegula.refuse_recording(q, k, v)
    return _tegula.block_sparse_attn(
        q, k, v, topk_indices, counts, mask, cu_seqlens_q, cu_seqlens_k, q_block_size, k_block_size, layout, causal,
        scale, softcap, max_seqlen_q, max_seqlen_k, check_indices, out, lse, target,
    )  # fmt: skip


def nsa_selected_attention(
    q: Array,
    k: Array,
    v: Array,
    block_indices: Array,
    *,
    block_counts: Array | None = None,
    block_size: int = 64,
    layout: str = "bshd",
    causal: bool = True,
    diagonal: bool = False,
    repeats: bool = False,
    window: int = 0,
    scale: float | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    check_indices: bool = False,
    target: str = "automatic",
    **others: NoReturn,
) -> tuple[Any, ...]:
    """Attention in which every query token sees the key blocks that were selected for it.

    Args:
        q, k, v, layout, scale, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, target: as in ``attention``.
        block_indices: int32 [batch, tokens, heads, entries], heads of k or of q; in the layout "bhsd" heads stand
            before tokens, packed there is no batch. Block i holds the keys from i * block_size on; entries that name
            no block select nothing.
        block_counts: int32, block_indices without entries: how many entries of a row count.
        block_size: keys of a block.
        causal: no later keys; the last query stands at the last key.
        diagonal: the block in which a query stands is seen whether it is selected or not.
        repeats: a block that is named several times counts so often.
        window: with window > 0, attention over the ``window`` keys that end at the query is a second result.
        check_indices: as in ``block_sparse_attn``.

    Returns:
        ``(out, lse)`` as those of ``attention``, with a window ``(out, lse, window_out, window_lse)``.

    Raises:
        TypeError, ValueError, RuntimeError: as ``attention``.

    Source: Yuan et al., "Native Sparse Attention", 2025: the selected branch, and its sliding window.
    """
    if others:
        refuse_keywords("tegula.nsa_selected_attention", others)
    _tegula.refuse_recording(q, k, v)
    return _tegula.nsa_selected_attention(
        q, k, v, block_indices, block_counts, cu_seqlens_q, cu_seqlens_k, block_size, layout, causal, diagonal, repeats,
        window, scale, max_seqlen_q, max_seqlen_k, check_indices, target,
    )  # fmt: skip


def synchronize(device: int = 0) -> None:
    """Waits for all work of a CUDA device, and raises what its kernels have found since the last time.

    The synchronisation of another library waits as well, but does not know what failed: a sequence that is longer
    than ``max_seqlen_q`` or ``max_seqlen_k`` has promised.

    Args:
        device: number of the device.

    Returns:
        None.

    Raises:
        ValueError: there is no such device. RuntimeError: a kernel failed, or there is no driver.

    Source: as ``cuCtxSynchronize`` of the CUDA driver.
    """
    _tegula.synchronize(device)
