"""Gradients of the operators, array by array; tegula.torch has them as part of PyTorch's automatic ones."""

from __future__ import annotations

from typing import Any

from . import _tegula
from ._arrays import Array


def block_sparse_attn_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    q_block_size: int,
    k_block_size: int,
    topk_indices: Array | None = None,
    *,
    dlse: Array | None = None,
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
    deterministic: bool = True,
    target: str = "automatic",
) -> tuple[Any, Any, Any]:
    """Gradients of ``sum(dout * out) + sum(dlse * lse)``, where out and lse are results of ``block_sparse_attn``.

    Args:
        dout: as out. dlse: as lse, or None for 0.
        q, k, v, the blocks and the options: those of the call of ``block_sparse_attn``.
        deterministic: equal bits in every run; False leaves the order of sums open where that is faster.

    Returns:
        ``(dq, dk, dv)`` as q, k, v.

    Raises:
        TypeError, ValueError, RuntimeError: as ``attention``.

    Source: Dao et al., "FlashAttention", 2022, appendix B; dlse as an addend of its row sums.
    """
    _tegula.refuse_tracing(q)
    return _tegula.block_sparse_attn_backward(
        dout, q, k, v, out, lse, dlse, topk_indices, counts, mask, cu_seqlens_q, cu_seqlens_k, q_block_size,
        k_block_size, layout, causal, scale, softcap, max_seqlen_q, max_seqlen_k, deterministic, target,
    )  # fmt: skip


def nsa_selected_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    block_indices: Array,
    out: Array,
    lse: Array,
    *,
    dlse: Array | None = None,
    window_dout: Array | None = None,
    window_out: Array | None = None,
    window_lse: Array | None = None,
    window_dlse: Array | None = None,
    scale_gradient: bool = False,
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
    target: str = "automatic",
) -> tuple[Any, Any, Any, Any]:
    """Gradients of ``sum(dout * out) + sum(dlse * lse)`` and of the same sums of the window.

    Args:
        dout: as out. dlse: as lse, or None for 0.
        window_dout, window_out, window_lse, window_dlse: the same of the window; without window_dout it has no part.
        scale_gradient: also give the gradient of a factor of 1 that multiplies the scores of what an entry of
            block_indices selects.
        q, k, v, block_indices and the options: those of the call of ``nsa_selected_attention``.

    Returns:
        ``(dq, dk, dv, dscale)`` as q, k, v; dscale float32 as block_indices, None unless wanted. The same bit by
        bit in every run.

    Raises:
        TypeError, ValueError, RuntimeError: as ``attention``.

    Source: as ``attention_backward``; the gradient of factors as in native-sparse-attention-pytorch (Wang, 2025).
    """
    _tegula.refuse_tracing(q)
    return _tegula.nsa_selected_attention_backward(
        dout, q, k, v, out, lse, dlse, window_dout, window_out, window_lse, window_dlse, block_indices, block_counts,
        cu_seqlens_q, cu_seqlens_k, block_size, layout, causal, diagonal, repeats, window, scale,
        max_seqlen_q, max_seqlen_k, scale_gradient, target,
    )  # fmt: skip
