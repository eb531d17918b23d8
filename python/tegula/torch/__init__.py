"""Tegula's operators for PyTorch: with gradients, as custom operators that ``torch.compile`` takes whole, and under
autocast; and functions with the signatures of other libraries.
"""

from . import _functions
from ._bit_linear import BitLinear, ternary_weights
from ._cache_key import add_to_cache_key
from ._deepseek import DeepseekSparseAttention, LatentCache
from ._drop_in import block_sparse_attn, native_sparse_attend
from ._functions import *  # noqa: F403
from ._native_sparse import NativeSparseAttention, NativeSparseCache, native_sparse_attention

__all__ = [
    "BitLinear",
    "DeepseekSparseAttention",
    "LatentCache",
    "NativeSparseAttention",
    "NativeSparseCache",
    "block_sparse_attn",
    "native_sparse_attend",
    "native_sparse_attention",
    "ternary_weights",
    *_functions.__all__,
]

add_to_cache_key()
