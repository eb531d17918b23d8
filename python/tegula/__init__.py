"""Tegula: dense and sparse attention, block selection and matrix products.

Every function takes arrays of any library that speaks DLPack (NumPy, PyTorch, JAX, CuPy) and gives back arrays of
the library of its first argument.
"""

from ._operators import (
    attention,
    attention_backward,
    block_scores,
    block_sparse_attn,
    block_sparse_attn_backward,
    gemm,
    nsa_selected_attention,
    topk_blocks,
)

__all__ = [
    "attention",
    "attention_backward",
    "block_scores",
    "block_sparse_attn",
    "block_sparse_attn_backward",
    "gemm",
    "nsa_selected_attention",
    "topk_blocks",
]
__version__ = "0.1.0"
