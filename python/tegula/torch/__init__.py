"""Tegula's operators for PyTorch: with gradients, as custom operators for ``torch.compile``, and with autocast; and
functions with the signatures of other libraries.
"""

from . import _functions
from ._bit_linear import BitLinear, ternary_weights
from ._cache_key import add_to_cache_key
from ._custom_op import custom_op
from ._decode_drop_in import flash_attn_with_kvcache
from ._deepseek import DeepseekSparseAttention, LatentCache
from ._drop_in import block_sparse_attn, native_sparse_attend
from ._experts import MixtureOfExperts, grouped_mm
from ._functions import *  # noqa: F403
from ._latent_drop_in import flash_mla_sparse_fwd, flash_mla_with_kvcache
from ._native_sparse import NativeSparseAttention, NativeSparseCache, native_sparse_attention
from ._nsa_drop_in import naive_nsa, parallel_nsa, parallel_nsa_compression
from ._paged_drop_in import batch_decode_with_paged_kv_cache
from ._recurrent import (
    GatedDeltaNet,
    LinearAttention,
    Mamba2,
    RecurrentCache,
    Retention,
    lightning_decays,
    retention_decays,
)
from ._recurrent_drop_in import (
    chunk_gated_delta_rule,
    chunk_retention,
    fused_chunk_linear_attn,
    mamba_chunk_scan_combined,
)
from ._relatives import (
    infllm_attention,
    moba_attention,
    msa_attention,
    qsa_attention,
    video_attention,
    xattention,
)
from ._sparse_attention import SparseAttention
from ._vertical_slash import vertical_slash_attention, vertical_slash_select

__all__ = [
    "BitLinear",
    "DeepseekSparseAttention",
    "GatedDeltaNet",
    "LatentCache",
    "LinearAttention",
    "Mamba2",
    "MixtureOfExperts",
    "NativeSparseAttention",
    "NativeSparseCache",
    "RecurrentCache",
    "Retention",
    "SparseAttention",
    "batch_decode_with_paged_kv_cache",
    "block_sparse_attn",
    "chunk_gated_delta_rule",
    "chunk_retention",
    "custom_op",
    "flash_attn_with_kvcache",
    "flash_mla_sparse_fwd",
    "flash_mla_with_kvcache",
    "fused_chunk_linear_attn",
    "grouped_mm",
    "infllm_attention",
    "lightning_decays",
    "mamba_chunk_scan_combined",
    "moba_attention",
    "msa_attention",
    "naive_nsa",
    "native_sparse_attend",
    "native_sparse_attention",
    "parallel_nsa",
    "parallel_nsa_compression",
    "qsa_attention",
    "retention_decays",
    "ternary_weights",
    "vertical_slash_attention",
    "vertical_slash_select",
    "video_attention",
    "xattention",
    *_functions.__all__,
]

add_to_cache_key()
