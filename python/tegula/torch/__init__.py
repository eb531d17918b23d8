"""Tegula's operators for PyTorch: with gradients, as custom operators that ``torch.compile`` takes whole, and under
autocast; and functions with the signatures of other libraries.
"""

from . import _functions
from ._block_sparse import block_sparse_attn
from ._cache_key import add_to_cache_key
from ._drop_in import native_sparse_attend
from ._functions import *  # noqa: F403
from ._nsa import nsa_selected_attention

__all__ = [
    "block_sparse_attn",
    "native_sparse_attend",
    "nsa_selected_attention",
    *_functions.__all__,
]

add_to_cache_key()
