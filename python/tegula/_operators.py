"""The operators, for arrays of any library."""

from __future__ import annotations

from typing import Any, NoReturn

from . import _tegula
from ._arrays import Array
from ._keywords import refuse_keywords


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    layout: str = "bshd",
    scale: float | None = None,
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    softcap: float = 0.0,
    sinks: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
    **others: NoReturn,
) -> tuple[Any, Any]:
    """Softmax attention, ``softmax(scale * q @ k.T) @ v`` for every head.

    Args:
        q: [batch, queries, heads, d]; float32, float16 or bfloat16. Features, at most 512, lie side by side; other
            strides are free. Packed sequences: [tokens, heads, d].
        k: [batch, keys, kv_heads, d] of the dtype of q; heads is a multiple of kv_heads.
        v: [batch, keys, kv_heads, d_v] of the dtype of q.
        layout: "bshd", as above, or "bhsd": [batch, heads, sequence, features].
        scale: of the scores, positive; ``1 / sqrt(d)`` unless given.
        causal: query i stands at position i + keys - queries and sees no later key.
        left, right: how many keys before and after its position a query sees; -1 for all.
        softcap: scores become ``softcap * tanh(score / softcap)``; 0 for none.
        sinks: [heads] of any float dtype; a logit of each head that counts in the sum but has no value.
        cu_seqlens_q, cu_seqlens_k: int32 [sequences + 1]; sequence b has the tokens from entry b to entry b + 1.
        max_seqlen_q, max_seqlen_k: the most tokens of a sequence, 0 where it is not known. On a GPU, where cu_seqlens are
            not read, these promises save blocks for tokens that no sequence has, and few queries share tiles.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of q.

    Returns:
        ``(out, lse)``: out as q with the features of v; lse float32 [batch, heads, queries] (packed [heads, tokens]),
        the natural logarithm of the sum of ``exp(score)``. A query that sees no key has out 0 and lse -inf.

    Raises:
        TypeError: an argument is no array. ValueError: a shape, dtype, stride or option is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Vaswani et al., "Attention Is All You Need", 2017; computed tile by tile as in Dao et al.,
    "FlashAttention", 2022.
    """
    if others:
        refuse_keywords("tegula.attention", others)
    _tegula.refuse_recording(q, k, v, sinks)
    return _tegula.attention(
        q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, layout, scale, causal, left, right, softcap,
        max_seqlen_q, max_seqlen_k, out, lse, target,
    )  # fmt: skip


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
