"""Tegula's operators for PyTorch: with gradients, as custom operators that ``torch.compile`` takes whole, and under
autocast; and functions with the signatures of other libraries.
"""

from . import _functions
from ._cache_key import add_to_cache_key
from ._deepseek import DeepseekSparseAttention, LatentCache
from ._drop_in import block_sparse_attn, native_sparse_attend
from ._functions import *  # noqa: F403

__all__ = [
    "DeepseekSparseAttention",
    "LatentCache",
    "block_sparse_attn",
    "native_sparse_attend",
    *_functions.__all__,
]

add_to_cache_key()
