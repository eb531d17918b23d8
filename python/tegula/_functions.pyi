# Printed from the tables of the operators by scripts/print-stubs.
from typing import Any, Callable, Literal, NamedTuple

from ._arrays import Array

functions: dict[str, Callable[..., Any]]
__all__ = ["attention", "attention_backward", "block_sparse_attention_backward", "block_sparse_attention", "block_sparse_gemm", "conv1d", "conv2d", "conv3d", "conv1d_backward", "conv2d_backward", "conv3d_backward", "append_kv", "attention_with_kv_cache", "merge_attention", "mla_decode", "fused_moe", "fused_moe_backward", "gated_mlp", "quantised_moe", "scaled_moe", "moe_sort", "moe_permute", "moe_unpermute", "gated_delta_rule", "gated_delta_rule_backward", "kda", "kda_backward", "gemm", "accumulate_gemm", "gemv", "grouped_gemm", "grouped_gemm_weights", "accumulate_grouped_gemm_weights", "integer_gemm", "indexer_logits", "indexer_logits_backward", "indexer_topk_of_blocks", "indexer_topk", "paged_indexer_logits", "sparse_mla", "sparse_mla_backward", "sparse_mla_decode", "sparse_mla_target", "topk_select", "causal_conv1d", "causal_conv1d_backward", "linear_attention", "linear_attention_backward", "nsa_combine", "nsa_combine_backward", "nsa_gated_attention", "nsa_gated_attention_backward", "nsa_selected_attention", "nsa_selected_attention_backward", "nsa_compress", "nsa_compress_backward", "nsa_compressed_attention", "nsa_compressed_attention_backward", "nsa_select", "nsa_decode", "quantised_gemm", "quantised_grouped_gemm", "cast_fp8", "uncast_fp8", "cross_entropy", "cross_entropy_and_gradient", "cross_entropy_backward", "cumsum", "silu_and_mul", "gelu_and_mul", "relu_and_mul", "silu_and_mul_backward", "gelu_and_mul_backward", "relu_and_mul_backward", "swiglu_oai", "swiglu_oai_backward", "hadamard", "hadamard_backward", "layer_norm", "layer_norm_backward", "add_layer_norm", "add_layer_norm_backward", "rms_norm_fp8", "layer_norm_fp8", "rms_norm", "rms_norm_backward", "add_rms_norm", "add_rms_norm_backward", "rope", "softmax", "log_softmax", "softmax_backward", "log_softmax_backward", "topk", "scaled_gemm", "scaled_grouped_gemm", "scaled_grouped_gemm_weights", "block_scores", "topk_blocks", "vertical_slash_blocks", "compress_24", "gemm_24", "integer_gemm_24", "selective_state_update", "ssd", "ssd_backward", "ssd_chunk_state", "ssd_chunk_state_backward", "ssd_state_passing", "ssd_state_passing_backward", "ssd_chunk_scan", "ssd_chunk_scan_backward", "AttentionResult", "AttentionBackwardResult", "BlockSparseAttentionBackwardResult", "BlockSparseAttentionResult", "Conv1dBackwardResult", "Conv2dBackwardResult", "Conv3dBackwardResult", "AttentionWithKvCacheResult", "MergeAttentionResult", "MlaDecodeResult", "FusedMoeBackwardResult", "MoeSortResult", "GatedDeltaRuleResult", "GatedDeltaRuleBackwardResult", "KdaResult", "KdaBackwardResult", "IndexerLogitsBackwardResult", "SparseMlaResult", "SparseMlaBackwardResult", "SparseMlaDecodeResult", "CausalConv1dResult", "CausalConv1dBackwardResult", "LinearAttentionResult", "LinearAttentionBackwardResult", "NsaCombineBackwardResult", "NsaGatedAttentionResult", "NsaGatedAttentionBackwardResult", "NsaSelectedAttentionResult", "NsaSelectedAttentionBackwardResult", "NsaCompressedAttentionResult", "NsaCompressedAttentionBackwardResult", "CastFp8Result", "CrossEntropyResult", "CrossEntropyAndGradientResult", "LayerNormBackwardResult", "AddLayerNormResult", "AddLayerNormBackwardResult", "RmsNormFp8Result", "LayerNormFp8Result", "RmsNormBackwardResult", "AddRmsNormResult", "AddRmsNormBackwardResult", "TopkResult", "VerticalSlashBlocksResult", "Compress24Result", "SelectiveStateUpdateResult", "SsdResult", "SsdBackwardResult", "SsdChunkStateResult", "SsdChunkStateBackwardResult", "SsdStatePassingResult", "SsdStatePassingBackwardResult", "SsdChunkScanBackwardResult"]

class AttentionResult(NamedTuple):
    out: Any
    lse: Any

def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    sinks: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    q_scale: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    scale: float | None = None,
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    softcap: float = 0.0,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    tile_queries: int = 0,
    tile_keys: int = 0,
    splits: int = 0,
    out_dtype: Any = None,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> AttentionResult:
    """Softmax(scale q k^T) v over all keys or a window, with grouped heads.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16, bfloat16 or float8_e4m3fn: queries. The last
            dimension is contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        sinks: [kv_heads * group], float32, float16 or bfloat16: one logit per head that is added to the sum of the
            softmax but has no value. Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        q_scale: [sequences, kv_heads] if cu_seqlens_q; [batch, kv_heads], float32: positive factors of queries in 8
            bits: one, or one for each sequence or head of k. Optional.
        k_scale: [sequences, kv_heads] if cu_seqlens_q; [batch, kv_heads], float32: positive factors of keys,
            likewise. Optional.
        v_scale: [sequences, kv_heads] if cu_seqlens_q; [batch, kv_heads], float32: factors of values, likewise.
            Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        causal: hides later keys; the last query is aligned with the last key.
        left: keys before its position that a query sees; -1: all of them; a number of keys, or -1 for all.
        right: keys after its position that a query sees; -1: all of them; causal implies 0; a number of keys, or -1
            for all.
        softcap: scores become softcap * tanh(score / softcap); 0 is off; a positive number, or 0 for none.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        splits: splits of the keys of a tile, which are merged; 0: planned; a number from 1 to 64, or 0 for the
            plan's choice.
        out_dtype: dtype of the result of e4m3; of others that of q; f32, f16 or bf16, chosen by the operator unless
            given.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], out_dtype, or that of q, bfloat16 where that has 8
            bits: the weighted sums of values; 0 where no key is seen. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: natural
            logarithm of the sum of exp(score); -inf where no key is seen, with a sink its logit.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        q_scale: expected q of 8 bits; put the factor of all scores into scale.
        k_scale: expected k of 8 bits; put the factor of all scores into scale.
        v_scale: expected v of 8 bits; multiply the result by it.
        out_dtype: expected the dtype of q, unless that is e4m3; convert the result.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Vaswani et al. 2017, Attention Is All You Need; by tiles as in Dao et al. 2022, FlashAttention.
    """

class AttentionBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any
    dsinks: Any

def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    dlse: Array | None = None,
    sinks: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    scale: float | None = None,
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    softcap: float = 0.0,
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    tile_queries: int = 0,
    tile_keys: int = 0,
    deterministic: bool = True,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    dsinks: Array | None = None,
    target: str = "automatic",
) -> AttentionBackwardResult:
    """Gradients of attention with respect to q, k, v and the sinks.

    Args:
        dout: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. The last
            dimension is contiguous.
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the result of attention. The last
            dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: the lse of
            that result.
        dlse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: gradient of
            lse; ignored where lse is -inf. Optional.
        sinks: [kv_heads * group], float32, float16 or bfloat16: one logit per head that is added to the sum of the
            softmax but has no value. Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        causal: hides later keys; the last query is aligned with the last key.
        left: keys before its position that a query sees; -1: all of them; a number of keys, or -1 for all.
        right: keys after its position that a query sees; -1: all of them; causal implies 0; a number of keys, or -1
            for all.
        softcap: scores become softcap * tanh(score / softcap); 0 is off; a positive number, or 0 for none.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        deterministic: makes results bitwise reproducible; if false, the contributions to dq are added in any order
            if that is faster.
        dq, dk, dv, dsinks: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. The last dimension is contiguous.
        dk: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of k: gradient of k. The last dimension is contiguous.
        dv: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of v: gradient of v. The last dimension is contiguous.
        dsinks: [kv_heads * group], float32: gradient of the sinks. None unless sinks.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao 2023, FlashAttention-2.
    """

class BlockSparseAttentionBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any

def block_sparse_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    dlse: Array | None = None,
    indices: Array | None = None,
    counts: Array | None = None,
    mask: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    q_block_size: int = 64,
    k_block_size: int = 64,
    causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    tile_queries: int = 0,
    tile_keys: int = 0,
    deterministic: bool = True,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    target: str = "automatic",
) -> BlockSparseAttentionBackwardResult:
    """Gradients of block_sparse_attention with respect to q, k and v.

    Args:
        dout: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. The last
            dimension is contiguous.
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the result of
            block_sparse_attention. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: the lse of
            that result.
        dlse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: gradient of
            lse; ignored where lse is -inf. Optional.
        indices: [sequences, choosers, q_blocks, entries] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), entries], int32: numbers of the key blocks that a block of queries sees; other numbers,
            such as -1, select nothing; duplicates count once. Optional.
        counts: [sequences, choosers, q_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries, q_block_size)],
            int32: number of used entries of each row; all if omitted. Optional.
        mask: [sequences, choosers, q_blocks, k_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), ceildiv(keys, k_block_size)], bool: instead of indices: whether a block of queries sees a
            block of keys. Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        q_block_size: queries of a block; the last block may be short; a block size from 1 to 2^20.
        k_block_size: keys of a block; the last block may be short; a block size from 1 to 2^20.
        causal: hides later keys in the selected blocks; the last query is aligned with the last key.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        softcap: scores become softcap * tanh(score / softcap); 0 is off; a positive number, or 0 for none.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        deterministic: makes results bitwise reproducible; if false, the contributions to dq are added in any order
            if that is faster.
        dq, dk, dv: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. The last dimension is contiguous.
        dk: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of k: gradient of k. The last dimension is contiguous.
        dv: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of v: gradient of v. The last dimension is contiguous.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        indices: expected either indices or mask; give one of them.
        counts: expected counts with indices only; leave it out.
        indices: expected {heads} heads, as q, or {kv_heads}, as k, in dimension 1; give a row for each head.
        mask: expected {heads} heads, as q, or {kv_heads}, as k, in dimension 1; give a row for each head.
        indices: expected a row for every block of queries of the longest sequence; check q_block_size and
            k_block_size.
        mask: expected a row for every block of queries of the longest sequence; check q_block_size and
            k_block_size.
        mask: expected all blocks of keys of the longest sequence; check q_block_size and k_block_size.
        indices: expected fewer than 2^31 entries of a head, of all batches or sequences together; split the batch.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao 2023, FlashAttention-2, over lists that are inverted on the device.
    """

class BlockSparseAttentionResult(NamedTuple):
    out: Any
    lse: Any

def block_sparse_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    indices: Array | None = None,
    counts: Array | None = None,
    mask: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    q_block_size: int = 64,
    k_block_size: int = 64,
    causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    tile_queries: int = 0,
    tile_keys: int = 0,
    ascending: bool = False,
    check_indices: bool = False,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> BlockSparseAttentionResult:
    """Attention in which every block of queries sees selected blocks of keys.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        indices: [sequences, choosers, q_blocks, entries] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), entries], int32: numbers of the key blocks that a block of queries sees; other numbers,
            such as -1, select nothing; duplicates count once. Optional.
        counts: [sequences, choosers, q_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries, q_block_size)],
            int32: number of used entries of each row; all if omitted. Optional.
        mask: [sequences, choosers, q_blocks, k_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), ceildiv(keys, k_block_size)], bool: instead of indices: whether a block of queries sees a
            block of keys. Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        q_block_size: queries of a block; the last block may be short; a block size from 1 to 2^20.
        k_block_size: keys of a block; the last block may be short; a block size from 1 to 2^20.
        causal: hides later keys in the selected blocks; the last query is aligned with the last key.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        softcap: scores become softcap * tanh(score / softcap); 0 is off; a positive number, or 0 for none.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        ascending: promises that used entries of indices ascend and are blocks of which the queries see keys; a GPU
            then need not sort them.
        check_indices: refuses used entries that are neither -1 nor a block; the call then waits for the GPU.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the weighted sums of values; 0
            where no key is seen. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: natural
            logarithm of the sum of exp(score); -inf where no key is seen, with a sink its logit.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        indices: expected either indices or mask; give one of them.
        counts: expected counts with indices only; leave it out.
        indices: expected {heads} heads, as q, or {kv_heads}, as k, in dimension 1; give a row for each head.
        mask: expected {heads} heads, as q, or {kv_heads}, as k, in dimension 1; give a row for each head.
        indices: expected a row for every block of queries of the longest sequence; check q_block_size and
            k_block_size.
        mask: expected a row for every block of queries of the longest sequence; check q_block_size and
            k_block_size.
        mask: expected all blocks of keys of the longest sequence; check q_block_size and k_block_size.
        ascending: expected indices; leave it out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: after MagiAttention's block_sparse_attn (SandAI 2026), with masks, counts and causality in addition.
    """

def block_sparse_gemm(
    a: Array,
    b: Array,
    mask: Array,
    *,
    transpose_b: bool = False,
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Matrix product over the blocks of m, n and k that a mask selects.

    Args:
        a: [m, k], float32, float16 or bfloat16: left matrix.
        b: [n, k] if transpose_b; [k, n], dtype that of a: right matrix.
        mask: [blocks_m, blocks_n, blocks_k], bool: which blocks are summed.
        transpose_b: b is [n, k].
        block_m: rows of a block; a multiple of 16.
        block_n: columns of a block; a multiple of 16.
        block_k: inner extent of a block; a multiple of 16.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n], out_dtype, or that of a, bfloat16 where that has 8 bits: the sums.

    Rules:
        block_m: expected a multiple of 16; give masks of such blocks.
        block_n: expected a multiple of 16; give masks of such blocks.
        block_k: expected a multiple of 16; give masks of such blocks.
        mask: expected an entry for every block of m; check block_m.
        mask: expected an entry for every block of n; check block_n.
        mask: expected an entry for every block of k; check block_k.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gray et al. 2017, GPU Kernels for Block-Sparse Weights.
    """

def conv1d(
    x: Array,
    weight: Array,
    *,
    bias: Array | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Convolution over one dimension, channels last.

    Args:
        x: [batch, width, channels], float32, float16 or bfloat16: images.
        weight: [features, taps_w, channels / groups], dtype that of x: filters.
        bias: [features], float32, float16 or bfloat16: added to every pixel. Optional.
        stride: stride: input pixels from one output to the next; a number from 1 to 2^16.
        padding: zeros around the images; a number from 0 to 2^16.
        dilation: dilation: input pixels from one tap of a filter to the next; a number from 1 to 2^16.
        groups: groups of channels and features that are convolved separately; a number from 1 to 2^16.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, out_width, features], dtype that of x: the convolution.

    Rules:
        weight: expected a tap or more; give filters that have elements.
        groups: expected a divisor of {channels}, the channels; change it.
        groups: expected a divisor of {features}, the features; change it.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition.
    """

def conv2d(
    x: Array,
    weight: Array,
    *,
    bias: Array | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Convolution over two dimensions, channels last.

    Args:
        x: [batch, height, width, channels], float32, float16 or bfloat16: images.
        weight: [features, taps_h, taps_w, channels / groups], dtype that of x: filters.
        bias: [features], float32, float16 or bfloat16: added to every pixel. Optional.
        stride: stride: input pixels from one output to the next; a number from 1 to 2^16.
        padding: zeros around the images; a number from 0 to 2^16.
        dilation: dilation: input pixels from one tap of a filter to the next; a number from 1 to 2^16.
        groups: groups of channels and features that are convolved separately; a number from 1 to 2^16.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, out_height, out_width, features], dtype that of x: the convolution.

    Rules:
        weight: expected a tap or more; give filters that have elements.
        weight: expected a tap or more; give filters that have elements.
        groups: expected a divisor of {channels}, the channels; change it.
        groups: expected a divisor of {features}, the features; change it.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition.
    """

def conv3d(
    x: Array,
    weight: Array,
    *,
    bias: Array | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Convolution over three dimensions, channels last.

    Args:
        x: [batch, depth, height, width, channels], float32, float16 or bfloat16: images.
        weight: [features, taps_d, taps_h, taps_w, channels / groups], dtype that of x: filters.
        bias: [features], float32, float16 or bfloat16: added to every pixel. Optional.
        stride: stride: input pixels from one output to the next; a number from 1 to 2^16.
        padding: zeros around the images; a number from 0 to 2^16.
        dilation: dilation: input pixels from one tap of a filter to the next; a number from 1 to 2^16.
        groups: groups of channels and features that are convolved separately; a number from 1 to 2^16.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, out_depth, out_height, out_width, features], dtype that of x: the convolution.

    Rules:
        weight: expected a tap or more; give filters that have elements.
        weight: expected a tap or more; give filters that have elements.
        weight: expected a tap or more; give filters that have elements.
        groups: expected a divisor of {channels}, the channels; change it.
        groups: expected a divisor of {features}, the features; change it.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition.
    """

class Conv1dBackwardResult(NamedTuple):
    dx: Any
    dweight: Any
    dbias: Any

def conv1d_backward(
    dout: Array,
    x: Array,
    weight: Array,
    *,
    bias: Array | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
    target: str = "automatic",
) -> Conv1dBackwardResult:
    """Gradients of conv1d.

    Args:
        dout: [batch, out_width, features], dtype that of x: gradient of out.
        x: [batch, width, channels], float32, float16 or bfloat16: images.
        weight: [features, taps_w, channels / groups], dtype that of x: filters.
        bias: [features], float32, float16 or bfloat16: added to every pixel. Optional.
        stride: stride: input pixels from one output to the next; a number from 1 to 2^16.
        padding: zeros around the images; a number from 0 to 2^16.
        dilation: dilation: input pixels from one tap of a filter to the next; a number from 1 to 2^16.
        groups: groups of channels and features that are convolved separately; a number from 1 to 2^16.
        dx, dweight, dbias: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [batch, width, channels], dtype that of x: gradient of x.
        dweight: [features, taps_w, channels / groups], float32: gradient of weight.
        dbias: [features], float32: gradient of bias. None unless bias.

    Rules:
        weight: expected a tap or more; give filters that have elements.
        groups: expected a divisor of {channels}, the channels; change it.
        groups: expected a divisor of {features}, the features; change it.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition.
    """

class Conv2dBackwardResult(NamedTuple):
    dx: Any
    dweight: Any
    dbias: Any

def conv2d_backward(
    dout: Array,
    x: Array,
    weight: Array,
    *,
    bias: Array | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
    target: str = "automatic",
) -> Conv2dBackwardResult:
    """Gradients of conv2d.

    Args:
        dout: [batch, out_height, out_width, features], dtype that of x: gradient of out.
        x: [batch, height, width, channels], float32, float16 or bfloat16: images.
        weight: [features, taps_h, taps_w, channels / groups], dtype that of x: filters.
        bias: [features], float32, float16 or bfloat16: added to every pixel. Optional.
        stride: stride: input pixels from one output to the next; a number from 1 to 2^16.
        padding: zeros around the images; a number from 0 to 2^16.
        dilation: dilation: input pixels from one tap of a filter to the next; a number from 1 to 2^16.
        groups: groups of channels and features that are convolved separately; a number from 1 to 2^16.
        dx, dweight, dbias: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [batch, height, width, channels], dtype that of x: gradient of x.
        dweight: [features, taps_h, taps_w, channels / groups], float32: gradient of weight.
        dbias: [features], float32: gradient of bias. None unless bias.

    Rules:
        weight: expected a tap or more; give filters that have elements.
        weight: expected a tap or more; give filters that have elements.
        groups: expected a divisor of {channels}, the channels; change it.
        groups: expected a divisor of {features}, the features; change it.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition.
    """

class Conv3dBackwardResult(NamedTuple):
    dx: Any
    dweight: Any
    dbias: Any

def conv3d_backward(
    dout: Array,
    x: Array,
    weight: Array,
    *,
    bias: Array | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
    target: str = "automatic",
) -> Conv3dBackwardResult:
    """Gradients of conv3d.

    Args:
        dout: [batch, out_depth, out_height, out_width, features], dtype that of x: gradient of out.
        x: [batch, depth, height, width, channels], float32, float16 or bfloat16: images.
        weight: [features, taps_d, taps_h, taps_w, channels / groups], dtype that of x: filters.
        bias: [features], float32, float16 or bfloat16: added to every pixel. Optional.
        stride: stride: input pixels from one output to the next; a number from 1 to 2^16.
        padding: zeros around the images; a number from 0 to 2^16.
        dilation: dilation: input pixels from one tap of a filter to the next; a number from 1 to 2^16.
        groups: groups of channels and features that are convolved separately; a number from 1 to 2^16.
        dx, dweight, dbias: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [batch, depth, height, width, channels], dtype that of x: gradient of x.
        dweight: [features, taps_d, taps_h, taps_w, channels / groups], float32: gradient of weight.
        dbias: [features], float32: gradient of bias. None unless bias.

    Rules:
        weight: expected a tap or more; give filters that have elements.
        weight: expected a tap or more; give filters that have elements.
        weight: expected a tap or more; give filters that have elements.
        groups: expected a divisor of {channels}, the channels; change it.
        groups: expected a divisor of {features}, the features; change it.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: LeCun et al. 1989, Backpropagation Applied to Handwritten Zip Code Recognition.
    """

def append_kv(
    k: Array,
    k_cache: Array,
    *,
    v: Array | None = None,
    v_cache: Array | None = None,
    block_table: Array | None = None,
    cache_seqlens: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    k_token_scale: Array | None = None,
    v_token_scale: Array | None = None,
    cosine: Array | None = None,
    sine: Array | None = None,
    positions: Array | None = None,
    pairing: Literal["halves", "neighbours"] = "halves",
    first_rotated: int = 0,
    target: str = "automatic",
) -> None:
    """Writes the newest tokens of sequences to a cache of keys and values.

    Args:
        k: [batch, tokens, kv_heads, d], float32, float16 or bfloat16: keys: the last tokens. The last dimension is
            contiguous.
        k_cache: [pages, page_size, kv_heads, d] if block_table; [batch, keys, kv_heads, d], float32, float16,
            bfloat16 or float8_e4m3fn: keys of all tokens. The last dimension is contiguous. Written in place.
        v: [batch, tokens, kv_heads, d_v], dtype that of k: values of the same tokens. The last dimension is
            contiguous. Optional.
        v_cache: [pages, page_size, kv_heads, d_v] if block_table; [batch, keys, kv_heads, d_v], dtype that of
            k_cache: values of all tokens. The last dimension is contiguous. Written in place. Optional.
        block_table: [batch, table_width], int32: page numbers of each sequence, in order; tokens of a negative
            entry are not stored. Optional.
        cache_seqlens: [batch], int32: length of each sequence, including the new tokens, or 0 where there is none;
            if omitted, sequences fill the cache. Optional.
        k_scale: [pages, page_size, kv_heads] if block_table; [batch, keys, kv_heads], float32: positive factors by
            which keys are divided: one, one for each head, or for each token and head. Optional.
        v_scale: [pages, page_size, kv_heads] if block_table; [batch, keys, kv_heads], float32: factors of values,
            likewise. Optional.
        k_token_scale: [pages, page_size, kv_heads] if block_table; [batch, keys, kv_heads], float32: factors of
            each token and head of keys, which are its largest magnitude / 448. Written in place. Optional.
        v_token_scale: [pages, page_size, kv_heads] if block_table; [batch, keys, kv_heads], float32: factors of
            values, likewise. Written in place. Optional.
        cosine: [length, half], float32: cosines of the angles of every position, by which pairs of features of keys
            are rotated. Optional.
        sine: [length, half], float32: sines of the same angles. Optional.
        positions: [batch, tokens], int32: positions of the tokens; default: their positions in their sequences.
            Optional.
        pairing: features that are rotated together: j and j + half, or 2j and 2j + 1; one of halves, neighbours.
        first_rotated: the first feature that is rotated; a feature.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        None: k_cache, v_cache, k_token_scale and v_token_scale hold the results.

    Rules:
        k_cache: expected the dtype of k, or e4m3; convert it.
        v: expected v and v_cache together; give both.
        cosine: expected cosine and sine together; give both.
        positions: expected cosine and sine as well; leave it out.
        v_scale: expected v as well; leave it out.
        v_token_scale: expected v as well; leave it out.
        k: expected 1 to 1024 features; split the heads.
        v: expected 1 to 1024 features; split the heads.
        cosine: expected 1 pair or more, among the {d} features of k; give the angles of fewer pairs.
        cosine: expected angles for all {room} tokens of the capacity; give longer tables, or positions.
        k_cache: expected room for the {tokens} new tokens of each sequence; append fewer, or give more pages.
        block_table: expected a capacity of fewer than 2^29 tokens; give shorter tables.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: pages as in Kwon et al. 2023, PagedAttention.
    """

class AttentionWithKvCacheResult(NamedTuple):
    out: Any
    lse: Any

def attention_with_kv_cache(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    *,
    block_table: Array | None = None,
    cache_seqlens: Array | None = None,
    tree_mask: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    indices: Array | None = None,
    counts: Array | None = None,
    mask: Array | None = None,
    sinks: Array | None = None,
    k_block_size: int = 64,
    scale: float | None = None,
    causal: bool = False,
    left: int = -1,
    softcap: float = 0.0,
    splits: int = 0,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> AttentionWithKvCacheResult:
    """Attention of the newest tokens to a cache of keys and values, paged or not.

    Args:
        q: [batch, queries, kv_heads * group, d], float32, float16 or bfloat16: queries of the last tokens. The last
            dimension is contiguous.
        k_cache: [pages, page_size, kv_heads, d] if block_table; [batch, keys, kv_heads, d], float32, float16,
            bfloat16 or float8_e4m3fn: keys. The last dimension is contiguous.
        v_cache: [pages, page_size, kv_heads, d_v] if block_table; [batch, keys, kv_heads, d_v], dtype that of
            k_cache: values. The last dimension is contiguous.
        block_table: [batch, table_width], int32: page numbers of each sequence, in order; an entry that is no page
            number, such as -1, is padding. Optional.
        cache_seqlens: [batch], int32: length of each sequence, including the tokens of q; if omitted, sequences
            fill the cache. Optional.
        tree_mask: [batch, queries, queries], bool: which of the last tokens each of them sees; all of them see the
            tokens before. Optional.
        k_scale: [pages, page_size, kv_heads] if block_table; [batch, keys, kv_heads], float32: positive factors of
            keys: one, one for each head, or for each token and head. Optional.
        v_scale: [pages, page_size, kv_heads] if block_table; [batch, keys, kv_heads], float32: factors of values,
            likewise. Optional.
        indices: [batch, kv_heads, entries], int32: numbers of the key blocks that a sequence sees; other numbers,
            such as -1, select nothing; duplicates count once. Optional.
        counts: [batch, kv_heads], int32: number of used entries of each list; all if omitted. Optional.
        mask: [batch, kv_heads, mask_blocks], bool: instead of indices: whether a sequence sees a block of keys.
            Optional.
        sinks: [kv_heads * group], float32, float16 or bfloat16: one logit per head that is added to the sum of the
            softmax but has no value. Optional.
        k_block_size: keys per block of the indices or the mask; a block size from 1 to 2^20.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        causal: hides later keys; the last query is aligned with the last key.
        left: keys before its position that a query sees; -1: all of them; a number of keys, or -1 for all.
        softcap: scores become softcap * tanh(score / softcap); 0 is off; a positive number, or 0 for none.
        splits: splits of the keys of a sequence, by its own length; 0: planned; a number from 1 to 64, or 0 for the
            plan's choice.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, queries, kv_heads * group, d_v], dtype that of q: the weighted sums of values; 0 where no key
            is seen. The last dimension is contiguous.
        lse: [batch, kv_heads * group, queries], float32: natural logarithm of the sum of exp(score); -inf where no
            key is seen, with a sink its logit.

    Rules:
        block_table: expected a capacity of fewer than 2^29 tokens; give shorter tables.
        indices: expected either indices or mask; give one of them.
        counts: expected counts with indices only; leave it out.
        mask: expected all blocks of the {room} keys of the capacity; check k_block_size.
        tree_mask: expected neither causal nor left with it; say it in the mask.
        k_cache: expected the dtype of q, or e4m3; convert it.
        k_cache: expected no heads, as q; give q a head for each of the cache, or more.
        q: expected 1 to 512 features; split the heads.
        v_cache: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao et al. 2023, Flash-Decoding for long-context inference; pages as in Kwon et al. 2023, PagedAttention.
    """

class MergeAttentionResult(NamedTuple):
    out: Any
    lse: Any

def merge_attention(
    outs: Array,
    lses: Array,
    *,
    sinks: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    out_dtype: Any = None,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> MergeAttentionResult:
    """Attention over all keys, merged from results over subsets of them.

    Args:
        outs: [parts, queries, heads, d] or [parts, batch, queries, heads, d] if layout=bshd; [parts, heads,
            queries, d] or [parts, batch, heads, queries, d], float32, float16 or bfloat16: results of attention
            over each part.
        lses: [parts, heads, queries] or [parts, batch, heads, queries], float32: lse of each part: the natural
            logarithm of the sum of exp(score).
        sinks: [heads], float32, float16 or bfloat16: one logit per head that is added to the sum of the softmax but
            has no value. Optional.
        layout: order of batch, sequence, heads, features; lses have their own; one of bshd, bhsd.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, heads, d] or [batch, queries, heads, d] if layout=bshd; [heads, queries, d] or [batch, heads,
            queries, d], out_dtype, or that of outs, bfloat16 where that has 8 bits: the weighted sums of values; 0
            where no part has a key.
        lse: [heads, queries] or [batch, heads, queries], float32: the lse over all keys; -inf where no part has
            one.

    Rules:
        outs: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the merge of Dao et al. 2023, Flash-Decoding for long-context inference.
    """

class MlaDecodeResult(NamedTuple):
    out: Any
    lse: Any

def mla_decode(
    q: Array,
    kv_cache: Array,
    *,
    block_table: Array | None = None,
    cache_seqlens: Array | None = None,
    tree_mask: Array | None = None,
    kv_scale: Array | None = None,
    sinks: Array | None = None,
    d_v: int = 512,
    scale: float | None = None,
    causal: bool = False,
    left: int = -1,
    softcap: float = 0.0,
    splits: int = 0,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> MlaDecodeResult:
    """Attention of the newest tokens to a cache of latents, which serve all heads as keys and values.

    Args:
        q: [batch, queries, heads, d], float32, float16 or bfloat16: absorbed queries of the last tokens. The last
            dimension is contiguous.
        kv_cache: [pages, page_size, row] if block_table; [batch, keys, row], float32, float16, bfloat16,
            float8_e4m3fn or uint8: latent rows, whose first d_v features are the values, or records of bytes. The
            last dimension is contiguous.
        block_table: [batch, table_width], int32: page numbers of each sequence, in order; an entry that is no page
            number, such as -1, is padding. Optional.
        cache_seqlens: [batch], int32: length of each sequence, including the tokens of q; if omitted, sequences
            fill the cache. Optional.
        tree_mask: [batch, queries, queries], bool: which of the last tokens each of them sees; all of them see the
            tokens before. Optional.
        kv_scale: [pages, page_size] if block_table; [batch, keys], float32: positive factors of rows: one for all,
            or one per row. Optional.
        sinks: [heads], float32, float16 or bfloat16: one logit per head that is added to the sum of the softmax but
            has no value. Optional.
        d_v: leading features of a row that are its value; a number of features from 1 to 512.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        causal: hides later keys; the last query is aligned with the last key.
        left: keys before its position that a query sees; -1: all of them; a number of keys, or -1 for all.
        softcap: scores become softcap * tanh(score / softcap); 0 is off; a positive number, or 0 for none.
        splits: splits of the keys of a sequence, by its own length; 0: planned; a number from 1 to 64, or 0 for the
            plan's choice.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, queries, heads, d_v], dtype that of q: the weighted sums of values; 0 where no key is seen. The
            last dimension is contiguous.
        lse: [batch, heads, queries], float32: natural logarithm of the sum of exp(score); -inf where no key is
            seen, with a sink its logit.

    Rules:
        block_table: expected a capacity of fewer than 2^29 tokens; give shorter tables.
        tree_mask: expected neither causal nor left with it; say it in the mask.
        kv_cache: expected the dtype of q, e4m3, or u8 with q in bf16; convert it.
        kv_cache: expected rows of {d} features, or records of 656 bytes for 576 features, 584 for 512, with d_v
            512; check the features of q.
        kv_cache: expected contiguous records at addresses that are multiples of 16; pass a contiguous copy.
        d_v: expected no more than the {d} features of a row, at most 640; give those that are values.
        kv_scale: expected rows of features: records have their own factors; leave it out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2024, DeepSeek-V2: decoding of its multi-head latent attention.
    """

def fused_moe(
    x: Array,
    experts: Array,
    weights: Array,
    w1: Array,
    w2: Array,
    *,
    bias1: Array | None = None,
    bias2: Array | None = None,
    unit: Literal["silu", "gelu", "relu", "swiglu_oai"] = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """A mixture of experts: gated units between two products, of the experts of every token.

    Args:
        x: [tokens, d], float32, float16 or bfloat16: rows of tokens.
        experts: [tokens, topk], int32: experts of each token; a negative number is skipped.
        weights: [tokens, topk], float32, float16 or bfloat16: factors of the experts' results.
        w1: [groups, 2 * inner, d], dtype that of x: matrix of each expert: the rows of gates, then those of values.
        w2: [groups, d, inner], dtype that of x: second matrix of each expert.
        bias1: [groups, 2 * inner], float32, float16 or bfloat16: added to the first products. Optional.
        bias2: [groups, d], float32, float16 or bfloat16: added to the second products. Optional.
        unit: gated unit between the two products; one of silu, gelu, relu, swiglu_oai.
        alpha: swiglu_oai only: factor of the gate inside the sigmoid; a finite number.
        limit: swiglu_oai only: limit to which gates and values are clamped; a positive finite number.
        interleaved: swiglu_oai only: the rows of w1 alternate between gates and values.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, d], dtype that of x: sum of weights * (unit(x w1^T + bias1) w2^T + bias2).

    Rules:
        experts: expected at most 256 experts of a token; add results of fewer.
        w1: expected an expert or more; give experts.
        w1: expected at most 8192 experts; give fewer.
        interleaved: expected swiglu_oai as the unit; reorder the rows of w1.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer et al. 2017, Outrageously Large Neural Networks; DeepSeek-AI 2024; OpenAI 2025, gpt-oss.
    """

class FusedMoeBackwardResult(NamedTuple):
    dx: Any
    dweights: Any
    dw1: Any
    dw2: Any
    dbias1: Any
    dbias2: Any

def fused_moe_backward(
    dout: Array,
    x: Array,
    experts: Array,
    weights: Array,
    w1: Array,
    w2: Array,
    *,
    bias1: Array | None = None,
    bias2: Array | None = None,
    unit: Literal["silu", "gelu", "relu", "swiglu_oai"] = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    dx: Array | None = None,
    dweights: Array | None = None,
    dw1: Array | None = None,
    dw2: Array | None = None,
    dbias1: Array | None = None,
    dbias2: Array | None = None,
    target: str = "automatic",
) -> FusedMoeBackwardResult:
    """Gradients of fused_moe.

    Args:
        dout: [tokens, d], dtype that of x: gradient of out.
        x: [tokens, d], float32, float16 or bfloat16: rows of tokens.
        experts: [tokens, topk], int32: experts of each token; a negative number is skipped.
        weights: [tokens, topk], float32, float16 or bfloat16: factors of the experts' results.
        w1: [groups, 2 * inner, d], dtype that of x: matrix of each expert: the rows of gates, then those of values.
        w2: [groups, d, inner], dtype that of x: second matrix of each expert.
        bias1: [groups, 2 * inner], float32, float16 or bfloat16: added to the first products. Optional.
        bias2: [groups, d], float32, float16 or bfloat16: added to the second products. Optional.
        unit: gated unit between the two products; one of silu, gelu, relu, swiglu_oai.
        alpha: swiglu_oai only: factor of the gate inside the sigmoid; a finite number.
        limit: swiglu_oai only: limit to which gates and values are clamped; a positive finite number.
        interleaved: swiglu_oai only: the rows of w1 alternate between gates and values.
        dx, dweights, dw1, dw2, dbias1, dbias2: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [tokens, d], dtype that of x: gradient of x.
        dweights: [tokens, topk], dtype that of weights: gradient of weights.
        dw1: [groups, 2 * inner, d], float32: gradient of w1.
        dw2: [groups, d, inner], float32: gradient of w2.
        dbias1: [groups, 2 * inner], float32: gradient of bias1. None unless bias1.
        dbias2: [groups, d], float32: gradient of bias2. None unless bias2.

    Rules:
        experts: expected at most 256 experts of a token; add results of fewer.
        w1: expected an expert or more; give experts.
        w1: expected at most 8192 experts; give fewer.
        interleaved: expected swiglu_oai as the unit; reorder the rows of w1.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer et al. 2017, Outrageously Large Neural Networks; DeepSeek-AI 2024; OpenAI 2025, gpt-oss.
    """

def gated_mlp(
    x: Array,
    w1: Array,
    w2: Array,
    *,
    bias1: Array | None = None,
    bias2: Array | None = None,
    unit: Literal["silu", "gelu", "relu", "swiglu_oai"] = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """A gated unit between two products, as an expert that all tokens share.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows of tokens.
        w1: [2 * inner, d], dtype that of x: rows of gates, then of values.
        w2: [d, inner], dtype that of x: weights of the second product.
        bias1: [2 * inner], float32, float16 or bfloat16: added to the first product. Optional.
        bias2: [d], float32, float16 or bfloat16: added to the second product. Optional.
        unit: gated unit between the two products; one of silu, gelu, relu, swiglu_oai.
        alpha: swiglu_oai only: factor of the gate inside the sigmoid; a finite number.
        limit: swiglu_oai only: limit to which gates and values are clamped; a positive finite number.
        interleaved: swiglu_oai only: the rows of w1 alternate between gates and values.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: unit(x w1^T + bias1) w2^T + bias2.

    Rules:
        interleaved: expected swiglu_oai as the unit; reorder the rows of w1.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """

def quantised_moe(
    x: Array,
    experts: Array,
    weights: Array,
    scales1: Array,
    w1: Array,
    scales2: Array,
    w2: Array,
    *,
    bias1: Array | None = None,
    bias2: Array | None = None,
    format: Literal["int4", "uint4", "int8", "fp4", "mxfp4", "nvfp4", "ternary"] = "mxfp4",
    packed: bool = False,
    block: int = 128,
    unit: Literal["silu", "gelu", "relu", "swiglu_oai"] = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """A mixture of experts with weights of 8, 4 or 2 bits.

    Args:
        x: [tokens, d], bfloat16 or float16: rows of tokens.
        experts: [tokens, topk], int32: experts of each token; a negative number is skipped.
        weights: [tokens, topk], float32, float16 or bfloat16: factors of the experts' results.
        scales1: [groups, blocks1, 2 * inner], float16, bfloat16, float32, uint8 or float8_e4m3fn: factors of every
            block of weights of w1.
        w1: [groups, 2 * inner, d] if format=int8; [groups, 2 * inner, d / 4] if format=ternary; [groups, 2 * inner,
            d / 2], uint8 or int8: matrix of each expert: the rows of gates, then those of values.
        scales2: [groups, blocks2, d], dtype that of scales1: factors of every block of weights of w2.
        w2: [groups, d, inner] if format=int8; [groups, d, inner / 4] if format=ternary; [groups, d, inner / 2],
            dtype that of w1: second matrix of each expert.
        bias1: [groups, 2 * inner], float32, float16 or bfloat16: added to the first products. Optional.
        bias2: [groups, d], float32, float16 or bfloat16: added to the second products. Optional.
        format: format of a weight before it is scaled; one of int4, uint4, int8, fp4, mxfp4, nvfp4, ternary.
        packed: w1 and w2 are in the order that packed_weights returns.
        block: weights that share a scale; 32 for mxfp4, 16 for nvfp4; 0, 16, 32 or a multiple of 64.
        unit: gated unit between the two products; one of silu, gelu, relu, swiglu_oai.
        alpha: swiglu_oai only: factor of the gate inside the sigmoid; a finite number.
        limit: swiglu_oai only: limit to which gates and values are clamped; a positive finite number.
        interleaved: swiglu_oai only: the rows of w1 alternate between gates and values.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, d], dtype that of x: sum of weights * (unit(x W1^T + bias1) W2^T + bias2).

    Rules:
        experts: expected at most 256 experts of a token; add results of fewer.
        w1: expected an expert or more; give experts.
        w1: expected at most 8192 experts; give fewer.
        interleaved: expected swiglu_oai as the unit; reorder the rows of w1.
        w1: expected weights and scales of the format; check format and scales.
        block: expected 0, 16, 32 or a multiple of 64; give scales of such blocks.
        w1: expected weights that fill bytes; add columns of zeros.
        scales1: expected a scale for every {of_scale1} weights; check block and format.
        scales2: expected a scale for every {of_scale2} weights; check block and format.
        w1: expected 4 bits, and a multiple of 64 weights in a row; leave packed out, or add columns of zeros.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: OpenAI 2025, gpt-oss; OCP Microscaling Formats (MX) 1.0, 2023.
    """

def scaled_moe(
    x: Array,
    experts: Array,
    weights: Array,
    w1: Array,
    scale1: Array,
    w2: Array,
    scale2: Array,
    *,
    bias1: Array | None = None,
    bias2: Array | None = None,
    unit: Literal["silu", "gelu", "relu", "swiglu_oai"] = "silu",
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """A mixture of experts with weights of 8 bits that have scales of 128 x 128.

    Args:
        x: [tokens, d], bfloat16 or float16: rows of tokens.
        experts: [tokens, topk], int32: experts of each token; a negative number is skipped.
        weights: [tokens, topk], float32, float16 or bfloat16: factors of the experts' results.
        w1: [groups, 2 * inner, d], float8_e4m3fn: matrix of each expert: the rows of gates, then those of values.
        scale1: [groups, (2 * inner + 127) / 128, (d + 127) / 128], float32: factors of the blocks of w1.
        w2: [groups, d, inner], float8_e4m3fn: second matrix of each expert.
        scale2: [groups, (d + 127) / 128, (inner + 127) / 128], float32: factors of the blocks of w2.
        bias1: [groups, 2 * inner], float32, float16 or bfloat16: added to the first products. Optional.
        bias2: [groups, d], float32, float16 or bfloat16: added to the second products. Optional.
        unit: gated unit between the two products; one of silu, gelu, relu, swiglu_oai.
        alpha: swiglu_oai only: factor of the gate inside the sigmoid; a finite number.
        limit: swiglu_oai only: limit to which gates and values are clamped; a positive finite number.
        interleaved: swiglu_oai only: the rows of w1 alternate between gates and values.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, d], dtype that of x: sum of weights * (unit(x w1^T + bias1) w2^T + bias2).

    Rules:
        experts: expected at most 256 experts of a token; add results of fewer.
        w1: expected an expert or more; give experts.
        w1: expected at most 8192 experts; give fewer.
        interleaved: expected swiglu_oai as the unit; reorder the rows of w1.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report.
    """

class MoeSortResult(NamedTuple):
    order: Any
    places: Any
    offsets: Any

def moe_sort(
    experts: Array,
    groups: int,
    *,
    order: Array | None = None,
    places: Array | None = None,
    offsets: Array | None = None,
    target: str = "automatic",
) -> MoeSortResult:
    """Pairs of tokens and experts in the order of experts.

    Args:
        experts: [tokens, topk], int32: experts of each token, less than groups; a negative number is skipped.
        groups: number of experts; a number from 1 to 8192.
        order, places, offsets: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        order: [tokens * topk], int32: pairs in ascending order of their experts; -1 after the last.
        places: [tokens, topk], int32: position of every pair in that order; -1 if it is skipped.
        offsets: [groups + 1], int32: first pair of each expert, and the end of the last one's.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts.
    """

def moe_permute(
    x: Array,
    order: Array,
    topk: int,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows of tokens in the order of their experts.

    Args:
        x: [tokens, d], float32, float16 or bfloat16: rows of tokens.
        order: [pairs], int32: pairs, each once: token * topk + choice; negative: zeros.
        topk: experts of a token; a number from 1 to 256.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [pairs, d], dtype that of x: the row of the token of every pair.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts.
    """

def moe_unpermute(
    y: Array,
    places: Array,
    *,
    weights: Array | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Weighted sums of the rows of tokens' experts.

    Args:
        y: [pairs, d], float32, float16 or bfloat16: rows in the order of experts.
        places: [tokens, topk], int32: rows of each token, each row once; a negative number is skipped.
        weights: [tokens, topk], float32, float16 or bfloat16: factors of the rows. Optional.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, d], dtype that of y: sums of the rows over the experts of each token.

    Rules:
        places: expected at most 256 experts of a token; add sums of fewer.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts.
    """

class GatedDeltaRuleResult(NamedTuple):
    out: Any
    final_state: Any

def gated_delta_rule(
    q: Array,
    k: Array,
    v: Array,
    beta: Array,
    *,
    g: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    scale: float | None = None,
    qk_l2norm: bool = False,
    output_final_state: bool = False,
    out: Array | None = None,
    final_state: Array | None = None,
    target: str = "automatic",
) -> GatedDeltaRuleResult:
    """Linear attention whose state replaces the value of each key, with decays.

    Args:
        q: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        k: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: keys, of norms of
            at most about 1. The last dimension is contiguous.
        v: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of q:
            values. The last dimension is contiguous.
        beta: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32, float16 or
            bfloat16: share of the stored value that is replaced, 0 to 1.
        g: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32: logarithms of
            decays, at most 0. Optional.
        initial_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        scale: factor of the results; a finite number, 1/sqrt(d) unless given.
        qk_l2norm: q and k are divided by sqrt(sum of squares + 1e-6).
        output_final_state: also returns the states after the last token.
        out, final_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: scale * (state after the token) . q.
        final_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: states after the last token. None unless output_final_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        v: expected 1 to 512 features; split the heads.
        v: expected as many heads as k, or a multiple; give v a head for each of k.
        q: expected 1 to 256 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks; by chunks as Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule.
    """

class GatedDeltaRuleBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any
    dbeta: Any
    dg: Any
    dinitial_state: Any

def gated_delta_rule_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    beta: Array,
    *,
    dfinal_state: Array | None = None,
    g: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    scale: float | None = None,
    qk_l2norm: bool = False,
    output_final_state: bool = False,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    dbeta: Array | None = None,
    dg: Array | None = None,
    dinitial_state: Array | None = None,
    target: str = "automatic",
) -> GatedDeltaRuleBackwardResult:
    """Gradients of gated_delta_rule.

    Args:
        dout: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: gradient of out.
        dfinal_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: gradient of final_state. Optional.
        q: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        k: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: keys, of norms of
            at most about 1. The last dimension is contiguous.
        v: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of q:
            values. The last dimension is contiguous.
        beta: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32, float16 or
            bfloat16: share of the stored value that is replaced, 0 to 1.
        g: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32: logarithms of
            decays, at most 0. Optional.
        initial_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        scale: factor of the results; a finite number, 1/sqrt(d) unless given.
        qk_l2norm: q and k are divided by sqrt(sum of squares + 1e-6).
        output_final_state: also returns the states after the last token.
        dq, dk, dv, dbeta, dg, dinitial_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: gradient of q. The
            last dimension is contiguous.
        dk: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of k: gradient of k. The
            last dimension is contiguous.
        dv: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: gradient of v. The last dimension is contiguous.
        dbeta: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], dtype that of beta:
            gradient of beta.
        dg: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], dtype that of g: gradient
            of g. None unless g.
        dinitial_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            dtype that of initial_state: gradient of initial_state. None unless initial_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        v: expected 1 to 512 features; split the heads.
        v: expected as many heads as k, or a multiple; give v a head for each of k.
        q: expected 1 to 256 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yang, Kautz and Hatamizadeh 2024, Gated Delta Networks; by chunks as Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule.
    """

class KdaResult(NamedTuple):
    out: Any
    final_state: Any

def kda(
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    *,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    scale: float | None = None,
    qk_l2norm: bool = False,
    output_final_state: bool = False,
    out: Array | None = None,
    final_state: Array | None = None,
    target: str = "automatic",
) -> KdaResult:
    """The gated delta rule with a decay for each feature.

    Args:
        q: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        k: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: keys, of norms of
            at most about 1. The last dimension is contiguous.
        v: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of q:
            values. The last dimension is contiguous.
        g: [tokens, key_heads * group, d] if cu_seqlens; [batch, tokens, key_heads * group, d], float32: logarithms
            of decays, -5 to 0.
        beta: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32, float16 or
            bfloat16: share of the stored value that is replaced, 0 to 1.
        initial_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        scale: factor of the results; a finite number, 1/sqrt(d) unless given.
        qk_l2norm: q and k are divided by sqrt(sum of squares + 1e-6).
        output_final_state: also returns the states after the last token.
        out, final_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: scale * (state after the token) . q.
        final_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: states after the last token. None unless output_final_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        v: expected 1 to 512 features; split the heads.
        v: expected as many heads as k, or a multiple; give v a head for each of k.
        q: expected 1 to 256 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Kimi Team 2025, Kimi Linear: An Expressive, Efficient Attention Architecture.
    """

class KdaBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any
    dg: Any
    dbeta: Any
    dinitial_state: Any

def kda_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    g: Array,
    beta: Array,
    *,
    dfinal_state: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    scale: float | None = None,
    qk_l2norm: bool = False,
    output_final_state: bool = False,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    dg: Array | None = None,
    dbeta: Array | None = None,
    dinitial_state: Array | None = None,
    target: str = "automatic",
) -> KdaBackwardResult:
    """Gradients of kda.

    Args:
        dout: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: gradient of out.
        dfinal_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: gradient of final_state. Optional.
        q: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        k: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: keys, of norms of
            at most about 1. The last dimension is contiguous.
        v: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of q:
            values. The last dimension is contiguous.
        g: [tokens, key_heads * group, d] if cu_seqlens; [batch, tokens, key_heads * group, d], float32: logarithms
            of decays, -5 to 0.
        beta: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32, float16 or
            bfloat16: share of the stored value that is replaced, 0 to 1.
        initial_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            float32: states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        scale: factor of the results; a finite number, 1/sqrt(d) unless given.
        qk_l2norm: q and k are divided by sqrt(sum of squares + 1e-6).
        output_final_state: also returns the states after the last token.
        dq, dk, dv, dg, dbeta, dinitial_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: gradient of q. The
            last dimension is contiguous.
        dk: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of k: gradient of k. The
            last dimension is contiguous.
        dv: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: gradient of v. The last dimension is contiguous.
        dg: [tokens, key_heads * group, d] if cu_seqlens; [batch, tokens, key_heads * group, d], dtype that of g:
            gradient of g.
        dbeta: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], dtype that of beta:
            gradient of beta.
        dinitial_state: [sequences, key_heads * group, d, d_v] if cu_seqlens; [batch, key_heads * group, d, d_v],
            dtype that of initial_state: gradient of initial_state. None unless initial_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        v: expected 1 to 512 features; split the heads.
        v: expected as many heads as k, or a multiple; give v a head for each of k.
        q: expected 1 to 256 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Kimi Team 2025, Kimi Linear: An Expressive, Efficient Attention Architecture.
    """

def gemm(
    a: Array,
    b: Array,
    *,
    bias: Array | None = None,
    row_scale: Array | None = None,
    column_scale: Array | None = None,
    residual: Array | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    activation: Literal["none", "relu", "gelu", "silu"] = "none",
    gated: bool = False,
    scale: float = 1.0,
    out_scale: float = 1.0,
    out_dtype: Any = None,
    sum_dtype: Any = None,
    precision: Literal["ieee", "tf32", "tf32x3"] = "ieee",
    tile_m: int = 0,
    tile_n: int = 0,
    tile_k: int = 0,
    splits: int = 0,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Matrix product with bias and activation.

    Args:
        a: [k, m] or [batch, k, m] if transpose_a; [m, k] or [batch, m, k], float32, float16, bfloat16,
            float8_e4m3fn or float8_e5m2: left matrix.
        b: [n, k] or [batch, n, k] if transpose_b; [k, n] or [batch, k, n], dtype that of a: right matrix.
        bias: [n], float32, float16 or bfloat16: added to every row. Optional.
        row_scale: [m], float32: factors of the product's rows. Optional.
        column_scale: [n], float32: factors of the product's columns. Optional.
        residual: [m, n / 2] or [batch, m, n / 2] if gated; [m, n] or [batch, m, n], float32, float16 or bfloat16:
            added to the result. Optional.
        transpose_a: a is [k, m].
        transpose_b: b is [n, k].
        activation: applied to the sums; gelu is the tanh approximation; one of none, relu, gelu, silu.
        gated: the activation of the first half of the columns times the second half.
        scale: factor of the product; a finite factor.
        out_scale: factor of the result, such as the inverse of its scale in fp8; a finite factor.
        out_dtype: dtype of the result; f32, f16, bf16, e4m3 or e5m2, chosen by the operator unless given.
        sum_dtype: dtype of the sums of tensor cores; f32, or f16 for matrices of f16, chosen by the operator unless
            given.
        precision: of products of f32: as they are, of operands rounded to tf32, or three such products; one of
            ieee, tf32, tf32x3.
        tile_m: rows of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_n: columns of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_k: inner extent of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        splits: splits of k, which are added in order; 0: planned; 1 to 32 splits, or 0 for the plan's choice.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n / 2] or [batch, m, n / 2] if gated; [m, n] or [batch, m, n], out_dtype, or that of a, bfloat16
            where that has 8 bits: (activation(scale * row_scale * (a * b) * column_scale + bias) + residual) *
            out_scale.

    Rules:
        a: expected a matrix with stride 1 along rows or columns; pass a contiguous copy.
        b: expected a matrix with stride 1 along rows or columns; pass a contiguous copy.
        sum_dtype: expected f32, or f16 for matrices of f16; leave it out.
        gated: expected an even number of columns; give as many gates as values.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: GEMM of the BLAS, level 3 (Dongarra et al. 1990).
    """

def accumulate_gemm(
    sum: Array,
    a: Array,
    b: Array,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    scale: float = 1.0,
    precision: Literal["ieee", "tf32", "tf32x3"] = "ieee",
    tile_m: int = 0,
    tile_n: int = 0,
    tile_k: int = 0,
    splits: int = 0,
    target: str = "automatic",
) -> None:
    """Matrix product that is added to a matrix in place.

    Args:
        sum: [m, n] or [batch, m, n], float32, float16 or bfloat16: matrix to which the product is added. Written in
            place.
        a: [k, m] or [batch, k, m] if transpose_a; [m, k] or [batch, m, k], float32, float16, bfloat16,
            float8_e4m3fn or float8_e5m2: left matrix.
        b: [n, k] or [batch, n, k] if transpose_b; [k, n] or [batch, k, n], dtype that of a: right matrix.
        transpose_a: a is [k, m].
        transpose_b: b is [n, k].
        scale: factor of the product; a finite factor.
        precision: of products of f32: as they are, of operands rounded to tf32, or three such products; one of
            ieee, tf32, tf32x3.
        tile_m: rows of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_n: columns of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_k: inner extent of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        splits: splits of k, which are added in order; 0: planned; 1 to 32 splits, or 0 for the plan's choice.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        None: sum hold the results.

    Rules:
        a: expected a matrix with stride 1 along rows or columns; pass a contiguous copy.
        b: expected a matrix with stride 1 along rows or columns; pass a contiguous copy.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: GEMM of the BLAS, level 3 (Dongarra et al. 1990).
    """

def gemv(
    a: Array,
    x: Array,
    *,
    transpose_a: bool = False,
    scale: float = 1.0,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """A matrix times a vector.

    Args:
        a: [k, m] or [batch, k, m] if transpose_a; [m, k] or [batch, m, k], float32, float16, bfloat16,
            float8_e4m3fn or float8_e5m2: the matrix.
        x: [k] or [batch, k], float32, float16, bfloat16, float8_e4m3fn or float8_e5m2: the vector.
        transpose_a: a is [k, m].
        scale: factor of the product; a finite number.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m] or [batch, m], out_dtype, or that of x, bfloat16 where that has 8 bits: scale * a * x.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: GEMV of the BLAS, level 2 (Dongarra et al. 1988).
    """

def grouped_gemm(
    a: Array,
    b: Array,
    *,
    bias: Array | None = None,
    offsets: Array | None = None,
    counts: Array | None = None,
    transpose_b: bool = False,
    precision: Literal["ieee", "tf32", "tf32x3"] = "ieee",
    max_rows: int = 0,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows of each group times its matrix.

    Args:
        a: [m, k] if offsets; [groups, m, k], float32, float16 or bfloat16: rows of all groups.
        b: [groups, n, k] if transpose_b; [groups, k, n], dtype that of a: the matrices of the groups.
        bias: [groups, n], float32, float16 or bfloat16: added to every row of a group. Optional.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group. Optional.
        counts: [groups], int32: number of used rows of each group. Optional.
        transpose_b: b is [groups, n, k].
        precision: of products of f32: as they are, of operands rounded to tf32, or three such products; one of
            ieee, tf32, tf32x3.
        max_rows: upper bound on the rows of a group, which the caller promises; a number of rows, or 0 where it is
            not known.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n] if offsets; [groups, m, n], out_dtype, or that of a, bfloat16 where that has 8 bits: the rows
            times their matrices.

    Rules:
        counts: expected offsets or counts; leave one of them out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts.
    """

def grouped_gemm_weights(
    a: Array,
    dout: Array,
    offsets: Array,
    *,
    c: Array | None = None,
    precision: Literal["ieee", "tf32", "tf32x3"] = "ieee",
    max_rows: int = 0,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of the matrices of grouped_gemm.

    Args:
        a: [m, k], float32, float16 or bfloat16: rows of all groups.
        dout: [m, n], dtype that of a: gradients of the results.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group.
        c: [groups, k, n], float32, float16 or bfloat16: added. Optional.
        precision: of products of f32: as they are, of operands rounded to tf32, or three such products; one of
            ieee, tf32, tf32x3.
        max_rows: upper bound on the rows of a group, which the caller promises; a number of rows, or 0 where it is
            not known.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [groups, k, n], out_dtype, or float32, float16 or bfloat16, float32 where that has 8 bits: c + the
            products over the rows of every group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts.
    """

def accumulate_grouped_gemm_weights(
    sum: Array,
    a: Array,
    dout: Array,
    offsets: Array,
    *,
    max_rows: int = 0,
    target: str = "automatic",
) -> None:
    """Gradients of the matrices of grouped_gemm, added in place.

    Args:
        sum: [groups, k, n], float32, float16 or bfloat16: matrices to which the gradients are added. Written in
            place.
        a: [m, k], float32, float16 or bfloat16: rows of all groups.
        dout: [m, n], dtype that of a: gradients of the results.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group.
        max_rows: upper bound on the rows of a group, which the caller promises; a number of rows, or 0 where it is
            not known.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        None: sum hold the results.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gale et al. 2023, MegaBlocks: Efficient Sparse Training with Mixture-of-Experts.
    """

def integer_gemm(
    a: Array,
    b: Array,
    *,
    c: Array | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Product of 8-bit integers, exact in 32 bits.

    Args:
        a: [m, k], int8: left matrix.
        b: [n, k], int8: right matrix, transposed.
        c: [m, n], int32: added. Optional.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n], int32: c + a * b^T.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Jacob et al. 2017, Quantization and Training of Neural Networks for Integer-Arithmetic-Only Inference.
    """

def indexer_logits(
    q: Array,
    k: Array,
    weights: Array,
    *,
    k_scales: Array | None = None,
    begins: Array | None = None,
    ends: Array | None = None,
    causal: bool = False,
    logits: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Weighted sums over heads of relu(q k^T), by which queries select keys.

    Args:
        q: [queries, heads, d] or [batch, queries, heads, d], float32, float16, bfloat16 or float8_e4m3fn: queries.
        k: [keys, d] or [batch, keys, d], dtype that of q: keys, which all heads share.
        weights: [queries, heads] or [batch, queries, heads], float32, float16 or bfloat16: weights of the heads of
            each query.
        k_scales: [keys] or [batch, keys], float32: factors of the keys' logits. Optional.
        begins: [queries] or [batch, queries], int32: the first key that a query sees; 0 if omitted. Optional.
        ends: [queries] or [batch, queries], int32: one past the last key that a query sees; `keys` if omitted.
            Optional.
        causal: hides later keys; the last query is aligned with the last key.
        logits: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        logits: [queries, keys] or [batch, queries, keys], float32: k_scales * sum over heads of weights * relu(q
            k^T); -inf where a query does not see a key.

    Rules:
        q: expected 1 to 128 heads; add up the logits of several calls.
        q: expected 1 to 256 features; split the features.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: the lightning indexer.
    """

class IndexerLogitsBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dweights: Any
    dk_scales: Any

def indexer_logits_backward(
    dlogits: Array,
    q: Array,
    k: Array,
    weights: Array,
    *,
    k_scales: Array | None = None,
    begins: Array | None = None,
    ends: Array | None = None,
    causal: bool = False,
    dq: Array | None = None,
    dk: Array | None = None,
    dweights: Array | None = None,
    dk_scales: Array | None = None,
    target: str = "automatic",
) -> IndexerLogitsBackwardResult:
    """Gradients of indexer_logits with respect to q, k and weights.

    Args:
        dlogits: [queries, keys] or [batch, queries, keys], float32: gradient of logits; ignored where a query does
            not see a key.
        q: [queries, heads, d] or [batch, queries, heads, d], float32, float16 or bfloat16: queries.
        k: [keys, d] or [batch, keys, d], dtype that of q: keys, which all heads share.
        weights: [queries, heads] or [batch, queries, heads], float32, float16 or bfloat16: weights of the heads of
            each query.
        k_scales: [keys] or [batch, keys], float32: factors of the keys' logits. Optional.
        begins: [queries] or [batch, queries], int32: the first key that a query sees; 0 if omitted. Optional.
        ends: [queries] or [batch, queries], int32: one past the last key that a query sees; `keys` if omitted.
            Optional.
        causal: hides later keys; the last query is aligned with the last key.
        dq, dk, dweights, dk_scales: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, heads, d] or [batch, queries, heads, d], dtype that of q: gradient of q.
        dk: [keys, d] or [batch, keys, d], dtype that of k: gradient of k.
        dweights: [queries, heads] or [batch, queries, heads], dtype that of weights: gradient of weights.
        dk_scales: [keys] or [batch, keys], float32: gradient of k_scales. None unless k_scales.

    Rules:
        q: expected 1 to 128 heads; add up the logits of several calls.
        q: expected 1 to 256 features; split the features.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: the lightning indexer, differentiated.
    """

def indexer_topk_of_blocks(
    q: Array,
    k: Array,
    weights: Array,
    block_k: Array,
    count: int,
    *,
    k_scales: Array | None = None,
    begins: Array | None = None,
    ends: Array | None = None,
    block_scales: Array | None = None,
    causal: bool = False,
    block_count: int = 64,
    block_size: int = 64,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """The keys with the largest logits of the indexer in blocks that it has chosen first, ascending.

    Args:
        q: [queries, heads, d] or [batch, queries, heads, d], float32, float16, bfloat16 or float8_e4m3fn: queries.
        k: [keys, d] or [batch, keys, d], dtype that of q: keys, which all heads share.
        weights: [queries, heads] or [batch, queries, heads], float32, float16 or bfloat16: weights of the heads of
            each query.
        k_scales: [keys] or [batch, keys], float32: factors of the keys' logits. Optional.
        begins: [queries] or [batch, queries], int32: the first key that a query sees; 0 if omitted. Optional.
        ends: [queries] or [batch, queries], int32: one past the last key that a query sees; `keys` if omitted.
            Optional.
        block_k: [blocks, d] or [batch, blocks, d], dtype that of q: a key for every block of keys, such as their
            mean.
        block_scales: [blocks] or [batch, blocks], float32: factors of the blocks' logits. Optional.
        causal: hides later keys; the last query is aligned with the last key.
        count: keys of a query; a number from 0 to 4096.
        block_count: blocks that a query chooses; a number from 0 to 4096.
        block_size: keys of a block; a block size from 1 to 2^20.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, count] or [batch, queries, count], int32: key numbers; -1 where fewer exist.

    Rules:
        q: expected 1 to 128 heads; add up the logits of several calls.
        q: expected 1 to 256 features; split the features.
        block_k: expected a key for every {block_size} of {keys} keys; check block_size.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: DeepSeek Sparse Attention, in two levels.
    """

def indexer_topk(
    q: Array,
    k: Array,
    weights: Array,
    count: int,
    *,
    k_scales: Array | None = None,
    begins: Array | None = None,
    ends: Array | None = None,
    page_table: Array | None = None,
    causal: bool = False,
    page_size: int = 64,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """The keys with the largest logits of the indexer, for every query, ascending.

    Args:
        q: [queries, heads, d] or [batch, queries, heads, d], float32, float16, bfloat16 or float8_e4m3fn: queries.
        k: [keys, d] or [batch, keys, d], dtype that of q: keys, which all heads share.
        weights: [queries, heads] or [batch, queries, heads], float32, float16 or bfloat16: weights of the heads of
            each query.
        k_scales: [keys] or [batch, keys], float32: factors of the keys' logits. Optional.
        begins: [queries] or [batch, queries], int32: the first key that a query sees; 0 if omitted. Optional.
        ends: [queries] or [batch, queries], int32: one past the last key that a query sees; `keys` if omitted.
            Optional.
        page_table: [pages] or [batch, pages], int32: if given, results are rows of a paged cache: column c is in
            page page_table[c / page_size]. Optional.
        causal: hides later keys; the last query is aligned with the last key.
        count: columns of a row; a number from 0 to 4096.
        page_size: columns of a page; a block size from 1 to 2^20.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, count] or [batch, queries, count], int32: key numbers, or rows of pages; -1 where fewer
            exist.

    Rules:
        q: expected 1 to 128 heads; add up the logits of several calls.
        q: expected 1 to 256 features; split the features.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: DeepSeek Sparse Attention.
    """

def paged_indexer_logits(
    q: Array,
    k_cache: Array,
    weights: Array,
    *,
    block_table: Array | None = None,
    cache_seqlens: Array | None = None,
    k_scales: Array | None = None,
    causal: bool = True,
    logits: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Weighted sums over heads of relu(q k^T) for the keys of a cache, also in pages.

    Args:
        q: [batch, queries, heads, d], float32, float16, bfloat16 or float8_e4m3fn: queries of the last tokens. The
            last dimension is contiguous.
        k_cache: [pages, page_size, d] if block_table; [batch, keys, d], dtype that of q: keys, which all heads
            share. The last dimension is contiguous.
        weights: [batch, queries, heads], float32, float16 or bfloat16: weights of the heads of each query.
        block_table: [batch, table_width], int32: page numbers of each sequence, in order; an entry that is no page
            number, such as -1, is padding. Optional.
        cache_seqlens: [batch], int32: length of each sequence, including the tokens of q; if omitted, sequences
            fill the cache. Optional.
        k_scales: [pages, page_size] if block_table; [batch, keys], float32: factors of the keys' logits. Optional.
        causal: hides later keys; the last query is aligned with the last key.
        logits: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        logits: [batch, queries, room], float32: k_scales * sum over heads of weights * relu(q k^T); -inf where a
            query does not see a key.

    Rules:
        block_table: expected a capacity of fewer than 2^29 tokens; give shorter tables.
        q: expected 1 to 128 heads; add up the logits of several calls.
        q: expected 1 to 256 features; split the features.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: the lightning indexer.
    """

class SparseMlaResult(NamedTuple):
    out: Any
    lse: Any

def sparse_mla(
    q: Array,
    kv: Array,
    indices: Array,
    *,
    counts: Array | None = None,
    sinks: Array | None = None,
    more_kv: Array | None = None,
    more_indices: Array | None = None,
    d_v: int = 512,
    causal: bool = False,
    scale: float | None = None,
    splits: int = 0,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> SparseMlaResult:
    """Attention of every query to the latent rows in its list.

    Args:
        q: [queries, kv_heads * group, d] or [batch, queries, kv_heads * group, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        kv: [keys, kv_heads, d] or [batch, keys, kv_heads, d], dtype that of q: rows of the cache: each is a key,
            and its first d_v features are the value. The last dimension is contiguous.
        indices: [queries, kv_heads, entries] or [batch, queries, kv_heads, entries], int32: rows that a query sees;
            numbers of no row, such as -1, are padding; a row counts as often as it is listed.
        counts: [queries, kv_heads] or [batch, queries, kv_heads], int32: number of used entries of each list; all
            if omitted. Optional.
        sinks: [kv_heads * group], float32, float16 or bfloat16: one logit per head that is added to the sum of the
            softmax but has no value. Optional.
        more_kv: [more_keys, kv_heads, d] or [batch, more_keys, kv_heads, d], dtype that of q: rows of a second
            source, in the same softmax. The last dimension is contiguous. Optional.
        more_indices: [queries, kv_heads, more_entries] or [batch, queries, kv_heads, more_entries], int32: the rows
            of more_kv that a query sees. Optional.
        d_v: leading features of a row that are its value; a number of features from 1 to 512.
        causal: entries for rows after the query's position are padding.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        splits: splits of a list, which are merged; 0: planned; a number from 1 to 32, or 0 for the plan's choice.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] or [batch, queries, kv_heads * group, d_v], dtype that of q: the
            weighted sums of values; 0 where no row is seen. The last dimension is contiguous.
        lse: [queries, kv_heads * group] or [batch, queries, kv_heads * group], float32: natural logarithm of the
            sum of exp(score); -inf where no row is seen, with a sink its logit.

    Rules:
        more_kv: expected more_kv and more_indices together; give both.
        causal: expected no more_kv with it: a second source has no positions; set entries after the query to -1.
        kv: expected no heads, as q; give q a head for each of kv, or more.
        q: expected 1 to 576 features; split the features.
        d_v: expected at most the {d} features of a row; give the features of its value.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: DeepSeek Sparse Attention.
    """

class SparseMlaBackwardResult(NamedTuple):
    dq: Any
    dkv: Any
    dsinks: Any
    dmore_kv: Any

def sparse_mla_backward(
    dout: Array,
    q: Array,
    kv: Array,
    indices: Array,
    out: Array,
    lse: Array,
    *,
    counts: Array | None = None,
    sinks: Array | None = None,
    more_kv: Array | None = None,
    more_indices: Array | None = None,
    dlse: Array | None = None,
    d_v: int = 512,
    causal: bool = False,
    scale: float | None = None,
    dq: Array | None = None,
    dkv: Array | None = None,
    dsinks: Array | None = None,
    dmore_kv: Array | None = None,
    target: str = "automatic",
) -> SparseMlaBackwardResult:
    """Gradients of sparse_mla with respect to q, both sources of rows and the sinks.

    Args:
        dout: [queries, kv_heads * group, d_v] or [batch, queries, kv_heads * group, d_v], dtype that of q: gradient
            of out. The last dimension is contiguous.
        q: [queries, kv_heads * group, d] or [batch, queries, kv_heads * group, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        kv: [keys, kv_heads, d] or [batch, keys, kv_heads, d], dtype that of q: rows of the cache: each is a key,
            and its first d_v features are the value. The last dimension is contiguous.
        indices: [queries, kv_heads, entries] or [batch, queries, kv_heads, entries], int32: rows that a query sees;
            numbers of no row, such as -1, are padding; a row counts as often as it is listed.
        counts: [queries, kv_heads] or [batch, queries, kv_heads], int32: number of used entries of each list; all
            if omitted. Optional.
        sinks: [kv_heads * group], float32, float16 or bfloat16: one logit per head that is added to the sum of the
            softmax but has no value. Optional.
        more_kv: [more_keys, kv_heads, d] or [batch, more_keys, kv_heads, d], dtype that of q: rows of a second
            source, in the same softmax. The last dimension is contiguous. Optional.
        more_indices: [queries, kv_heads, more_entries] or [batch, queries, kv_heads, more_entries], int32: the rows
            of more_kv that a query sees. Optional.
        out: [queries, kv_heads * group, d_v] or [batch, queries, kv_heads * group, d_v], dtype that of q: the
            result of sparse_mla. The last dimension is contiguous.
        lse: [queries, kv_heads * group] or [batch, queries, kv_heads * group], float32: the lse of that result.
        dlse: [queries, kv_heads * group] or [batch, queries, kv_heads * group], float32: gradient of lse; ignored
            where lse is -inf. Optional.
        d_v: leading features of a row that are its value; a number of features from 1 to 512.
        causal: entries for rows after the query's position are padding.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        dq, dkv, dsinks, dmore_kv: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] or [batch, queries, kv_heads * group, d], dtype that of q: gradient of q.
            The last dimension is contiguous.
        dkv: [keys, kv_heads, d] or [batch, keys, kv_heads, d], dtype that of kv: gradient of kv, as keys and as
            values. The last dimension is contiguous.
        dsinks: [kv_heads * group], float32: gradient of the sinks. None unless sinks.
        dmore_kv: [more_keys, kv_heads, d] or [batch, more_keys, kv_heads, d], dtype that of kv: gradient of
            more_kv. The last dimension is contiguous. None unless more_kv.

    Rules:
        more_kv: expected more_kv and more_indices together; give both.
        causal: expected no more_kv with it: a second source has no positions; set entries after the query to -1.
        kv: expected no heads, as q; give q a head for each of kv, or more.
        q: expected 1 to 576 features; split the features.
        d_v: expected at most the {d} features of a row; give the features of its value.
        indices: expected at most 16384 entries of a list; divide the list.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao 2023, FlashAttention-2, over lists; what pairs add to rows is added in the order of queries.
    """

class SparseMlaDecodeResult(NamedTuple):
    out: Any
    lse: Any

def sparse_mla_decode(
    q: Array,
    values: Array,
    scales: Array,
    indices: Array,
    *,
    ropes: Array | None = None,
    counts: Array | None = None,
    sinks: Array | None = None,
    scale: float | None = None,
    ropes_are_values: bool = False,
    splits: int = 0,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> SparseMlaDecodeResult:
    """Attention of every query to the 8-bit cache records in its list.

    Args:
        q: [queries, heads, d], bfloat16, float16 or float32: queries. The last dimension is contiguous.
        values: [..., in_8_bits], float8_e4m3fn: the values of records, which are features of the keys too.
        scales: [..., groups], float32 or uint8: factors of equal parts of the values of a record; u8: exponents of
            2, plus 127.
        indices: [queries, entries], int32: records that a query sees; numbers of no record, such as -1, are
            padding; a record counts as often as it is listed.
        ropes: [..., d_rope], bfloat16, float16 or float32: the features of keys after their values. Optional.
        counts: [queries], int32: number of used entries of each list; all if omitted. Optional.
        sinks: [heads], float32, float16 or bfloat16: one logit per head that is added to the sum of the softmax but
            has no value. Optional.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        ropes_are_values: the features of ropes are values, too.
        splits: splits of a list, which are merged; 0: planned; a number from 1 to 32, or 0 for the plan's choice.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, heads, d_v], dtype that of q: the weighted sums of values; 0 where no record is seen. The
            last dimension is contiguous.
        lse: [queries, heads], float32: natural logarithm of the sum of exp(score); -inf where no record is seen,
            with a sink its logit.

    Rules:
        values: expected 1 to 512 features; split the features.
        scales: expected a number of scales that divides {in_8_bits}; give equal parts of the values a scale.
        q: expected the features of values and of ropes; give ropes the features that the values lack.
        ropes: expected at most 512 features together with the values, where they are values; give them, or leave
            ropes_are_values out.
        q: expected at most 576 features; split the features.
        ropes: expected the dtype of q; convert it.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: decode from its cache of 656 bytes a record; of DeepSeek-V4, 584 bytes.
    """

def sparse_mla_target(
    q: Array,
    kv: Array,
    indices: Array,
    lse: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """The mean over heads of the weights of the listed rows in sparse_mla.

    Args:
        q: [queries, kv_heads * group, d] or [batch, queries, kv_heads * group, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        kv: [keys, kv_heads, d] or [batch, keys, kv_heads, d], dtype that of q: keys. The last dimension is
            contiguous.
        indices: [queries, kv_heads, entries] or [batch, queries, kv_heads, entries], int32: the lists.
        lse: [queries, kv_heads * group] or [batch, queries, kv_heads * group], float32: the lse of sparse_mla.
        causal: entries for rows after the query's position are padding.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads, entries] or [batch, queries, kv_heads, entries], float32: mean over the heads of a
            group of exp(score - lse); 0 of padding.

    Rules:
        kv: expected no heads, as q; give q a head for each of kv, or more.
        q: expected 1 to 576 features; split the features.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2025, DeepSeek-V3.2: what the indexer is trained to follow.
    """

def topk_select(
    scores: Array,
    count: int,
    *,
    begins: Array | None = None,
    ends: Array | None = None,
    page_table: Array | None = None,
    page_size: int = 64,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Columns of the largest scores of every row, ascending.

    Args:
        scores: [rows, columns] or [batch, rows, columns], float32: -inf and NaN are never selected.
        begins: [rows] or [batch, rows], int32: the first column of a row; 0 if omitted. Optional.
        ends: [rows] or [batch, rows], int32: one past the last column of a row; all if omitted. Optional.
        page_table: [pages] or [batch, pages], int32: if given, results are rows of a paged cache: column c is in
            page page_table[c / page_size]. Optional.
        count: columns of a row; a number from 0 to 4096.
        page_size: columns of a page; a block size from 1 to 2^20.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [rows, count] or [batch, rows, count], int32: column numbers, or rows of pages; -1 where fewer exist.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Alabi et al. 2012, Fast k-selection algorithms for graphics processing units: by radix.
    """

class CausalConv1dResult(NamedTuple):
    out: Any
    final_state: Any

def causal_conv1d(
    x: Array,
    weight: Array,
    *,
    bias: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    silu: bool = False,
    output_final_state: bool = False,
    out: Array | None = None,
    final_state: Array | None = None,
    target: str = "automatic",
) -> CausalConv1dResult:
    """Short causal convolution of every channel along tokens.

    Args:
        x: [tokens, d] if cu_seqlens; [batch, tokens, d], float32, float16 or bfloat16: channels of tokens.
        weight: [d, width], float32, float16 or bfloat16: filter of each channel: its last element is the factor of
            the token itself, the others those of earlier tokens.
        bias: [d], float32, float16 or bfloat16: added to the sums. Optional.
        initial_state: [sequences, d, width - 1] if cu_seqlens; [batch, d, width - 1], float32, float16 or bfloat16:
            tokens before the first one; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        silu: x / (1 + exp(-x)) of the sums.
        output_final_state: also returns the state for the next call.
        out, final_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, d] if cu_seqlens; [batch, tokens, d], dtype that of x: the sums, or silu of them.
        final_state: [sequences, d, width - 1] if cu_seqlens; [batch, d, width - 1], dtype that of x: the last width
            - 1 tokens. None unless output_final_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        weight: expected a width from 2 to 8; use a general convolution.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao 2023, causal-conv1d; Gu and Dao 2023, Mamba.
    """

class CausalConv1dBackwardResult(NamedTuple):
    dx: Any
    dweight: Any
    dbias: Any
    dinitial_state: Any

def causal_conv1d_backward(
    dout: Array,
    x: Array,
    weight: Array,
    *,
    dfinal_state: Array | None = None,
    bias: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    silu: bool = False,
    output_final_state: bool = False,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
    dinitial_state: Array | None = None,
    target: str = "automatic",
) -> CausalConv1dBackwardResult:
    """Gradients of causal_conv1d.

    Args:
        dout: [tokens, d] if cu_seqlens; [batch, tokens, d], dtype that of x: gradient of out.
        dfinal_state: [sequences, d, width - 1] if cu_seqlens; [batch, d, width - 1], dtype that of x: gradient of
            final_state. Optional.
        x: [tokens, d] if cu_seqlens; [batch, tokens, d], float32, float16 or bfloat16: channels of tokens.
        weight: [d, width], float32, float16 or bfloat16: filter of each channel: its last element is the factor of
            the token itself, the others those of earlier tokens.
        bias: [d], float32, float16 or bfloat16: added to the sums. Optional.
        initial_state: [sequences, d, width - 1] if cu_seqlens; [batch, d, width - 1], float32, float16 or bfloat16:
            tokens before the first one; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        silu: x / (1 + exp(-x)) of the sums.
        output_final_state: also returns the state for the next call.
        dx, dweight, dbias, dinitial_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [tokens, d] if cu_seqlens; [batch, tokens, d], dtype that of x: gradient of x.
        dweight: [d, width], float32: gradient of weight.
        dbias: [d], float32: gradient of bias. None unless bias.
        dinitial_state: [sequences, d, width - 1] if cu_seqlens; [batch, d, width - 1], dtype that of initial_state:
            gradient of initial_state. None unless initial_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        weight: expected a width from 2 to 8; use a general convolution.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao 2023, causal-conv1d; Gu and Dao 2023, Mamba.
    """

class LinearAttentionResult(NamedTuple):
    out: Any
    final_state: Any

def linear_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    g: Array | None = None,
    g_gamma: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    scale: float | None = None,
    normalize: bool = False,
    output_final_state: bool = False,
    g_gamma_gradient: bool = True,
    out: Array | None = None,
    final_state: Array | None = None,
    target: str = "automatic",
) -> LinearAttentionResult:
    """Causal linear attention, with decays or without.

    Args:
        q: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        k: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: keys. The last
            dimension is contiguous.
        v: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of q:
            values. The last dimension is contiguous.
        g: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32: logarithms of
            decays, at most 0. Optional.
        g_gamma: [key_heads * group], float32: logarithms of decays of heads, which all tokens have, at most 0.
            Optional.
        initial_state: [sequences, key_heads * group, d, d_v + normalize] if cu_seqlens; [batch, key_heads * group,
            d, d_v + normalize], float32: states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        scale: factor of the products; a finite number, 1/sqrt(d) unless given.
        normalize: divides results by the sums of their weights, which the states keep as a last column.
        output_final_state: also returns the states after the last token.
        g_gamma_gradient: of its gradient: that of g_gamma is wanted as well; PyTorch asks for it where g_gamma
            requires it.
        out, final_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: scale * (sum over past tokens of their decay * (q . k) * v).
        final_state: [sequences, key_heads * group, d, d_v + normalize] if cu_seqlens; [batch, key_heads * group, d,
            d_v + normalize], float32: states after the last token. None unless output_final_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        q: expected 1 to 256 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        v: expected as many heads as k, or a multiple; give v a head for each of k.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Katharopoulos et al. 2020, Transformers are RNNs; Sun et al. 2023, Retentive Network; Qin et al. 2024, Lightning Attention-2.
    """

class LinearAttentionBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any
    dg: Any
    dg_gamma: Any
    dinitial_state: Any

def linear_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    *,
    dfinal_state: Array | None = None,
    g: Array | None = None,
    g_gamma: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    scale: float | None = None,
    normalize: bool = False,
    output_final_state: bool = False,
    g_gamma_gradient: bool = True,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    dg: Array | None = None,
    dg_gamma: Array | None = None,
    dinitial_state: Array | None = None,
    target: str = "automatic",
) -> LinearAttentionBackwardResult:
    """Gradients of linear_attention.

    Args:
        dout: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: gradient of out.
        dfinal_state: [sequences, key_heads * group, d, d_v + normalize] if cu_seqlens; [batch, key_heads * group,
            d, d_v + normalize], float32: gradient of final_state. Optional.
        q: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], float32, float16 or bfloat16:
            queries. The last dimension is contiguous.
        k: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: keys. The last
            dimension is contiguous.
        v: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of q:
            values. The last dimension is contiguous.
        g: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], float32: logarithms of
            decays, at most 0. Optional.
        g_gamma: [key_heads * group], float32: logarithms of decays of heads, which all tokens have, at most 0.
            Optional.
        initial_state: [sequences, key_heads * group, d, d_v + normalize] if cu_seqlens; [batch, key_heads * group,
            d, d_v + normalize], float32: states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        scale: factor of the products; a finite number, 1/sqrt(d) unless given.
        normalize: divides results by the sums of their weights, which the states keep as a last column.
        output_final_state: also returns the states after the last token.
        g_gamma_gradient: of its gradient: that of g_gamma is wanted as well; PyTorch asks for it where g_gamma
            requires it.
        dq, dk, dv, dg, dg_gamma, dinitial_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of q: gradient of q. The
            last dimension is contiguous.
        dk: [tokens, key_heads, d] if cu_seqlens; [batch, tokens, key_heads, d], dtype that of k: gradient of k. The
            last dimension is contiguous.
        dv: [tokens, key_heads * group, d_v] if cu_seqlens; [batch, tokens, key_heads * group, d_v], dtype that of
            v: gradient of v. The last dimension is contiguous.
        dg: [tokens, key_heads * group] if cu_seqlens; [batch, tokens, key_heads * group], dtype that of g: gradient
            of g. None unless g.
        dg_gamma: [key_heads * group], float32: gradient of g_gamma. None unless g_gamma & g_gamma_gradient.
        dinitial_state: [sequences, key_heads * group, d, d_v + normalize] if cu_seqlens; [batch, key_heads * group,
            d, d_v + normalize], dtype that of initial_state: gradient of initial_state. None unless initial_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        q: expected 1 to 256 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        v: expected as many heads as k, or a multiple; give v a head for each of k.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Katharopoulos et al. 2020, Transformers are RNNs; Sun et al. 2023, Retentive Network; Qin et al. 2024, Lightning Attention-2.
    """

def nsa_combine(
    compressed: Array,
    selected: Array,
    gates: Array,
    *,
    window: Array | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """The branches of native sparse attention, summed by their gates.

    Args:
        compressed: [..., d], float32, float16 or bfloat16: attention over compressed entries.
        selected: [..., d], dtype that of compressed: attention over selected blocks.
        gates: [..., branches], float32, float16 or bfloat16: logits: a branch is weighted by the sigmoid of its
            gate.
        window: [..., d], dtype that of compressed: attention over a sliding window. Optional.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of compressed: the sum of sigmoid(gate) * branch.

    Rules:
        gates: expected a gate for each branch, in the order compressed, selected, window; give two gates, or three
            with a window.
        compressed: expected 1 to 4096 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches.
    """

class NsaCombineBackwardResult(NamedTuple):
    dcompressed: Any
    dselected: Any
    dgates: Any
    dwindow: Any

def nsa_combine_backward(
    dout: Array,
    compressed: Array,
    selected: Array,
    gates: Array,
    *,
    window: Array | None = None,
    dcompressed: Array | None = None,
    dselected: Array | None = None,
    dgates: Array | None = None,
    dwindow: Array | None = None,
    target: str = "automatic",
) -> NsaCombineBackwardResult:
    """Gradients of nsa_combine.

    Args:
        dout: [..., d], dtype that of compressed: gradient of out.
        compressed: [..., d], float32, float16 or bfloat16: attention over compressed entries.
        selected: [..., d], dtype that of compressed: attention over selected blocks.
        gates: [..., branches], float32, float16 or bfloat16: logits: a branch is weighted by the sigmoid of its
            gate.
        window: [..., d], dtype that of compressed: attention over a sliding window. Optional.
        dcompressed, dselected, dgates, dwindow: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dcompressed: [..., d], dtype that of compressed: gradient of compressed.
        dselected: [..., d], dtype that of selected: gradient of selected.
        dgates: [..., branches], dtype that of gates: gradient of gates.
        dwindow: [..., d], dtype that of window: gradient of window. None unless window.

    Rules:
        gates: expected a gate for each branch, in the order compressed, selected, window; give two gates, or three
            with a window.
        compressed: expected 1 to 4096 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches.
    """

class NsaGatedAttentionResult(NamedTuple):
    out: Any
    selected: Any
    lse: Any
    window_out: Any
    window_lse: Any

def nsa_gated_attention(
    q: Array,
    k: Array,
    v: Array,
    block_indices: Array,
    compressed: Array,
    gates: Array,
    *,
    block_counts: Array | None = None,
    sel_scale: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    block_size: int = 64,
    causal: bool = True,
    diagonal: bool = False,
    repeats: bool = False,
    window: int = 0,
    scale: float | None = None,
    tile_queries: int = 0,
    tile_keys: int = 0,
    keep_branches: bool = False,
    out: Array | None = None,
    selected: Array | None = None,
    lse: Array | None = None,
    window_out: Array | None = None,
    window_lse: Array | None = None,
    target: str = "automatic",
) -> NsaGatedAttentionResult:
    """Attention over selected blocks, and a window, summed with the compressed branch by gates.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        block_indices: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], int32: numbers of the key blocks that a token sees;
            block i begins at key i * block_size; other numbers, such as -1, select nothing.
        compressed: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: attention over compressed
            entries. The last dimension is contiguous.
        gates: [queries, kv_heads * group, branches] if cu_seqlens_q; [batch, queries, kv_heads * group, branches]
            if layout=bshd; [batch, kv_heads * group, queries, branches], float32, float16 or bfloat16: logits: a
            branch is weighted by the sigmoid of its gate.
        block_counts: [queries, selecting] if cu_seqlens_q; [batch, queries, selecting] if layout=bshd; [batch,
            selecting, queries], int32: number of used entries of each row; all if omitted. Optional.
        sel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32, float16 or bfloat16: factors of 1 on the
            scores of each entry's block: results do not depend on them, but their gradient trains a selector.
            Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        block_size: keys of a block; a block size from 1 to 2^20.
        causal: hides later keys; the last query is aligned with the last key.
        diagonal: a token sees its own block, selected or not.
        repeats: a block that is listed several times counts several times.
        window: keys of the sliding window, which ends at the token and has its own softmax; 0: no window; a number
            of keys, at most 2^29, or 0 for no window.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        keep_branches: the result and the lse of the selected branch, and of the window, are results, too: gradients
            need them.
        out, selected, lse, window_out, window_lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the sum of sigmoid(gate) *
            branch. The last dimension is contiguous.
        selected: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the selected branch. The last
            dimension is contiguous. None unless keep_branches.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: its lse, as
            that of nsa_selected_attention. None unless keep_branches.
        window_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the branch of the window. The
            last dimension is contiguous. None unless keep_branches & window > 0.
        window_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: its
            lse. None unless keep_branches & window > 0.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        block_indices: expected {heads} heads, as q, or {kv_heads}, as k; give a row for each head.
        block_indices: expected at most 4096 entries of a row; select larger blocks, or use block_sparse_attention.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        gates: expected a gate for each branch, in the order compressed, selected, window; give two gates, or three
            with a window.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches.
    """

class NsaGatedAttentionBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any
    dcompressed: Any
    dgates: Any
    dsel_scale: Any

def nsa_gated_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    block_indices: Array,
    compressed: Array,
    gates: Array,
    selected: Array,
    lse: Array,
    *,
    dselected: Array | None = None,
    dlse: Array | None = None,
    window_out: Array | None = None,
    window_lse: Array | None = None,
    dwindow_out: Array | None = None,
    dwindow_lse: Array | None = None,
    block_counts: Array | None = None,
    sel_scale: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    block_size: int = 64,
    causal: bool = True,
    diagonal: bool = False,
    repeats: bool = False,
    window: int = 0,
    scale: float | None = None,
    tile_queries: int = 0,
    tile_keys: int = 0,
    keep_branches: bool = False,
    sel_scale_gradient: bool = False,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    dcompressed: Array | None = None,
    dgates: Array | None = None,
    dsel_scale: Array | None = None,
    target: str = "automatic",
) -> NsaGatedAttentionBackwardResult:
    """Gradients of nsa_gated_attention: of q, k, v, the compressed branch and the gates.

    Args:
        dout: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. The last
            dimension is contiguous.
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        block_indices: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], int32: numbers of the key blocks that a token sees;
            block i begins at key i * block_size; other numbers, such as -1, select nothing.
        compressed: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: attention over compressed
            entries. The last dimension is contiguous.
        gates: [queries, kv_heads * group, branches] if cu_seqlens_q; [batch, queries, kv_heads * group, branches]
            if layout=bshd; [batch, kv_heads * group, queries, branches], float32, float16 or bfloat16: logits: a
            branch is weighted by the sigmoid of its gate.
        selected: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the selected branch, of
            nsa_gated_attention. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: its lse.
        dselected: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of the selected branch,
            where something else depends on it. The last dimension is contiguous. Optional.
        dlse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: gradient of
            its lse; ignored where lse is -inf. Optional.
        window_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the branch of the window. The
            last dimension is contiguous. Optional.
        window_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: its
            lse. Optional.
        dwindow_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of that branch,
            likewise. The last dimension is contiguous. Optional.
        dwindow_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32:
            gradient of its lse. Optional.
        block_counts: [queries, selecting] if cu_seqlens_q; [batch, queries, selecting] if layout=bshd; [batch,
            selecting, queries], int32: number of used entries of each row; all if omitted. Optional.
        sel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32, float16 or bfloat16: factors of 1 on the
            scores of each entry's block: results do not depend on them, but their gradient trains a selector.
            Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        block_size: keys of a block; a block size from 1 to 2^20.
        causal: hides later keys; the last query is aligned with the last key.
        diagonal: a token sees its own block, selected or not.
        repeats: a block that is listed several times counts several times.
        window: keys of the sliding window, which ends at the token and has its own softmax; 0: no window; a number
            of keys, at most 2^29, or 0 for no window.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        keep_branches: the result and the lse of the selected branch, and of the window, are results, too: gradients
            need them.
        sel_scale_gradient: also the gradient of sel_scale, which need not be given.
        dq, dk, dv, dcompressed, dgates, dsel_scale: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. The last dimension is contiguous.
        dk: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of k: gradient of k. The last dimension is contiguous.
        dv: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of v: gradient of v. The last dimension is contiguous.
        dcompressed: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of compressed. The last
            dimension is contiguous.
        dgates: [queries, kv_heads * group, branches] if cu_seqlens_q; [batch, queries, kv_heads * group, branches]
            if layout=bshd; [batch, kv_heads * group, queries, branches], dtype that of gates: gradient of the
            gates. The last dimension is contiguous.
        dsel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32: gradient of sel_scale; 0 where an entry
            selects nothing, or a block that an earlier entry has selected. None unless sel_scale_gradient.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        block_indices: expected {heads} heads, as q, or {kv_heads}, as k; give a row for each head.
        block_indices: expected at most 4096 entries of a row; select larger blocks, or use block_sparse_attention.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        gates: expected a gate for each branch, in the order compressed, selected, window; give two gates, or three
            with a window.
        keep_branches: expected true; call nsa_gated_attention with keep_branches.
        window_out: expected window_out and window_lse; give what nsa_gated_attention returned with keep_branches.
        window_out: expected none, as the options have no window; leave it out, or give the window of the forward.
        window_lse: expected none, as the options have no window; leave it out, or give the window of the forward.
        dwindow_out: expected none, as the options have no window; leave it out, or give the window of the forward.
        dwindow_lse: expected none, as the options have no window; leave it out, or give the window of the forward.
        block_indices: expected fewer than 2^31 entries of a head, of all batches together; split the batch.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches.
    """

class NsaSelectedAttentionResult(NamedTuple):
    out: Any
    lse: Any
    window_out: Any
    window_lse: Any

def nsa_selected_attention(
    q: Array,
    k: Array,
    v: Array,
    block_indices: Array,
    *,
    block_counts: Array | None = None,
    sel_scale: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    block_size: int = 64,
    causal: bool = True,
    diagonal: bool = False,
    repeats: bool = False,
    window: int = 0,
    scale: float | None = None,
    tile_queries: int = 0,
    tile_keys: int = 0,
    check_indices: bool = False,
    out: Array | None = None,
    lse: Array | None = None,
    window_out: Array | None = None,
    window_lse: Array | None = None,
    target: str = "automatic",
) -> NsaSelectedAttentionResult:
    """Attention in which every token sees selected blocks of keys and, optionally, a window.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        block_indices: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], int32: numbers of the key blocks that a token sees;
            block i begins at key i * block_size; other numbers, such as -1, select nothing.
        block_counts: [queries, selecting] if cu_seqlens_q; [batch, queries, selecting] if layout=bshd; [batch,
            selecting, queries], int32: number of used entries of each row; all if omitted. Optional.
        sel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32, float16 or bfloat16: factors of 1 on the
            scores of each entry's block: results do not depend on them, but their gradient trains a selector.
            Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        block_size: keys of a block; a block size from 1 to 2^20.
        causal: hides later keys; the last query is aligned with the last key.
        diagonal: a token sees its own block, selected or not.
        repeats: a block that is listed several times counts several times.
        window: keys of the sliding window, which ends at the token and has its own softmax; 0: no window; a number
            of keys, at most 2^29, or 0 for no window.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        check_indices: refuses used entries that are neither -1 nor a block; the call then waits for the GPU.
        out, lse, window_out, window_lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the weighted sums of values; 0
            where no key is seen. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: natural
            logarithm of the sum of exp(score); -inf where no key is seen, with a sink its logit.
        window_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the same of the window. The last
            dimension is contiguous. None unless window > 0.
        window_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: the
            same of the window. None unless window > 0.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        block_indices: expected {heads} heads, as q, or {kv_heads}, as k; give a row for each head.
        block_indices: expected at most 4096 entries of a row; select larger blocks, or use block_sparse_attention.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the selected branch, and its sliding window.
    """

class NsaSelectedAttentionBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any
    dsel_scale: Any

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
    dwindow_out: Array | None = None,
    window_out: Array | None = None,
    window_lse: Array | None = None,
    dwindow_lse: Array | None = None,
    block_counts: Array | None = None,
    sel_scale: Array | None = None,
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    layout: Literal["bshd", "bhsd"] = "bshd",
    max_seqlen_q: int = 0,
    max_seqlen_k: int = 0,
    block_size: int = 64,
    causal: bool = True,
    diagonal: bool = False,
    repeats: bool = False,
    window: int = 0,
    scale: float | None = None,
    tile_queries: int = 0,
    tile_keys: int = 0,
    sel_scale_gradient: bool = False,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    dsel_scale: Array | None = None,
    target: str = "automatic",
) -> NsaSelectedAttentionBackwardResult:
    """Gradients of nsa_selected_attention, of its window too, and of a scale of every selection.

    Args:
        dout: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. The last
            dimension is contiguous.
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. The last dimension is contiguous.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. The last dimension is contiguous.
        block_indices: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], int32: numbers of the key blocks that a token sees;
            block i begins at key i * block_size; other numbers, such as -1, select nothing.
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the result of
            nsa_selected_attention. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: the lse of
            that result.
        dlse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: gradient of
            lse; ignored where lse is -inf. Optional.
        dwindow_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of window_out; if
            omitted, the window contributes nothing to the gradients. The last dimension is contiguous. Optional.
        window_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the window's result. The last
            dimension is contiguous. Optional.
        window_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: the
            lse of that result. Optional.
        dwindow_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32:
            gradient of window_lse. Optional.
        block_counts: [queries, selecting] if cu_seqlens_q; [batch, queries, selecting] if layout=bshd; [batch,
            selecting, queries], int32: number of used entries of each row; all if omitted. Optional.
        sel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32, float16 or bfloat16: factors of 1 on the
            scores of each entry's block: results do not depend on them, but their gradient trains a selector.
            Optional.
        cu_seqlens_q: [sequences + 1], int32: boundaries of packed sequences of queries: sequence i has the tokens
            from entry i up to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: boundaries of packed sequences of keys. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: upper bound on the queries of a packed sequence, which the caller promises; a number of
            tokens, or 0 if unknown.
        max_seqlen_k: upper bound on the keys of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        block_size: keys of a block; a block size from 1 to 2^20.
        causal: hides later keys; the last query is aligned with the last key.
        diagonal: a token sees its own block, selected or not.
        repeats: a block that is listed several times counts several times.
        window: keys of the sliding window, which ends at the token and has its own softmax; 0: no window; a number
            of keys, at most 2^29, or 0 for no window.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        tile_queries: queries of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile; 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        sel_scale_gradient: also the gradient of sel_scale, which need not be given.
        dq, dk, dv, dsel_scale: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. The last dimension is contiguous.
        dk: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of k: gradient of k. The last dimension is contiguous.
        dv: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of v: gradient of v. The last dimension is contiguous.
        dsel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32: gradient of sel_scale; 0 where an entry
            selects nothing, or a block that an earlier entry has selected. None unless sel_scale_gradient.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        block_indices: expected {heads} heads, as q, or {kv_heads}, as k; give a row for each head.
        block_indices: expected at most 4096 entries of a row; select larger blocks, or use block_sparse_attention.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k as well; leave it out: without them all sequences are
            equally long.
        dwindow_out: expected a window in the options; give the window and the results of the forward.
        dwindow_out: expected window_out and window_lse with it; give the window and the results of the forward.
        dwindow_lse: expected dwindow_out with it; give dwindow_out, of zeros if necessary.
        block_indices: expected fewer than 2^31 entries of a head, of all batches together; split the batch.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao 2023, FlashAttention-2, over lists that are inverted on the device; the gradient of factors as in native-sparse-attention-pytorch (Wang 2025).
    """

def nsa_compress(
    x: Array,
    *,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    layout: Literal["bshd", "bhsd"] = "bshd",
    length: int = 32,
    stride: int = 16,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Means of overlapping windows of tokens.

    Args:
        x: [tokens, heads, d] if cu_seqlens; [batch, tokens, heads, d] if layout=bshd; [batch, heads, tokens, d],
            float32, float16 or bfloat16: keys or values. The last dimension is contiguous.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        length: tokens of a window; the mean of each window is an entry; a block size from 1 to 2^20.
        stride: tokens from the start of one window to the start of the next; a block size from 1 to 2^20.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [entries, heads, d] if cu_seqlens; [batch, entries, heads, d] if layout=bshd; [batch, heads, entries,
            d], dtype that of x: one entry per whole window; if packed, those of a sequence start at its first token
            / stride. The last dimension is contiguous.

    Rules:
        stride: expected at most {length}, the length of a window; give a longer window: tokens between windows
            would be ignored.
        max_seqlen: expected cu_seqlens as well; leave it out: without them all sequences are equally long.
        x: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: compression by means.
    """

def nsa_compress_backward(
    dout: Array,
    x: Array,
    *,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    layout: Literal["bshd", "bhsd"] = "bshd",
    length: int = 32,
    stride: int = 16,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradient of nsa_compress.

    Args:
        dout: [entries, heads, d] if cu_seqlens; [batch, entries, heads, d] if layout=bshd; [batch, heads, entries,
            d], dtype that of x: gradient of out. The last dimension is contiguous.
        x: [tokens, heads, d] if cu_seqlens; [batch, tokens, heads, d] if layout=bshd; [batch, heads, tokens, d],
            float32, float16 or bfloat16: keys or values. The last dimension is contiguous.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        length: tokens of a window; the mean of each window is an entry; a block size from 1 to 2^20.
        stride: tokens from the start of one window to the start of the next; a block size from 1 to 2^20.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [tokens, heads, d] if cu_seqlens; [batch, tokens, heads, d] if layout=bshd; [batch, heads, tokens, d],
            dtype that of x: gradient of x. The last dimension is contiguous.

    Rules:
        stride: expected at most {length}, the length of a window; give a longer window: tokens between windows
            would be ignored.
        max_seqlen: expected cu_seqlens as well; leave it out: without them all sequences are equally long.
        dout: expected {expected_entries} entries, as out has; give it the shape of out.
        x: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: compression by means.
    """

class NsaCompressedAttentionResult(NamedTuple):
    out: Any
    lse: Any

def nsa_compressed_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    layout: Literal["bshd", "bhsd"] = "bshd",
    length: int = 32,
    stride: int = 16,
    key_tokens: int = 0,
    scale: float | None = None,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> NsaCompressedAttentionResult:
    """Attention over compressed entries that end at the query or before it.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [entries, kv_heads, d] if cu_seqlens; [batch, entries, kv_heads, d] if layout=bshd; [batch, kv_heads,
            entries, d], dtype that of q: compressed keys. The last dimension is contiguous.
        v: [entries, kv_heads, d_v] if cu_seqlens; [batch, entries, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            entries, d_v], dtype that of q: compressed values. The last dimension is contiguous.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        length: tokens of a window; the mean of each window is an entry; a block size from 1 to 2^20.
        stride: tokens from the start of one window to the start of the next; a block size from 1 to 2^20.
        key_tokens: tokens from which the entries are made; 0: as many as queries; a number of tokens, or 0 for as
            many as queries.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens; [batch, queries, kv_heads * group, d_v] if layout=bshd;
            [batch, kv_heads * group, queries, d_v], dtype that of q: the weighted sums of values; 0 where no entry
            is seen. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens; [batch, kv_heads * group, queries], float32: natural
            logarithm of the sum of exp(score); -inf where no entry is seen.

    Rules:
        stride: expected at most {length}, the length of a window; give a longer window: tokens between windows
            would be ignored.
        max_seqlen: expected cu_seqlens as well; leave it out: without them all sequences are equally long.
        key_tokens: expected 0 with cu_seqlens; leave it out: a packed sequence has as many keys as queries.
        k: expected tokens / stride entries with cu_seqlens, as nsa_compress returns them; make them of the packed
            tokens.
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the compressed branch.
    """

class NsaCompressedAttentionBackwardResult(NamedTuple):
    dq: Any
    dk: Any
    dv: Any

def nsa_compressed_attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    *,
    dlse: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    layout: Literal["bshd", "bhsd"] = "bshd",
    length: int = 32,
    stride: int = 16,
    key_tokens: int = 0,
    scale: float | None = None,
    dq: Array | None = None,
    dk: Array | None = None,
    dv: Array | None = None,
    target: str = "automatic",
) -> NsaCompressedAttentionBackwardResult:
    """Gradients of nsa_compressed_attention.

    Args:
        dout: [queries, kv_heads * group, d_v] if cu_seqlens; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. The last
            dimension is contiguous.
        q: [queries, kv_heads * group, d] if cu_seqlens; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [entries, kv_heads, d] if cu_seqlens; [batch, entries, kv_heads, d] if layout=bshd; [batch, kv_heads,
            entries, d], dtype that of q: compressed keys. The last dimension is contiguous.
        v: [entries, kv_heads, d_v] if cu_seqlens; [batch, entries, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            entries, d_v], dtype that of q: compressed values. The last dimension is contiguous.
        out: [queries, kv_heads * group, d_v] if cu_seqlens; [batch, queries, kv_heads * group, d_v] if layout=bshd;
            [batch, kv_heads * group, queries, d_v], dtype that of q: the result of nsa_compressed_attention. The
            last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens; [batch, kv_heads * group, queries], float32: the lse of that
            result.
        dlse: [kv_heads * group, queries] if cu_seqlens; [batch, kv_heads * group, queries], float32: gradient of
            lse; ignored where lse is -inf. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        length: tokens of a window; the mean of each window is an entry; a block size from 1 to 2^20.
        stride: tokens from the start of one window to the start of the next; a block size from 1 to 2^20.
        key_tokens: tokens from which the entries are made; 0: as many as queries; a number of tokens, or 0 for as
            many as queries.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        dq, dk, dv: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. The last dimension is contiguous.
        dk: [entries, kv_heads, d] if cu_seqlens; [batch, entries, kv_heads, d] if layout=bshd; [batch, kv_heads,
            entries, d], dtype that of k: gradient of k. The last dimension is contiguous.
        dv: [entries, kv_heads, d_v] if cu_seqlens; [batch, entries, kv_heads, d_v] if layout=bshd; [batch,
            kv_heads, entries, d_v], dtype that of v: gradient of v. The last dimension is contiguous.

    Rules:
        stride: expected at most {length}, the length of a window; give a longer window: tokens between windows
            would be ignored.
        max_seqlen: expected cu_seqlens as well; leave it out: without them all sequences are equally long.
        key_tokens: expected 0 with cu_seqlens; leave it out: a packed sequence has as many keys as queries.
        k: expected tokens / stride entries with cu_seqlens, as nsa_compress returns them; make them of the packed
            tokens.
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the compressed branch.
    """

def nsa_select(
    q: Array,
    k: Array,
    lse: Array,
    count: int,
    *,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    layout: Literal["bshd", "bhsd"] = "bshd",
    length: int = 32,
    stride: int = 16,
    block_size: int = 64,
    first_blocks: int = 1,
    local_blocks: int = 2,
    weight: Literal["sum", "largest"] = "sum",
    key_tokens: int = 0,
    scale: float | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """The key blocks that matter most by the weights of compressed entries.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. The last dimension is
            contiguous.
        k: [entries, kv_heads, d] if cu_seqlens; [batch, entries, kv_heads, d] if layout=bshd; [batch, kv_heads,
            entries, d], dtype that of q: compressed keys. The last dimension is contiguous.
        lse: [kv_heads * group, queries] if cu_seqlens; [batch, kv_heads * group, queries], float32: the lse that
            nsa_compressed_attention returns for q and k.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        length: tokens of a window; the mean of each window is an entry; a block size from 1 to 2^20.
        stride: tokens from the start of one window to the start of the next; a block size from 1 to 2^20.
        count: entries of a row, at most 4096.
        block_size: tokens of a selected block; a block size from 1 to 2^20.
        first_blocks: number of leading blocks that are always selected first; a number of blocks from 0 to 2^20.
        local_blocks: number of blocks up to the query's own that are always selected first; a number of blocks from
            0 to 2^20.
        weight: how the weights of a block's entries are combined; one of sum, largest.
        key_tokens: tokens from which the entries are made; 0: as many as queries; a number of tokens, or 0 for as
            many as queries.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads, count] if cu_seqlens; [batch, queries, kv_heads, count] if layout=bshd; [batch,
            kv_heads, queries, count], int32: block numbers in ascending order, -1 where fewer exist.

    Rules:
        stride: expected at most {length}, the length of a window; give a longer window: tokens between windows
            would be ignored.
        max_seqlen: expected cu_seqlens as well; leave it out: without them all sequences are equally long.
        key_tokens: expected 0 with cu_seqlens; leave it out: a packed sequence has as many keys as queries.
        k: expected tokens / stride entries with cu_seqlens, as nsa_compress returns them; make them of the packed
            tokens.
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        count: expected a number of blocks from 0 to 4096; select larger blocks.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: selection by the compressed branch.
    """

def nsa_decode(
    q: Array,
    k: Array,
    v: Array,
    compressed_k: Array,
    compressed_v: Array,
    gates: Array,
    *,
    layout: Literal["bshd", "bhsd"] = "bshd",
    length: int = 32,
    stride: int = 16,
    block_size: int = 64,
    count: int = 16,
    first_blocks: int = 1,
    local_blocks: int = 2,
    window: int = 512,
    scale: float | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Native sparse attention of few tokens, the last of many.

    Args:
        q: [batch, queries, kv_heads * group, d] if layout=bshd; [batch, kv_heads * group, queries, d], float32,
            float16 or bfloat16: queries, the last of all tokens. The last dimension is contiguous.
        k: [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys, d], dtype that of q: keys of all
            tokens. The last dimension is contiguous.
        v: [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads, keys, d_v], dtype that of q: values of all
            tokens. The last dimension is contiguous.
        compressed_k: [batch, entries, kv_heads, d] if layout=bshd; [batch, kv_heads, entries, d], dtype that of q:
            compressed keys. The last dimension is contiguous.
        compressed_v: [batch, entries, kv_heads, d_v] if layout=bshd; [batch, kv_heads, entries, d_v], dtype that of
            q: compressed values. The last dimension is contiguous.
        gates: [batch, queries, kv_heads * group, branches] if layout=bshd; [batch, kv_heads * group, queries,
            branches], float32, float16 or bfloat16: logits: a branch is weighted by the sigmoid of its gate.
        layout: order of batch, sequence, heads, features; one of bshd, bhsd.
        length: tokens of a window, of which each is an entry; a block size from 1 to 2^20.
        stride: tokens from the start of one window to the start of the next; a block size from 1 to 2^20.
        block_size: tokens of a selected block; a block size from 1 to 2^20.
        count: blocks that a token selects, at most 4096.
        first_blocks: number of leading blocks that are always selected first; a number of blocks from 0 to 2^20.
        local_blocks: number of blocks up to the query's own that are always selected first; a number of blocks from
            0 to 2^20.
        window: keys of the sliding window, which ends at the token and has its own softmax; 0: no window; a number
            of keys, at most 2^29, or 0 for no window.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, queries, kv_heads * group, d_v] if layout=bshd; [batch, kv_heads * group, queries, d_v], dtype
            that of q: the sum of sigmoid(gate) * branch. The last dimension is contiguous.

    Rules:
        gates: expected a gate for each branch, in the order compressed, selected, window; give two gates, or three
            with a window.
        stride: expected at most {length}, the length of a window; give a longer window: tokens between windows
            would be ignored.
        count: expected a number of blocks from 0 to 4096; select larger blocks.
        q: expected at most 16 queries, as are decoded at a time; call native_sparse_attention for more.
        k: expected a head for each 1 to 64 of q; call native_sparse_attention for larger groups.
        q: expected 1 to 256 features; call native_sparse_attention for more.
        v: expected 1 to 256 features; call native_sparse_attention for more.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention.
    """

def quantised_gemm(
    a: Array,
    b: Array,
    scales: Array,
    *,
    zeros: Array | None = None,
    tensor_scale: Array | None = None,
    row_scale: Array | None = None,
    bias: Array | None = None,
    format: Literal["int4", "uint4", "int8", "fp4", "mxfp4", "nvfp4", "ternary"] = "int4",
    packed: bool = False,
    group: int = 128,
    splits: int = 0,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Product with weights of 8, 4 or 2 bits.

    Args:
        a: [..., k], bfloat16, float16, float8_e4m3fn or int8: rows.
        b: [n, k] if format=int8; [n, k / 4] if format=ternary; [n, k / 2], uint8 or int8: weights: one, two or four
            in a byte.
        scales: [groups, n], float16, bfloat16, float32, uint8 or float8_e4m3fn: factors of every group of weights.
        zeros: [groups, n], float32, float16 or bfloat16: subtracted from the weights of a group. Optional.
        tensor_scale: [1], float32: factor of all weights. Optional.
        row_scale: [...], float32: factors of the rows of a, such as those of 8 bits. Optional.
        bias: [n], float32, float16 or bfloat16: added to every row. Optional.
        format: format of a weight before it is scaled; one of int4, uint4, int8, fp4, mxfp4, nvfp4, ternary.
        packed: b is in the order that packed_weights returns.
        group: weights that share a scale; 0: a whole row; 32 for mxfp4, 16 for nvfp4; 0, 16, 32 or a multiple of
            64.
        splits: splits of k, which are added in order; 0: planned; 1 to 32 splits, or 0.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., n], out_dtype, or that of a, bfloat16 where that has 8 bits: row_scale * (a * W^T) + bias.

    Rules:
        b: expected i8 for int8, u8 for weights of 4 and 2 bits; check the format.
        a: expected weights that fill bytes; add columns of zeros.
        scales: expected u8 for mxfp4, e4m3 for nvfp4, f16, bf16 or f32 else; check the format.
        group: expected 0, 16, 32 or a multiple of 64; give scales of such groups.
        scales: expected a scale for every group of {of_scale} weights; check group and format.
        zeros: expected no zeros: these weights are floats; leave them out.
        b: expected 4 bits, and a multiple of 64 weights in a row; leave packed out, or add columns of zeros.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Frantar et al. 2022, GPTQ; OCP Microscaling Formats (MX) 1.0, 2023; Ma et al. 2024, The Era of 1-bit LLMs.
    """

def quantised_grouped_gemm(
    a: Array,
    b: Array,
    scales: Array,
    *,
    zeros: Array | None = None,
    row_scale: Array | None = None,
    bias: Array | None = None,
    row_weights: Array | None = None,
    offsets: Array | None = None,
    counts: Array | None = None,
    format: Literal["int4", "uint4", "int8", "fp4", "mxfp4", "nvfp4", "ternary"] = "int4",
    packed: bool = False,
    block: int = 128,
    max_rows: int = 0,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows of groups times their matrices, of weights of 8, 4 or 2 bits.

    Args:
        a: [m, k] if offsets; [groups, m, k], bfloat16, float16, float8_e4m3fn or int8: rows of all groups.
        b: [groups, n, k] if format=int8; [groups, n, k / 4] if format=ternary; [groups, n, k / 2], uint8 or int8:
            weights: one, two or four in a byte.
        scales: [groups, blocks, n], float16, bfloat16, float32, uint8 or float8_e4m3fn: factors of every block of
            weights.
        zeros: [groups, blocks, n], float32, float16 or bfloat16: subtracted from the weights of a block. Optional.
        row_scale: [m] if offsets; [groups, m], float32: factors of the rows of a, such as those of 8 bits.
            Optional.
        bias: [groups, n], float32, float16 or bfloat16: added to every row of a group. Optional.
        row_weights: [m] if offsets; [groups, m], float32: factors of the results' rows. Optional.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group. Optional.
        counts: [groups], int32: number of used rows of each group. Optional.
        format: format of a weight before it is scaled; one of int4, uint4, int8, fp4, mxfp4, nvfp4, ternary.
        packed: b is in the order that packed_weights returns.
        block: weights that share a scale; 0: a whole row; 32 for mxfp4, 16 for nvfp4; 0, 16, 32 or a multiple of
            64.
        max_rows: upper bound on the rows of a group, which the caller promises; a number of rows, or 0 where it is
            not known.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n] if offsets; [groups, m, n], out_dtype, or that of a, bfloat16 where that has 8 bits: row_weights
            * (row_scale * (a * W^T) + bias).

    Rules:
        counts: expected offsets or counts; leave one of them out.
        b: expected i8 for int8, u8 for weights of 4 and 2 bits; check the format.
        a: expected weights that fill bytes; add columns of zeros.
        scales: expected u8 for mxfp4, e4m3 for nvfp4, f16, bf16 or f32 else; check the format.
        block: expected 0, 16, 32 or a multiple of 64; give scales of such blocks.
        scales: expected a scale for every block of {of_scale} weights; check block and format.
        zeros: expected no zeros: these weights are floats; leave them out.
        b: expected 4 bits, and a multiple of 64 weights in a row; leave packed out, or add columns of zeros.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: OpenAI 2025, gpt-oss; OCP Microscaling Formats (MX) 1.0, 2023.
    """

class CastFp8Result(NamedTuple):
    out: Any
    scale: Any

def cast_fp8(
    x: Array,
    *,
    offsets: Array | None = None,
    scaling: Literal["token", "block", "tensor"] = "token",
    power_of_two: bool = False,
    group_rows: int = 0,
    out: Array | None = None,
    scale: Array | None = None,
    target: str = "automatic",
) -> CastFp8Result:
    """Casts to e4m3 with scales of 128 features, of 128 x 128 blocks or of a tensor.

    Args:
        x: [m, n] or [batch, m, n], float32, float16 or bfloat16: tokens or weights by features.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group: no scale belongs to
            two of them. Optional.
        scaling: what each scale belongs to; one of token, block, tensor.
        power_of_two: scales are rounded up to powers of two.
        group_rows: rows of each group in the result [groups, group_rows, n], zeros after those it has; a number of
            rows, or 0 where the result is as x.
        out, scale: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [groups, group_rows, n] if group_rows > 0; [m, n] or [batch, m, n], float8_e4m3fn: x / scale.
        scale: [1] if scaling=tensor; [groups, group_rows, ceildiv(n, 128)] if group_rows > 0; [m, ceildiv(n, 128)]
            or [batch, m, ceildiv(n, 128)] if scaling=token; [m / 128 + groups, ceildiv(n, 128)] if offsets;
            [ceildiv(m, 128), ceildiv(n, 128)] or [batch, ceildiv(m, 128), ceildiv(n, 128)], float32: the largest
            magnitude / 448, at least 2^-126; block i of group g has row offsets[g] / 128 + g + i.

    Rules:
        offsets: expected x without a batch; call once for each matrix.
        offsets: expected scaling=block or group_rows: groups share no scale of tokens; leave offsets out.
        group_rows: expected offsets and scaling=token; leave group_rows out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Micikevicius et al. 2022, FP8 Formats for Deep Learning; the scaling of DeepSeek-V3.
    """

def uncast_fp8(
    x: Array,
    scale: Array,
    *,
    offsets: Array | None = None,
    scaling: Literal["token", "block", "tensor"] = "token",
    out_dtype: Any = "f32",
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Converts e4m3 back, times the scales of cast_fp8.

    Args:
        x: [m, n] or [batch, m, n], float8_e4m3fn: the values that cast_fp8 returns.
        scale: [1] if scaling=tensor; [m, ceildiv(n, 128)] or [batch, m, ceildiv(n, 128)] if scaling=token; [m / 128
            + groups, ceildiv(n, 128)] if offsets; [ceildiv(m, 128), ceildiv(n, 128)] or [batch, ceildiv(m, 128),
            ceildiv(n, 128)], float32: their scales.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group: no scale belongs to
            two of them. Optional.
        scaling: what each scale belongs to; one of token, block, tensor.
        out_dtype: dtype of the result; one of f32, f16, bf16.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n] or [batch, m, n], out_dtype, or that of x, float32 where that has 8 bits: x * scale.

    Rules:
        offsets: expected x without a batch and scaling=block; leave offsets out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the inverse of cast_fp8.
    """

class CrossEntropyResult(NamedTuple):
    loss: Any
    lse: Any

def cross_entropy(
    logits: Array,
    labels: Array,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    loss: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> CrossEntropyResult:
    """Cross-entropy loss of every row of logits.

    Args:
        logits: [..., classes], float32, float16 or bfloat16: rows, in their own dtype throughout.
        labels: [...], int32: the class of every row, or ignore_index.
        label_smoothing: share of the target that is spread evenly over all classes; a share from 0 to 1.
        ignore_index: rows with this label have no loss and no gradient.
        loss, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        loss: [...], float32: lse - (1 - s) * logit of the label - s * mean(logits).
        lse: [...], float32: log(sum(exp(logits))).

    Rules:
        logits: expected 1 class or more; leave the call out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: PyTorch's cross_entropy; gradients in the same pass as in Hsu et al. 2024, Liger Kernel.
    """

class CrossEntropyAndGradientResult(NamedTuple):
    loss: Any
    lse: Any
    dlogits: Any

def cross_entropy_and_gradient(
    logits: Array,
    labels: Array,
    *,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    gradient_scale: float = 1.0,
    loss: Array | None = None,
    lse: Array | None = None,
    dlogits: Array | None = None,
    target: str = "automatic",
) -> CrossEntropyAndGradientResult:
    """Cross-entropy loss of every row of logits, and its gradient in the same pass.

    Args:
        logits: [..., classes], float32, float16 or bfloat16: rows, in their own dtype throughout.
        labels: [...], int32: the class of every row, or ignore_index.
        label_smoothing: share of the target that is spread evenly over all classes; a share from 0 to 1.
        ignore_index: rows with this label have no loss and no gradient.
        gradient_scale: factor of dlogits; a finite number.
        loss, lse, dlogits: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        loss: [...], float32: lse - (1 - s) * logit of the label - s * mean(logits).
        lse: [...], float32: log(sum(exp(logits))).
        dlogits: [..., classes], dtype that of logits: gradient of gradient_scale * sum(loss).

    Rules:
        logits: expected 1 class or more; leave the call out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: PyTorch's cross_entropy; gradients in the same pass as in Hsu et al. 2024, Liger Kernel.
    """

def cross_entropy_backward(
    dloss: Array,
    logits: Array,
    labels: Array,
    lse: Array,
    *,
    dlse: Array | None = None,
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
    dlogits: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of cross_entropy.

    Args:
        dloss: [...], float32: gradient of loss.
        logits: [..., classes], float32, float16 or bfloat16: rows.
        labels: [...], int32: the class of every row, or ignore_index.
        lse: [...], float32: log(sum(exp(logits))).
        dlse: [...], float32: gradient of lse. Optional.
        label_smoothing: share of the target that is spread evenly over all classes; a share from 0 to 1.
        ignore_index: rows with this label have no loss and no gradient.
        dlogits: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dlogits: [..., classes], dtype that of logits: gradient of logits.

    Rules:
        logits: expected 1 class or more; leave the call out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: PyTorch's cross_entropy; gradients in the same pass as in Hsu et al. 2024, Liger Kernel.
    """

def cumsum(
    x: Array,
    *,
    cu_seqlens: Array | None = None,
    reverse: bool = False,
    exclusive: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Running sums of rows, or of segments of rows.

    Args:
        x: [..., n], float32, float16 or bfloat16: rows.
        cu_seqlens: [segments + 1], int32: first element of each segment of a row, and n at the end. Optional.
        reverse: sums from right to left.
        exclusive: leaves out the element itself.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., n], dtype that of x: sum of x[j] over j <= i of the segment, in f32.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Blelloch 1990, Prefix Sums and Their Applications.
    """

def silu_and_mul(
    x: Array,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Silu of the first half of every row, times the second.

    Args:
        x: [..., 2 * d], float32, float16 or bfloat16: gates, followed by the values that they multiply.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: x1 / (1 + exp(-x1)) * x2 of the halves x1 and x2.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """

def gelu_and_mul(
    x: Array,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gelu of the first half of every row, times the second.

    Args:
        x: [..., 2 * d], float32, float16 or bfloat16: gates, followed by the values that they multiply.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: x1/2 * (1 + tanh(sqrt(2/pi) * (x1 + 0.044715 x1^3))) * x2 of the halves x1
            and x2.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """

def relu_and_mul(
    x: Array,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Relu of the first half of every row, times the second.

    Args:
        x: [..., 2 * d], float32, float16 or bfloat16: gates, followed by the values that they multiply.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: max(x1, 0) * x2 of the halves x1 and x2.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """

def silu_and_mul_backward(
    dout: Array,
    x: Array,
    *,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of silu_and_mul.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., 2 * d], float32, float16 or bfloat16: gates, followed by the values that they multiply.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., 2 * d], dtype that of x: gradient of x.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """

def gelu_and_mul_backward(
    dout: Array,
    x: Array,
    *,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of gelu_and_mul.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., 2 * d], float32, float16 or bfloat16: gates, followed by the values that they multiply.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., 2 * d], dtype that of x: gradient of x.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """

def relu_and_mul_backward(
    dout: Array,
    x: Array,
    *,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of relu_and_mul.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., 2 * d], float32, float16 or bfloat16: gates, followed by the values that they multiply.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., 2 * d], dtype that of x: gradient of x.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Shazeer 2020, GLU Variants Improve Transformer.
    """

def swiglu_oai(
    x: Array,
    *,
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gated units that are clamped, as gpt-oss has them.

    Args:
        x: [..., 2 * d], float32, float16 or bfloat16: gates and the values that they multiply, one after the other
            or interleaved.
        alpha: factor of the gate inside the sigmoid; a finite number.
        limit: limit to which gates and values are clamped; a positive finite number.
        interleaved: gates and values alternate, each gate before its value.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: g / (1 + exp(-alpha * g)) * (v + 1) with g = min(gate, limit), v =
            clamp(value, limit).

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: OpenAI 2025, gpt-oss.
    """

def swiglu_oai_backward(
    dout: Array,
    x: Array,
    *,
    alpha: float = 1.702,
    limit: float = 7.0,
    interleaved: bool = False,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of swiglu_oai.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., 2 * d], float32, float16 or bfloat16: gates and the values that they multiply, one after the other
            or interleaved.
        alpha: factor of the gate inside the sigmoid; a finite number.
        limit: limit to which gates and values are clamped; a positive finite number.
        interleaved: gates and values alternate, each gate before its value.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., 2 * d], dtype that of x: gradient of x.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: OpenAI 2025, gpt-oss.
    """

def hadamard(
    x: Array,
    *,
    scale: float = 1.0,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Hadamard transforms of rows.

    Args:
        x: [..., n], float32, float16 or bfloat16: rows.
        scale: factor of the result; 1/sqrt(n) makes the transform orthogonal; a finite number.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., n], dtype that of x: scale * (H_m x H_2^k) x, with n = m * 2^k.

    Rules:
        x: expected 2^k, 12*2^k, 20*2^k or 28*2^k features, up to 32768; pad the rows.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Sylvester 1867; Paley 1933, On Orthogonal Matrices.
    """

def hadamard_backward(
    dout: Array,
    x: Array,
    *,
    scale: float = 1.0,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of hadamard.

    Args:
        dout: [..., n], dtype that of x: gradient of out.
        x: [..., n], float32, float16 or bfloat16: rows.
        scale: factor of the result; 1/sqrt(n) makes the transform orthogonal; a finite number.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., n], dtype that of x: gradient of x.

    Rules:
        x: expected 2^k, 12*2^k, 20*2^k or 28*2^k features, up to 32768; pad the rows.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Sylvester 1867; Paley 1933, On Orthogonal Matrices.
    """

def layer_norm(
    x: Array,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-05,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows minus their mean, divided by their standard deviation.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        bias: [d], float32, float16 or bfloat16: added to the features. Optional.
        eps: added to the variance; a positive finite number.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization.
    """

class LayerNormBackwardResult(NamedTuple):
    dx: Any
    dweight: Any
    dbias: Any

def layer_norm_backward(
    dout: Array,
    x: Array,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-05,
    dx: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
    target: str = "automatic",
) -> LayerNormBackwardResult:
    """Gradients of layer_norm.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., d], float32, float16 or bfloat16: rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        bias: [d], float32, float16 or bfloat16: added to the features. Optional.
        eps: added to the variance; a positive finite number.
        dx, dweight, dbias: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., d], dtype that of x: gradient of x.
        dweight: [d], float32: gradient of weight. None unless weight.
        dbias: [d], float32: gradient of bias. None unless bias.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization.
    """

class AddLayerNormResult(NamedTuple):
    out: Any
    sum: Any

def add_layer_norm(
    x: Array,
    residual: Array,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-05,
    out: Array | None = None,
    sum: Array | None = None,
    target: str = "automatic",
) -> AddLayerNormResult:
    """Sums of two rows, and layer_norm of these sums.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: residual that is added to the rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        bias: [d], float32, float16 or bfloat16: added to the features. Optional.
        eps: added to the variance; a positive finite number.
        out, sum: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.
        sum: [..., d], dtype that of x: x + residual, which out is the norm of.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization.
    """

class AddLayerNormBackwardResult(NamedTuple):
    dx: Any
    dresidual: Any
    dweight: Any
    dbias: Any

def add_layer_norm_backward(
    dout: Array,
    dsum: Array,
    x: Array,
    residual: Array,
    *,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-05,
    dx: Array | None = None,
    dresidual: Array | None = None,
    dweight: Array | None = None,
    dbias: Array | None = None,
    target: str = "automatic",
) -> AddLayerNormBackwardResult:
    """Gradients of add_layer_norm.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        dsum: [..., d], dtype that of x: gradient of sum.
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: residual that is added to the rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        bias: [d], float32, float16 or bfloat16: added to the features. Optional.
        eps: added to the variance; a positive finite number.
        dx, dresidual, dweight, dbias: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., d], dtype that of x: gradient of x.
        dresidual: [..., d], dtype that of residual: gradient of residual.
        dweight: [d], float32: gradient of weight. None unless weight.
        dbias: [d], float32: gradient of bias. None unless bias.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization.
    """

class RmsNormFp8Result(NamedTuple):
    out: Any
    scale: Any
    sum: Any

def rms_norm_fp8(
    x: Array,
    *,
    residual: Array | None = None,
    weight: Array | None = None,
    eps: float = 1e-06,
    power_of_two: bool = False,
    out: Array | None = None,
    scale: Array | None = None,
    sum: Array | None = None,
    target: str = "automatic",
) -> RmsNormFp8Result:
    """Rms_norm of rows, cast to e4m3 with scales of 128 features.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: residual that is added to the rows. Optional.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        eps: added to the mean of the squares; a positive finite number.
        power_of_two: scales are rounded up to powers of two.
        out, scale, sum: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], float8_e4m3fn: the norm / scale.
        scale: [..., ceildiv(d, 128)], float32: the largest magnitude of 128 features / 448, at least 2^-126.
        sum: [..., d], dtype that of x: x + residual, which out is the norm of. None unless residual.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Zhang and Sennrich 2019, Root Mean Square Layer Normalization; the scaling of DeepSeek-V3.
    """

class LayerNormFp8Result(NamedTuple):
    out: Any
    scale: Any
    sum: Any

def layer_norm_fp8(
    x: Array,
    *,
    residual: Array | None = None,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-05,
    power_of_two: bool = False,
    out: Array | None = None,
    scale: Array | None = None,
    sum: Array | None = None,
    target: str = "automatic",
) -> LayerNormFp8Result:
    """Layer_norm of rows, cast to e4m3 with scales of 128 features.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: residual that is added to the rows. Optional.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        bias: [d], float32, float16 or bfloat16: added to the features. Optional.
        eps: added to the variance; a positive finite number.
        power_of_two: scales are rounded up to powers of two.
        out, scale, sum: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], float8_e4m3fn: the norm / scale.
        scale: [..., ceildiv(d, 128)], float32: the largest magnitude of 128 features / 448, at least 2^-126.
        sum: [..., d], dtype that of x: x + residual, which out is the norm of. None unless residual.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization; the scaling of DeepSeek-V3.
    """

def rms_norm(
    x: Array,
    *,
    weight: Array | None = None,
    eps: float = 1e-06,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows divided by their root mean square.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        eps: added to the mean of the squares; a positive finite number.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: x / sqrt(mean(x^2) + eps) * weight.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Zhang and Sennrich 2019, Root Mean Square Layer Normalization.
    """

class RmsNormBackwardResult(NamedTuple):
    dx: Any
    dweight: Any

def rms_norm_backward(
    dout: Array,
    x: Array,
    *,
    weight: Array | None = None,
    eps: float = 1e-06,
    dx: Array | None = None,
    dweight: Array | None = None,
    target: str = "automatic",
) -> RmsNormBackwardResult:
    """Gradients of rms_norm.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., d], float32, float16 or bfloat16: rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        eps: added to the mean of the squares; a positive finite number.
        dx, dweight: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., d], dtype that of x: gradient of x.
        dweight: [d], float32: gradient of weight. None unless weight.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Zhang and Sennrich 2019, Root Mean Square Layer Normalization.
    """

class AddRmsNormResult(NamedTuple):
    out: Any
    sum: Any

def add_rms_norm(
    x: Array,
    residual: Array,
    *,
    weight: Array | None = None,
    eps: float = 1e-06,
    out: Array | None = None,
    sum: Array | None = None,
    target: str = "automatic",
) -> AddRmsNormResult:
    """Sums of two rows, and rms_norm of these sums.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: residual that is added to the rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        eps: added to the mean of the squares; a positive finite number.
        out, sum: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: x / sqrt(mean(x^2) + eps) * weight.
        sum: [..., d], dtype that of x: x + residual, which out is the norm of.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Zhang and Sennrich 2019, Root Mean Square Layer Normalization.
    """

class AddRmsNormBackwardResult(NamedTuple):
    dx: Any
    dresidual: Any
    dweight: Any

def add_rms_norm_backward(
    dout: Array,
    dsum: Array,
    x: Array,
    residual: Array,
    *,
    weight: Array | None = None,
    eps: float = 1e-06,
    dx: Array | None = None,
    dresidual: Array | None = None,
    dweight: Array | None = None,
    target: str = "automatic",
) -> AddRmsNormBackwardResult:
    """Gradients of add_rms_norm.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        dsum: [..., d], dtype that of x: gradient of sum.
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: residual that is added to the rows.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        eps: added to the mean of the squares; a positive finite number.
        dx, dresidual, dweight: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., d], dtype that of x: gradient of x.
        dresidual: [..., d], dtype that of residual: gradient of residual.
        dweight: [d], float32: gradient of weight. None unless weight.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Zhang and Sennrich 2019, Root Mean Square Layer Normalization.
    """

def rope(
    x: Array,
    cosine: Array,
    sine: Array,
    *,
    positions: Array | None = None,
    pairing: Literal["halves", "neighbours"] = "halves",
    inverse: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rotary position embedding: rotates pairs of features by an angle per position.

    Args:
        x: [tokens, heads, d] or [batch, tokens, heads, d], float32, float16 or bfloat16: queries or keys.
        cosine: [length, half], float32: cosines of the angles of every position.
        sine: [length, half], float32: sines of the same angles.
        positions: [tokens] or [batch, tokens], int32: positions of the tokens; 0, 1, 2, ... if omitted. Optional.
        pairing: features that are rotated together: j and j + half, or 2j and 2j + 1; one of halves, neighbours.
        inverse: rotates back, which is also the gradient.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, heads, d] or [batch, tokens, heads, d], dtype that of x: the first 2*half features rotated,
            the others unchanged.

    Rules:
        cosine: expected at most {d}/2 pairs, half the features; give the angles of fewer pairs.
        cosine: expected 1 pair or more; leave the call out.
        cosine: expected angles of all {tokens} tokens; give longer tables.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Su et al. 2021, RoFormer.
    """

def softmax(
    x: Array,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Exponentials of rows, divided by their sum.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: exp(x) / sum(exp(x)).

    Rules:
        x: expected 1 feature or more; leave the call out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in chunks.
    """

def log_softmax(
    x: Array,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows minus the logarithm of the sum of their exponentials.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: x - log(sum(exp(x))).

    Rules:
        x: expected 1 feature or more; leave the call out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in chunks.
    """

def softmax_backward(
    dout: Array,
    x: Array,
    *,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of softmax.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., d], float32, float16 or bfloat16: rows.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., d], dtype that of x: gradient of x.

    Rules:
        x: expected 1 feature or more; leave the call out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in chunks.
    """

def log_softmax_backward(
    dout: Array,
    x: Array,
    *,
    dx: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of log_softmax.

    Args:
        dout: [..., d], dtype that of x: gradient of out.
        x: [..., d], float32, float16 or bfloat16: rows.
        dx: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., d], dtype that of x: gradient of x.

    Rules:
        x: expected 1 feature or more; leave the call out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in chunks.
    """

class TopkResult(NamedTuple):
    values: Any
    indices: Any

def topk(
    x: Array,
    count: int,
    *,
    gates: Literal["none", "softmax", "sigmoid"] = "none",
    normalized: bool = False,
    values: Array | None = None,
    indices: Array | None = None,
    target: str = "automatic",
) -> TopkResult:
    """The largest elements of every row in descending order, and gates of experts.

    Args:
        x: [..., n], float32, float16 or bfloat16: rows; NaN counts as the largest, and of equal elements the first
            comes first.
        count: elements of a row; a number from 0 to 256.
        gates: what is returned for the selected elements: their softmax or their sigmoids; one of none, softmax,
            sigmoid.
        normalized: sigmoids are divided by their sum.
        values, indices: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        values: [..., count], dtype that of x: the selected elements, or their gates.
        indices: [..., count], int32: positions of these elements in their rows.

    Rules:
        count: expected at most {n}, the elements of a row; request no more than there are.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the gating of Shazeer et al. 2017, Outrageously Large Neural Networks.
    """

def scaled_gemm(
    a: Array,
    b: Array,
    scale_a: Array,
    scale_b: Array,
    *,
    c: Array | None = None,
    rows_b: int = 128,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Product of 8-bit floats with scales for every 128 of k.

    Args:
        a: [m, k], float8_e4m3fn or float8_e5m2: left matrix.
        b: [n, k], dtype that of a: right matrix, transposed.
        scale_a: [m, blocks], float32 or uint8: scales of each row for every 128 elements of k; u8 means e8m0.
        scale_b: [(n + rows_b - 1) / rows_b, blocks], dtype that of scale_a: scales of every rows_b rows for every
            128 elements of k.
        c: [m, n], float32, float16 or bfloat16: added. Optional.
        rows_b: rows of b that share a scale; 128 or 1.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n], out_dtype, or that of a, bfloat16 where that has 8 bits: c + the scaled product.

    Rules:
        scale_a: expected a scale for each 128 of k; scale blocks of 128.
        rows_b: expected 128 or 1; give scales of single rows, or of 128.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report; DeepGEMM.
    """

def scaled_grouped_gemm(
    a: Array,
    b: Array,
    scale_a: Array,
    scale_b: Array,
    *,
    bias: Array | None = None,
    offsets: Array | None = None,
    counts: Array | None = None,
    rows_b: int = 128,
    max_rows: int = 0,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows of each group times its matrix, in 8-bit floats with scales.

    Args:
        a: [m, k] if offsets; [groups, m, k], float8_e4m3fn or float8_e5m2: rows of all groups.
        b: [groups, n, k], dtype that of a: the matrices of the groups, transposed.
        scale_a: [m, blocks] if offsets; [groups, m, blocks], float32 or uint8: scales of each row for every 128
            elements of k; u8 means e8m0.
        scale_b: [groups, (n + rows_b - 1) / rows_b, blocks], dtype that of scale_a: scales of every rows_b rows for
            every 128 elements of k.
        bias: [groups, n], float32, float16 or bfloat16: added to every row of a group. Optional.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group. Optional.
        counts: [groups], int32: number of used rows of each group. Optional.
        rows_b: rows of b that share a scale; 128 or 1.
        max_rows: upper bound on the rows of a group, which the caller promises; a number of rows, or 0 where it is
            not known.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n] if offsets; [groups, m, n], out_dtype, or that of a, bfloat16 where that has 8 bits: the scaled
            products.

    Rules:
        counts: expected offsets or counts; leave one of them out.
        scale_a: expected a scale for each 128 of k; scale blocks of 128.
        rows_b: expected 128 or 1; give scales of single rows, or of 128.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report; DeepGEMM.
    """

def scaled_grouped_gemm_weights(
    a: Array,
    dout: Array,
    scale_a: Array,
    scale_dout: Array,
    offsets: Array,
    *,
    c: Array | None = None,
    aligned: bool = False,
    max_rows: int = 0,
    out_dtype: Any = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Gradients of the matrices of scaled products of groups.

    Args:
        a: [m, k], float8_e4m3fn or float8_e5m2: rows of all groups.
        dout: [m, n], dtype that of a: gradients of the results.
        scale_a: [(m + 127) / 128, k], float32 or uint8: factors of every column in every 128 rows; u8 is e8m0.
        scale_dout: [(m + 127) / 128, n], dtype that of scale_a: the same of dout.
        offsets: [groups + 1], int32: first row of each group, and the end of the last group.
        c: [groups, k, n], float32, float16 or bfloat16: added. Optional.
        aligned: a promise: groups begin at multiples of 128.
        max_rows: upper bound on the rows of a group, which the caller promises; a number of rows, or 0 where it is
            not known.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [groups, k, n], out_dtype, or float32, float16 or bfloat16, float32 where that has 8 bits: c + the
            scaled products over the rows of every group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: DeepSeek-AI 2024, DeepSeek-V3 Technical Report; DeepGEMM.
    """

def block_scores(
    q: Array,
    k: Array,
    *,
    q_block_size: int = 64,
    k_block_size: int = 64,
    layout: Literal["bshd", "bhsd"] = "bshd",
    causal: bool = False,
    proxy: Literal["mean", "max"] = "mean",
    per_kv_head: bool = True,
    scale: float | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Products of the means of query blocks and key blocks, or of single keys.

    Args:
        q: [batch, queries, kv_heads * group, d] if layout=bshd; [batch, kv_heads * group, queries, d], float32,
            float16 or bfloat16: queries. The last dimension is contiguous.
        k: [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys, d], dtype that of q: keys. The last
            dimension is contiguous.
        q_block_size: queries of a block; a block size from 1 to 2^20.
        k_block_size: keys of a block; a block size from 1 to 2^20.
        layout: order of batch, sequence, heads, features; one of bshd, bhsd.
        causal: blocks that no query of the row sees score -inf.
        proxy: representative of a block of keys: their mean, or the key with the largest product; one of mean, max.
        per_kv_head: one row for the heads of a group.
        scale: factor of the scores; a positive finite number, 1/sqrt(d) unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, heads, q_blocks, k_blocks], float32: scale * mean of a query block * mean of a key block, or
            the largest product of one of its keys.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 576 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: means of blocks as in Jiang et al. 2024, MInference 1.0.
    """

def topk_blocks(
    scores: Array,
    count: int,
    *,
    keep_first: bool = False,
    keep_diagonal: bool = False,
    q_block_size: int = 64,
    k_block_size: int = 64,
    key_offset: int = 0,
    share: float = 0.0,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """The blocks with the largest scores of every row, in ascending order.

    Args:
        scores: [batch, heads, q_blocks, k_blocks], float32: -inf and NaN are never selected.
        count: blocks of a row.
        keep_first: block 0 is always selected first.
        keep_diagonal: the block of the row's last query is always selected first.
        q_block_size: queries of a block, for the diagonal; a block size from 1 to 2^20.
        k_block_size: keys of a block, for the diagonal; a block size from 1 to 2^20.
        key_offset: keys - queries, for the diagonal; a number below 2^29 in magnitude.
        share: only the fewest blocks whose weights, exp(score), have this share of the row's sum; 0: count blocks,
            whatever they weigh; a share from 0 to 1.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, heads, q_blocks, count], int32: block numbers, -1 where fewer exist.

    Rules:
        count: expected a number of blocks from 0 to {most}: there are {k_blocks}; request no more than there are.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the selection of Yuan et al. 2025, Native Sparse Attention, with its first and local blocks; shares as in Xu et al. 2025, XAttention.
    """

class VerticalSlashBlocksResult(NamedTuple):
    mask: Any
    columns: Any

def vertical_slash_blocks(
    vertical: Array,
    slash: Array,
    queries: int,
    keys: int,
    *,
    q_block_size: int = 64,
    k_block_size: int = 64,
    mask: Array | None = None,
    columns: Array | None = None,
    target: str = "automatic",
) -> VerticalSlashBlocksResult:
    """Blocks of keys that diagonals of the scores cross, and the columns outside of them.

    Args:
        vertical: [batch, heads, verticals], int32: keys that all queries see; other numbers, such as -1, are
            padding.
        slash: [batch, heads, slashes], int32: distances from a query back to a key; negative numbers are padding.
        queries: queries of a sequence; a number of tokens below 2^29.
        keys: keys per sequence; the last query is aligned with the last key; a number of tokens below 2^29.
        q_block_size: queries of a block; a block size from 1 to 2^20.
        k_block_size: keys of a block; a block size from 1 to 2^20.
        mask, columns: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        mask: [batch, heads, q_blocks, k_blocks], bool: whether a diagonal of a block of queries crosses the block
            of keys.
        columns: [batch, heads, q_blocks, verticals], int32: columns outside of these blocks; -1 for the others.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the vertical-slash pattern of Jiang et al. 2024, MInference 1.0.
    """

class Compress24Result(NamedTuple):
    values: Any
    metadata: Any

def compress_24(
    a: Array,
    *,
    values: Array | None = None,
    metadata: Array | None = None,
    target: str = "automatic",
) -> Compress24Result:
    """The two elements of largest magnitude of each four along rows.

    Args:
        a: [m, k], float16, bfloat16, float8_e4m3fn, float8_e5m2 or int8: the matrix.
        values, metadata: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        values: [m, k / 2], dtype that of a: the elements that are kept.
        metadata: [m, k / 8], uint8: positions of the values, four bits for every two.

    Rules:
        a: expected a multiple of 8 columns; pad rows with zeros.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Mishra et al. 2021, Accelerating Sparse Deep Neural Networks.
    """

def gemm_24(
    values: Array,
    metadata: Array,
    b: Array,
    *,
    bias: Array | None = None,
    transpose_b: bool = False,
    transpose_out: bool = False,
    activation: Literal["none", "relu", "gelu", "silu"] = "none",
    scale: float = 1.0,
    out_dtype: Any = None,
    tile_m: int = 0,
    tile_n: int = 0,
    tile_k: int = 0,
    splits: int = 0,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Product of a matrix with two values of each four along its rows.

    Args:
        values: [m, k / 2], float16, bfloat16, float8_e4m3fn, float8_e5m2 or int8: the values of the left matrix.
        metadata: [m, k / 8], uint8: positions of the values, as compress_24 writes them.
        b: [n, k] if transpose_b; [k, n], dtype that of values: right matrix.
        bias: [m] if transpose_out; [n], float32, float16 or bfloat16: added to every row of the result. Optional.
        transpose_b: b is [n, k].
        transpose_out: the result is [n, m].
        activation: applied to the sums; gelu is the tanh approximation; one of none, relu, gelu, silu.
        scale: factor of the product; a finite factor.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        tile_m: rows of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_n: columns of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_k: inner extent of a tile; 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        splits: splits of k, which are added in order; 0: planned; 1 to 32 splits, or 0 for the plan's choice.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [n, m] if transpose_out; [m, n], out_dtype, or that of b, bfloat16 where that has 8 bits:
            activation(scale * a * b + bias).

    Rules:
        b: expected a multiple of 8 along k; pad both matrices with zeros along k.
        tile_k: expected a multiple of 8; leave it out.
        splits: expected no splits of k; leave it out.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Mishra et al. 2021, Accelerating Sparse Deep Neural Networks.
    """

def integer_gemm_24(
    values: Array,
    metadata: Array,
    b: Array,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Product of 8-bit integers of which two of each four are given, exact in 32 bits.

    Args:
        values: [m, k / 2], int8: the values of the left matrix.
        metadata: [m, k / 8], uint8: positions of the values, as compress_24 writes them.
        b: [n, k], int8: right matrix, transposed.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n], int32: a * b^T.

    Rules:
        b: expected a multiple of 8 along k; pad both matrices with zeros along k.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Mishra et al. 2021, Accelerating Sparse Deep Neural Networks.
    """

class SelectiveStateUpdateResult(NamedTuple):
    out: Any
    new_state: Any

def selective_state_update(
    state: Array,
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    *,
    D: Array | None = None,
    z: Array | None = None,
    dt_bias: Array | None = None,
    dt_softplus: bool = False,
    out: Array | None = None,
    new_state: Array | None = None,
    target: str = "automatic",
) -> SelectiveStateUpdateResult:
    """One step of a selective state space model.

    Args:
        state: [batch, groups * group, p, n], float32, float16 or bfloat16: states before the token. The last
            dimension is contiguous.
        x: [batch, groups * group, p], float32, float16 or bfloat16: values.
        dt: [batch, groups * group, p], float32, float16 or bfloat16: step widths.
        A: [groups * group, p, n], float32: logarithms of decays of a step of width 1.
        B: [batch, groups, n], dtype that of x: vectors by which values are written to the state.
        C: [batch, groups, n], dtype that of x: vectors by which the state is read.
        D: [groups * group, p], float32: factors of x that is added to the result. Optional.
        z: [batch, groups * group, p], dtype that of x: gate: results are multiplied by silu(z). Optional.
        dt_bias: [groups * group, p], float32: added to dt. Optional.
        dt_softplus: applies softplus to the steps: log(1 + exp(dt + dt_bias)).
        out, new_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, groups * group, p], dtype that of x: (new_state . C + D * x) * silu(z).
        new_state: [batch, groups * group, p, n], dtype that of state: exp(dt * A) * state + dt * x * B. The last
            dimension is contiguous.

    Rules:
        B: expected 1 to 512 features of states; split them.
        x: expected a multiple of the groups of heads; give x a head for each group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Gu and Dao 2023, Mamba; Dao and Gu 2024, Transformers are SSMs.
    """

class SsdResult(NamedTuple):
    out: Any
    final_state: Any

def ssd(
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    *,
    D: Array | None = None,
    z: Array | None = None,
    dt_bias: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    dt_softplus: bool = False,
    output_final_state: bool = False,
    out: Array | None = None,
    final_state: Array | None = None,
    target: str = "automatic",
) -> SsdResult:
    """The scan of a state space model with one decay per head, as in Mamba-2.

    Args:
        x: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], float32, float16 or
            bfloat16: values. The last dimension is contiguous.
        dt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], float32, float16 or bfloat16:
            step widths.
        A: [groups * group], float32: logarithms of decays of a step of width 1, at most 0.
        B: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which values
            are written to the state. The last dimension is contiguous.
        C: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which the
            state is read. The last dimension is contiguous.
        D: [groups * group], float32: factors of x, which is added to the result. Optional.
        z: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: gate:
            results are multiplied by silu(z). The last dimension is contiguous. Optional.
        dt_bias: [groups * group], float32: added to dt. Optional.
        initial_state: [sequences, groups * group, p, n] if cu_seqlens; [batch, groups * group, p, n], float32:
            states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        dt_softplus: applies softplus to the steps: log(1 + exp(dt + dt_bias)).
        output_final_state: also returns the states after the last token.
        out, final_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: (state
            after the token . C + D * x) * silu(z).
        final_state: [sequences, groups * group, p, n] if cu_seqlens; [batch, groups * group, p, n], float32: states
            after the last token. None unless output_final_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        B: expected 1 to 256 features of states; split them.
        x: expected 1 to 512 features; split the heads.
        x: expected a multiple of the groups of heads; give x a head for each group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """

class SsdBackwardResult(NamedTuple):
    dx: Any
    ddt: Any
    dA: Any
    dB: Any
    dC: Any
    dD: Any
    dz: Any
    ddt_bias: Any
    dinitial_state: Any

def ssd_backward(
    dout: Array,
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    *,
    dfinal_state: Array | None = None,
    D: Array | None = None,
    z: Array | None = None,
    dt_bias: Array | None = None,
    initial_state: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    dt_softplus: bool = False,
    output_final_state: bool = False,
    dx: Array | None = None,
    ddt: Array | None = None,
    dA: Array | None = None,
    dB: Array | None = None,
    dC: Array | None = None,
    dD: Array | None = None,
    dz: Array | None = None,
    ddt_bias: Array | None = None,
    dinitial_state: Array | None = None,
    target: str = "automatic",
) -> SsdBackwardResult:
    """Gradients of ssd.

    Args:
        dout: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x:
            gradient of out.
        dfinal_state: [sequences, groups * group, p, n] if cu_seqlens; [batch, groups * group, p, n], float32:
            gradient of final_state. Optional.
        x: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], float32, float16 or
            bfloat16: values. The last dimension is contiguous.
        dt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], float32, float16 or bfloat16:
            step widths.
        A: [groups * group], float32: logarithms of decays of a step of width 1, at most 0.
        B: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which values
            are written to the state. The last dimension is contiguous.
        C: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which the
            state is read. The last dimension is contiguous.
        D: [groups * group], float32: factors of x, which is added to the result. Optional.
        z: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: gate:
            results are multiplied by silu(z). The last dimension is contiguous. Optional.
        dt_bias: [groups * group], float32: added to dt. Optional.
        initial_state: [sequences, groups * group, p, n] if cu_seqlens; [batch, groups * group, p, n], float32:
            states before the first token; zeros if omitted. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        dt_softplus: applies softplus to the steps: log(1 + exp(dt + dt_bias)).
        output_final_state: also returns the states after the last token.
        dx, ddt, dA, dB, dC, dD, dz, ddt_bias, dinitial_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: gradient
            of x. The last dimension is contiguous.
        ddt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], dtype that of dt: gradient of
            dt.
        dA: [groups * group], float32: gradient of A.
        dB: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of B: gradient of B. The last
            dimension is contiguous.
        dC: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of C: gradient of C. The last
            dimension is contiguous.
        dD: [groups * group], float32: gradient of D. None unless D.
        dz: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of z: gradient
            of z. The last dimension is contiguous. None unless z.
        ddt_bias: [groups * group], float32: gradient of dt_bias. None unless dt_bias.
        dinitial_state: [sequences, groups * group, p, n] if cu_seqlens; [batch, groups * group, p, n], dtype that
            of initial_state: gradient of initial_state. None unless initial_state.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        B: expected 1 to 256 features of states; split them.
        x: expected 1 to 512 features; split the heads.
        x: expected a multiple of the groups of heads; give x a head for each group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """

class SsdChunkStateResult(NamedTuple):
    states: Any
    decays: Any

def ssd_chunk_state(
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    *,
    dt_bias: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    dt_softplus: bool = False,
    states: Array | None = None,
    decays: Array | None = None,
    target: str = "automatic",
) -> SsdChunkStateResult:
    """The state that each chunk of tokens leaves, as in Mamba-2.

    Args:
        x: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], float32, float16 or
            bfloat16: values. The last dimension is contiguous.
        dt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], float32, float16 or bfloat16:
            step widths.
        A: [groups * group], float32: logarithms of decays of a step of width 1, at most 0.
        B: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which values
            are written to the state. The last dimension is contiguous.
        dt_bias: [groups * group], float32: added to dt. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        dt_softplus: applies softplus to the steps: log(1 + exp(dt + dt_bias)).
        states, decays: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        states: [tokens / 64 + sequences, groups * group, p, n] if cu_seqlens; [batch, ceildiv(tokens, 64), groups *
            group, p, n], float32: sum over a chunk of decay to its end * dt * x B^T.
        decays: [tokens / 64 + sequences, groups * group] if cu_seqlens; [batch, ceildiv(tokens, 64), groups *
            group], float32: by which a state before the chunk fades.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        B: expected 1 to 256 features of states; split them.
        x: expected 1 to 512 features; split the heads.
        x: expected a multiple of the groups of heads; give x a head for each group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """

class SsdChunkStateBackwardResult(NamedTuple):
    dx: Any
    ddt: Any
    dA: Any
    dB: Any
    ddt_bias: Any

def ssd_chunk_state_backward(
    dstates: Array,
    ddecays: Array,
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    *,
    dt_bias: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    dt_softplus: bool = False,
    dx: Array | None = None,
    ddt: Array | None = None,
    dA: Array | None = None,
    dB: Array | None = None,
    ddt_bias: Array | None = None,
    target: str = "automatic",
) -> SsdChunkStateBackwardResult:
    """Gradients of ssd_chunk_state.

    Args:
        dstates: [tokens / 64 + sequences, groups * group, p, n] if cu_seqlens; [batch, ceildiv(tokens, 64), groups
            * group, p, n], float32: gradient of states.
        ddecays: [tokens / 64 + sequences, groups * group] if cu_seqlens; [batch, ceildiv(tokens, 64), groups *
            group], float32: gradient of decays.
        x: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], float32, float16 or
            bfloat16: values. The last dimension is contiguous.
        dt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], float32, float16 or bfloat16:
            step widths.
        A: [groups * group], float32: logarithms of decays of a step of width 1, at most 0.
        B: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which values
            are written to the state. The last dimension is contiguous.
        dt_bias: [groups * group], float32: added to dt. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        dt_softplus: applies softplus to the steps: log(1 + exp(dt + dt_bias)).
        dx, ddt, dA, dB, ddt_bias: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: gradient
            of x. The last dimension is contiguous.
        ddt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], dtype that of dt: gradient of
            dt.
        dA: [groups * group], float32: gradient of A.
        dB: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of B: gradient of B. The last
            dimension is contiguous.
        ddt_bias: [groups * group], float32: gradient of dt_bias. None unless dt_bias.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        B: expected 1 to 256 features of states; split them.
        x: expected 1 to 512 features; split the heads.
        x: expected a multiple of the groups of heads; give x a head for each group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """

class SsdStatePassingResult(NamedTuple):
    starts: Any
    final_state: Any

def ssd_state_passing(
    states: Array,
    decays: Array,
    *,
    initial_state: Array | None = None,
    cu_chunks: Array | None = None,
    starts: Array | None = None,
    final_state: Array | None = None,
    target: str = "automatic",
) -> SsdStatePassingResult:
    """The states before each chunk, from those that chunks leave.

    Args:
        states: [chunks, heads, p, n] if cu_chunks; [batch, chunks, heads, p, n], float32: states that chunks leave.
            The last dimension is contiguous.
        decays: [chunks, heads] if cu_chunks; [batch, chunks, heads], float32: factors by which states fade.
        initial_state: [sequences, heads, p, n] if cu_chunks; [batch, heads, p, n], float32: states before the first
            token; zeros if omitted. The last dimension is contiguous. Optional.
        cu_chunks: [sequences + 1], int32: boundaries of packed sequences: sequence i has the chunks from entry i up
            to entry i + 1. Optional.
        starts, final_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        starts: [chunks, heads, p, n] if cu_chunks; [batch, chunks, heads, p, n], float32: states before each chunk.
            The last dimension is contiguous.
        final_state: [sequences, heads, p, n] if cu_chunks; [batch, heads, p, n], float32: states after the last
            chunk. The last dimension is contiguous.

    Rules:
        states: expected 1 to 256 features of states; split them.
        states: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """

class SsdStatePassingBackwardResult(NamedTuple):
    dstates: Any
    ddecays: Any
    dinitial_state: Any

def ssd_state_passing_backward(
    dstarts: Array,
    dfinal_state: Array,
    states: Array,
    decays: Array,
    *,
    initial_state: Array | None = None,
    cu_chunks: Array | None = None,
    dstates: Array | None = None,
    ddecays: Array | None = None,
    dinitial_state: Array | None = None,
    target: str = "automatic",
) -> SsdStatePassingBackwardResult:
    """Gradients of ssd_state_passing.

    Args:
        dstarts: [chunks, heads, p, n] if cu_chunks; [batch, chunks, heads, p, n], float32: gradient of starts. The
            last dimension is contiguous.
        dfinal_state: [sequences, heads, p, n] if cu_chunks; [batch, heads, p, n], float32: gradient of final_state.
            The last dimension is contiguous.
        states: [chunks, heads, p, n] if cu_chunks; [batch, chunks, heads, p, n], float32: states that chunks leave.
            The last dimension is contiguous.
        decays: [chunks, heads] if cu_chunks; [batch, chunks, heads], float32: factors by which states fade.
        initial_state: [sequences, heads, p, n] if cu_chunks; [batch, heads, p, n], float32: states before the first
            token; zeros if omitted. The last dimension is contiguous. Optional.
        cu_chunks: [sequences + 1], int32: boundaries of packed sequences: sequence i has the chunks from entry i up
            to entry i + 1. Optional.
        dstates, ddecays, dinitial_state: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dstates: [chunks, heads, p, n] if cu_chunks; [batch, chunks, heads, p, n], dtype that of states: gradient of
            states. The last dimension is contiguous.
        ddecays: [chunks, heads] if cu_chunks; [batch, chunks, heads], dtype that of decays: gradient of decays.
        dinitial_state: [sequences, heads, p, n] if cu_chunks; [batch, heads, p, n], dtype that of initial_state:
            gradient of initial_state. The last dimension is contiguous. None unless initial_state.

    Rules:
        states: expected 1 to 256 features of states; split them.
        states: expected 1 to 512 features; split the heads.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """

def ssd_chunk_scan(
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    starts: Array,
    *,
    D: Array | None = None,
    z: Array | None = None,
    dt_bias: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    dt_softplus: bool = False,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """The results of ssd from the states before each chunk of tokens.

    Args:
        x: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], float32, float16 or
            bfloat16: values. The last dimension is contiguous.
        dt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], float32, float16 or bfloat16:
            step widths.
        A: [groups * group], float32: logarithms of decays of a step of width 1, at most 0.
        B: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which values
            are written to the state. The last dimension is contiguous.
        C: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which the
            state is read. The last dimension is contiguous.
        starts: [tokens / 64 + sequences, groups * group, p, n] if cu_seqlens; [batch, ceildiv(tokens, 64), groups *
            group, p, n], float32: states before each chunk. The last dimension is contiguous.
        D: [groups * group], float32: factors of x, which is added to the result. Optional.
        z: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: gate:
            results are multiplied by silu(z). The last dimension is contiguous. Optional.
        dt_bias: [groups * group], float32: added to dt. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        dt_softplus: applies softplus to the steps: log(1 + exp(dt + dt_bias)).
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: (state
            after the token . C + D * x) * silu(z).

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        B: expected 1 to 256 features of states; split them.
        x: expected 1 to 512 features; split the heads.
        x: expected a multiple of the groups of heads; give x a head for each group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """

class SsdChunkScanBackwardResult(NamedTuple):
    dx: Any
    ddt: Any
    dA: Any
    dB: Any
    dC: Any
    dstarts: Any
    dD: Any
    dz: Any
    ddt_bias: Any

def ssd_chunk_scan_backward(
    dout: Array,
    x: Array,
    dt: Array,
    A: Array,
    B: Array,
    C: Array,
    starts: Array,
    *,
    D: Array | None = None,
    z: Array | None = None,
    dt_bias: Array | None = None,
    cu_seqlens: Array | None = None,
    max_seqlen: int = 0,
    dt_softplus: bool = False,
    dx: Array | None = None,
    ddt: Array | None = None,
    dA: Array | None = None,
    dB: Array | None = None,
    dC: Array | None = None,
    dstarts: Array | None = None,
    dD: Array | None = None,
    dz: Array | None = None,
    ddt_bias: Array | None = None,
    target: str = "automatic",
) -> SsdChunkScanBackwardResult:
    """Gradients of ssd_chunk_scan.

    Args:
        dout: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x:
            gradient of out.
        x: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], float32, float16 or
            bfloat16: values. The last dimension is contiguous.
        dt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], float32, float16 or bfloat16:
            step widths.
        A: [groups * group], float32: logarithms of decays of a step of width 1, at most 0.
        B: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which values
            are written to the state. The last dimension is contiguous.
        C: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of x: vectors by which the
            state is read. The last dimension is contiguous.
        starts: [tokens / 64 + sequences, groups * group, p, n] if cu_seqlens; [batch, ceildiv(tokens, 64), groups *
            group, p, n], float32: states before each chunk. The last dimension is contiguous.
        D: [groups * group], float32: factors of x, which is added to the result. Optional.
        z: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: gate:
            results are multiplied by silu(z). The last dimension is contiguous. Optional.
        dt_bias: [groups * group], float32: added to dt. Optional.
        cu_seqlens: [sequences + 1], int32: boundaries of packed sequences: sequence i has the tokens from entry i
            up to entry i + 1. Optional.
        max_seqlen: upper bound on the length of a packed sequence, which the caller promises; a number of tokens,
            or 0 if unknown.
        dt_softplus: applies softplus to the steps: log(1 + exp(dt + dt_bias)).
        dx, ddt, dA, dB, dC, dstarts, dD, dz, ddt_bias: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of x: gradient
            of x. The last dimension is contiguous.
        ddt: [tokens, groups * group] if cu_seqlens; [batch, tokens, groups * group], dtype that of dt: gradient of
            dt.
        dA: [groups * group], float32: gradient of A.
        dB: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of B: gradient of B. The last
            dimension is contiguous.
        dC: [tokens, groups, n] if cu_seqlens; [batch, tokens, groups, n], dtype that of C: gradient of C. The last
            dimension is contiguous.
        dstarts: [tokens / 64 + sequences, groups * group, p, n] if cu_seqlens; [batch, ceildiv(tokens, 64), groups
            * group, p, n], dtype that of starts: gradient of starts. The last dimension is contiguous.
        dD: [groups * group], float32: gradient of D. None unless D.
        dz: [tokens, groups * group, p] if cu_seqlens; [batch, tokens, groups * group, p], dtype that of z: gradient
            of z. The last dimension is contiguous. None unless z.
        ddt_bias: [groups * group], float32: gradient of dt_bias. None unless dt_bias.

    Rules:
        max_seqlen: expected cu_seqlens as well; leave it out: without it all sequences are equally long.
        B: expected 1 to 256 features of states; split them.
        x: expected 1 to 512 features; split the heads.
        x: expected a multiple of the groups of heads; give x a head for each group.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao and Gu 2024, Transformers are SSMs.
    """
