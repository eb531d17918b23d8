# Printed from the tables of the operators by scripts/print-stubs.
from typing import Any, Callable, Literal, NamedTuple

from ._arrays import Array

functions: dict[str, Callable[..., Any]]
__all__ = ["attention", "attention_backward", "block_sparse_attention_backward", "block_sparse_attention", "gemm", "nsa_selected_attention_backward", "nsa_selected_attention", "cast_fp8", "uncast_fp8", "cross_entropy", "cross_entropy_and_gradient", "cross_entropy_backward", "cumsum", "silu_and_mul", "gelu_and_mul", "relu_and_mul", "silu_and_mul_backward", "gelu_and_mul_backward", "relu_and_mul_backward", "hadamard", "hadamard_backward", "layer_norm", "layer_norm_backward", "add_layer_norm", "add_layer_norm_backward", "rms_norm", "rms_norm_backward", "add_rms_norm", "add_rms_norm_backward", "rope", "softmax", "log_softmax", "softmax_backward", "log_softmax_backward", "topk", "block_scores", "topk_blocks", "AttentionResult", "AttentionBackwardResult", "BlockSparseAttentionBackwardResult", "BlockSparseAttentionResult", "NsaSelectedAttentionBackwardResult", "NsaSelectedAttentionResult", "CastFp8Result", "CrossEntropyResult", "CrossEntropyAndGradientResult", "LayerNormBackwardResult", "AddLayerNormResult", "AddLayerNormBackwardResult", "RmsNormBackwardResult", "AddRmsNormResult", "AddRmsNormBackwardResult", "TopkResult"]

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
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> AttentionResult:
    """Softmax(scale q k^T) v over all keys or a window, with grouped heads.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. Elements of the last
            dimension lie side by side.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. Elements of the last dimension lie side by side.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. Elements of the last dimension lie side by side.
        sinks: [kv_heads * group], float32, float16 or bfloat16: a logit of each head that counts in the sum but has
            no value. Optional.
        cu_seqlens_q: [sequences + 1], int32: where packed sequences of queries begin and end: sequence i has the
            tokens from entry i to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: where packed sequences of keys begin and end. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        scale: of the scores; a positive finite number, 1/sqrt(d) unless given.
        causal: no later keys: the last query stands at the last key.
        left: keys before its position that a query sees, -1: all; a number of keys, or -1 for all.
        right: keys behind its position that a query sees, -1: all; causal is 0; a number of keys, or -1 for all.
        softcap: scores become softcap * tanh(score / softcap), 0: not; a positive number, or 0 for none.
        max_seqlen_q: a promise: the most queries of a packed sequence; a number of tokens, or 0 where it is not
            known.
        max_seqlen_k: a promise: the most keys of a packed sequence; a number of tokens, or 0 where it is not known.
        tile_queries: queries of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        splits: parts of the keys of a tile, merged afterwards, 0: planned; a number from 1 to 64, or 0 for the
            plan's choice.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the weighted sums of values; 0
            where no key is seen. Elements of the last dimension lie side by side.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: natural
            logarithm of the sum of exp(score); -inf where no key is seen.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.

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
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. Elements of the
            last dimension lie side by side.
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. Elements of the last
            dimension lie side by side.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. Elements of the last dimension lie side by side.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. Elements of the last dimension lie side by side.
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the result of attention. Elements
            of the last dimension lie side by side.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: and its lse.
        dlse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: gradient of
            lse; not looked at where lse is -inf. Optional.
        sinks: [kv_heads * group], float32, float16 or bfloat16: a logit of each head that counts in the sum but has
            no value. Optional.
        cu_seqlens_q: [sequences + 1], int32: where packed sequences of queries begin and end: sequence i has the
            tokens from entry i to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: where packed sequences of keys begin and end. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        scale: of the scores; a positive finite number, 1/sqrt(d) unless given.
        causal: no later keys: the last query stands at the last key.
        left: keys before its position that a query sees, -1: all; a number of keys, or -1 for all.
        right: keys behind its position that a query sees, -1: all; causal is 0; a number of keys, or -1 for all.
        softcap: scores become softcap * tanh(score / softcap), 0: not; a positive number, or 0 for none.
        max_seqlen_q: a promise: the most queries of a packed sequence; a number of tokens, or 0 where it is not
            known.
        max_seqlen_k: a promise: the most keys of a packed sequence; a number of tokens, or 0 where it is not known.
        tile_queries: queries of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        deterministic: equal bits in every run; without, the parts of dq are added in any order where that is
            faster.
        dq, dk, dv, dsinks: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. Elements of the last dimension
            lie side by side.
        dk: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of k: gradient of k. Elements of the last dimension lie side by side.
        dv: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of v: gradient of v. Elements of the last dimension lie side by side.
        dsinks: [kv_heads * group], float32: gradient of the sinks. None unless sinks.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
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
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. Elements of the
            last dimension lie side by side.
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. Elements of the last
            dimension lie side by side.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. Elements of the last dimension lie side by side.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. Elements of the last dimension lie side by side.
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the result of
            block_sparse_attention. Elements of the last dimension lie side by side.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: and its lse.
        dlse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: gradient of
            lse; not looked at where lse is -inf. Optional.
        indices: [sequences, choosers, q_blocks, entries] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), entries], int32: numbers of key blocks that a block of queries sees; others, such as -1,
            are none, and one that is repeated counts once. Optional.
        counts: [sequences, choosers, q_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries, q_block_size)],
            int32: entries of each row that count, all unless given. Optional.
        mask: [sequences, choosers, q_blocks, k_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), ceildiv(keys, k_block_size)], bool: instead of indices: whether a block of queries sees a
            block of keys. Optional.
        cu_seqlens_q: [sequences + 1], int32: where packed sequences of queries begin and end: sequence i has the
            tokens from entry i to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: where packed sequences of keys begin and end. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: a promise: the most queries of a packed sequence; a number of tokens, or 0 where it is not
            known.
        max_seqlen_k: a promise: the most keys of a packed sequence; a number of tokens, or 0 where it is not known.
        q_block_size: queries of a block; the last may be short; a block size from 1 to 2^20.
        k_block_size: keys of a block; the last may be short; a block size from 1 to 2^20.
        causal: no later keys in the chosen blocks: the last query stands at the last key.
        scale: of the scores; a positive finite number, 1/sqrt(d) unless given.
        softcap: scores become softcap * tanh(score / softcap), 0: not; a positive number, or 0 for none.
        tile_queries: queries of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        deterministic: equal bits in every run; without, the parts of dq are added in any order where that is
            faster.
        dq, dk, dv: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. Elements of the last dimension
            lie side by side.
        dk: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of k: gradient of k. Elements of the last dimension lie side by side.
        dv: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of v: gradient of v. Elements of the last dimension lie side by side.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
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
    check_indices: bool = False,
    out: Array | None = None,
    lse: Array | None = None,
    target: str = "automatic",
) -> BlockSparseAttentionResult:
    """Attention in which every block of queries sees chosen blocks of keys.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. Elements of the last
            dimension lie side by side.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. Elements of the last dimension lie side by side.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. Elements of the last dimension lie side by side.
        indices: [sequences, choosers, q_blocks, entries] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), entries], int32: numbers of key blocks that a block of queries sees; others, such as -1,
            are none, and one that is repeated counts once. Optional.
        counts: [sequences, choosers, q_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries, q_block_size)],
            int32: entries of each row that count, all unless given. Optional.
        mask: [sequences, choosers, q_blocks, k_blocks] if cu_seqlens_q; [batch, choosers, ceildiv(queries,
            q_block_size), ceildiv(keys, k_block_size)], bool: instead of indices: whether a block of queries sees a
            block of keys. Optional.
        cu_seqlens_q: [sequences + 1], int32: where packed sequences of queries begin and end: sequence i has the
            tokens from entry i to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: where packed sequences of keys begin and end. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: a promise: the most queries of a packed sequence; a number of tokens, or 0 where it is not
            known.
        max_seqlen_k: a promise: the most keys of a packed sequence; a number of tokens, or 0 where it is not known.
        q_block_size: queries of a block; the last may be short; a block size from 1 to 2^20.
        k_block_size: keys of a block; the last may be short; a block size from 1 to 2^20.
        causal: no later keys in the chosen blocks: the last query stands at the last key.
        scale: of the scores; a positive finite number, 1/sqrt(d) unless given.
        softcap: scores become softcap * tanh(score / softcap), 0: not; a positive number, or 0 for none.
        tile_queries: queries of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        check_indices: refuse entries that count and are neither -1 nor a block; a GPU is waited for.
        out, lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the weighted sums of values; 0
            where no key is seen. Elements of the last dimension lie side by side.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: natural
            logarithm of the sum of exp(score); -inf where no key is seen.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
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

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the form of MagiAttention's block_sparse_attn (SandAI 2026), with masks, counts and causality besides.
    """

def gemm(
    a: Array,
    b: Array,
    *,
    bias: Array | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
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
    """Matrix product with bias and activation.

    Args:
        a: [k, m] or [batch, k, m] if transpose_a; [m, k] or [batch, m, k], float32, float16, bfloat16,
            float8_e4m3fn or float8_e5m2: left matrix.
        b: [n, k] or [batch, n, k] if transpose_b; [k, n] or [batch, k, n], dtype that of a: right matrix.
        bias: [n], float32, float16 or bfloat16: added to every row. Optional.
        transpose_a: a is [k, m].
        transpose_b: b is [n, k].
        activation: applied to the sums; gelu is that by tanh; one of none, relu, gelu, silu.
        scale: factor of the product; a finite factor.
        out_dtype: dtype of the result; f32, f16 or bf16, chosen by the operator unless given.
        tile_m: rows of a tile, 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_n: columns of a tile, 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        tile_k: inner extent of a tile, 0: planned; extents from 1 to 4096, or 0 for the plan's choice.
        splits: parts of k added in order, 0: planned; parts from 1 to 32, or 0 for the plan's choice.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n] or [batch, m, n], out_dtype, or that of a, bfloat16 where that has 8 bits: activation(scale * a
            * b + bias).

    Rules:
        a: expected a matrix with stride 1 along rows or columns; pass a contiguous copy.
        b: expected a matrix with stride 1 along rows or columns; pass a contiguous copy.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: GEMM of the BLAS, level 3 (Dongarra et al. 1990).
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
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of out. Elements of the
            last dimension lie side by side.
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. Elements of the last
            dimension lie side by side.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. Elements of the last dimension lie side by side.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. Elements of the last dimension lie side by side.
        block_indices: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], int32: numbers of the key blocks that a token sees:
            block i has the keys from i * block_size on; others, such as -1, are none.
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the result of
            nsa_selected_attention. Elements of the last dimension lie side by side.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: and its lse.
        dlse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: gradient of
            lse; not looked at where lse is -inf. Optional.
        dwindow_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: gradient of window_out; without
            it the window has no part in the gradients. Elements of the last dimension lie side by side. Optional.
        window_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the window's result. Elements of
            the last dimension lie side by side. Optional.
        window_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: and
            its lse. Optional.
        dwindow_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32:
            gradient of window_lse. Optional.
        block_counts: [queries, selecting] if cu_seqlens_q; [batch, queries, selecting] if layout=bshd; [batch,
            selecting, queries], int32: entries of each row that count, all unless given. Optional.
        sel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32, float16 or bfloat16: factors of 1 of the
            scores of what each entry selects: no result depends on them, but a selector learns by their gradient.
            Optional.
        cu_seqlens_q: [sequences + 1], int32: where packed sequences of queries begin and end: sequence i has the
            tokens from entry i to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: where packed sequences of keys begin and end. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: a promise: the most queries of a packed sequence; a number of tokens, or 0 where it is not
            known.
        max_seqlen_k: a promise: the most keys of a packed sequence; a number of tokens, or 0 where it is not known.
        block_size: keys of a block; a block size from 1 to 2^20.
        causal: no later keys: the last query stands at the last key.
        diagonal: the block in which a token stands is seen, selected or not.
        repeats: a block that is named several times counts as often as it is named.
        window: keys, ending at the token, of a second attention beside it; 0: none; a number of keys, at most 2^29,
            or 0 for no window.
        scale: of the scores; a positive finite number, 1/sqrt(d) unless given.
        tile_queries: queries of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        sel_scale_gradient: also the gradient of sel_scale, which need not be given.
        dq, dk, dv, dsel_scale: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dq: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], dtype that of q: gradient of q. Elements of the last dimension
            lie side by side.
        dk: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of k: gradient of k. Elements of the last dimension lie side by side.
        dv: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of v: gradient of v. Elements of the last dimension lie side by side.
        dsel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32: gradient of sel_scale; 0 where an entry
            selects nothing, or what an earlier one has selected. None unless sel_scale_gradient.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        block_indices: expected {heads} heads, as q, or {kv_heads}, as k; give a row for each head.
        block_indices: expected at most 4096 entries of a row; select larger blocks, or use block_sparse_attention.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.
        dwindow_out: expected a window in the options; give the window and the results of the forward.
        dwindow_out: expected window_out and window_lse with it; give the window and the results of the forward.
        dwindow_lse: expected dwindow_out with it; give dwindow_out, of zeros if need be.
        block_indices: expected fewer than 2^31 entries of a head, of all batches together; split the batch.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Dao 2023, FlashAttention-2, over lists that are inverted on the device; the gradient of factors as in native-sparse-attention-pytorch (Wang 2025).
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
    """Attention in which every token sees selected blocks of keys, and a window beside it.

    Args:
        q: [queries, kv_heads * group, d] if cu_seqlens_q; [batch, queries, kv_heads * group, d] if layout=bshd;
            [batch, kv_heads * group, queries, d], float32, float16 or bfloat16: queries. Elements of the last
            dimension lie side by side.
        k: [keys, kv_heads, d] if cu_seqlens_q; [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys,
            d], dtype that of q: keys. Elements of the last dimension lie side by side.
        v: [keys, kv_heads, d_v] if cu_seqlens_q; [batch, keys, kv_heads, d_v] if layout=bshd; [batch, kv_heads,
            keys, d_v], dtype that of q: values. Elements of the last dimension lie side by side.
        block_indices: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], int32: numbers of the key blocks that a token sees:
            block i has the keys from i * block_size on; others, such as -1, are none.
        block_counts: [queries, selecting] if cu_seqlens_q; [batch, queries, selecting] if layout=bshd; [batch,
            selecting, queries], int32: entries of each row that count, all unless given. Optional.
        sel_scale: [queries, selecting, entries] if cu_seqlens_q; [batch, queries, selecting, entries] if
            layout=bshd; [batch, selecting, queries, entries], float32, float16 or bfloat16: factors of 1 of the
            scores of what each entry selects: no result depends on them, but a selector learns by their gradient.
            Optional.
        cu_seqlens_q: [sequences + 1], int32: where packed sequences of queries begin and end: sequence i has the
            tokens from entry i to entry i + 1. Optional.
        cu_seqlens_k: [sequences + 1], int32: where packed sequences of keys begin and end. Optional.
        layout: order of batch, sequence, heads, features; packed sequences have none; one of bshd, bhsd.
        max_seqlen_q: a promise: the most queries of a packed sequence; a number of tokens, or 0 where it is not
            known.
        max_seqlen_k: a promise: the most keys of a packed sequence; a number of tokens, or 0 where it is not known.
        block_size: keys of a block; a block size from 1 to 2^20.
        causal: no later keys: the last query stands at the last key.
        diagonal: the block in which a token stands is seen, selected or not.
        repeats: a block that is named several times counts as often as it is named.
        window: keys, ending at the token, of a second attention beside it; 0: none; a number of keys, at most 2^29,
            or 0 for no window.
        scale: of the scores; a positive finite number, 1/sqrt(d) unless given.
        tile_queries: queries of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        tile_keys: keys of a tile, 0: planned; extents from 1 to 1024, or 0 for the plan's choice.
        check_indices: refuse entries that count and are neither -1 nor a block; a GPU is waited for.
        out, lse, window_out, window_lse: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the weighted sums of values; 0
            where no key is seen. Elements of the last dimension lie side by side.
        lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: natural
            logarithm of the sum of exp(score); -inf where no key is seen.
        window_out: [queries, kv_heads * group, d_v] if cu_seqlens_q; [batch, queries, kv_heads * group, d_v] if
            layout=bshd; [batch, kv_heads * group, queries, d_v], dtype that of q: the same of the window. Elements
            of the last dimension lie side by side. None unless window > 0.
        window_lse: [kv_heads * group, queries] if cu_seqlens_q; [batch, kv_heads * group, queries], float32: the
            same of the window. None unless window > 0.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.
        v: expected 1 to 512 features; split the heads.
        block_indices: expected {heads} heads, as q, or {kv_heads}, as k; give a row for each head.
        block_indices: expected at most 4096 entries of a row; select larger blocks, or use block_sparse_attention.
        cu_seqlens_q: expected cu_seqlens_q and cu_seqlens_k together; give both.
        max_seqlen_q: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.
        max_seqlen_k: expected cu_seqlens_q and cu_seqlens_k beside it; leave it out: without them all sequences are
            equally long.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Yuan et al. 2025, Native Sparse Attention: the selected branch, and its sliding window.
    """

class CastFp8Result(NamedTuple):
    out: Any
    scale: Any

def cast_fp8(
    x: Array,
    *,
    scaling: Literal["token", "block", "tensor"] = "token",
    power_of_two: bool = False,
    out: Array | None = None,
    scale: Array | None = None,
    target: str = "automatic",
) -> CastFp8Result:
    """Casts to e4m3 with scales of 128 features, of 128 x 128 blocks or of a tensor.

    Args:
        x: [m, n] or [batch, m, n], float32, float16 or bfloat16: tokens or weights by features.
        scaling: what has a scale of its own; one of token, block, tensor.
        power_of_two: scales are rounded up to powers of two.
        out, scale: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n] or [batch, m, n], float8_e4m3fn: x / scale.
        scale: [1] if scaling=tensor; [ceildiv(m, 128), ceildiv(n, 128)] or [batch, ceildiv(m, 128), ceildiv(n,
            128)] if scaling=block; [m, ceildiv(n, 128)] or [batch, m, ceildiv(n, 128)], float32: the largest
            magnitude / 448, at least 2^-126.

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
    scaling: Literal["token", "block", "tensor"] = "token",
    out_dtype: Any = "f32",
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """E4m3 times the scales of cast_fp8.

    Args:
        x: [m, n] or [batch, m, n], float8_e4m3fn: what cast_fp8 gives.
        scale: [1] if scaling=tensor; [ceildiv(m, 128), ceildiv(n, 128)] or [batch, ceildiv(m, 128), ceildiv(n,
            128)] if scaling=block; [m, ceildiv(n, 128)] or [batch, m, ceildiv(n, 128)], float32: its scales.
        scaling: what has a scale of its own; one of token, block, tensor.
        out_dtype: of the result; one of f32, f16, bf16.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [m, n] or [batch, m, n], out_dtype, or that of x, float32 where that has 8 bits: x * scale.

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
    """Losses of rows of logits.

    Args:
        logits: [..., classes], float32, float16 or bfloat16: rows, in their own dtype throughout.
        labels: [...], int32: the class of every row, or ignore_index.
        label_smoothing: the share of all classes alike; a share from 0 to 1.
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
    """Losses of rows of logits, and their gradient in the same pass.

    Args:
        logits: [..., classes], float32, float16 or bfloat16: rows, in their own dtype throughout.
        labels: [...], int32: the class of every row, or ignore_index.
        label_smoothing: the share of all classes alike; a share from 0 to 1.
        ignore_index: rows with this label have no loss and no gradient.
        gradient_scale: of dlogits; a finite number.
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
        label_smoothing: the share of all classes alike; a share from 0 to 1.
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
        cu_seqlens: [segments + 1], int32: where the segments of rows begin, and n. Optional.
        reverse: sums from the right.
        exclusive: without the element itself.
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
        x: [..., 2 * d], float32, float16 or bfloat16: gates, and what they multiply behind them.
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
        x: [..., 2 * d], float32, float16 or bfloat16: gates, and what they multiply behind them.
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
        x: [..., 2 * d], float32, float16 or bfloat16: gates, and what they multiply behind them.
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
        x: [..., 2 * d], float32, float16 or bfloat16: gates, and what they multiply behind them.
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
        x: [..., 2 * d], float32, float16 or bfloat16: gates, and what they multiply behind them.
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
        x: [..., 2 * d], float32, float16 or bfloat16: gates, and what they multiply behind them.
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
        scale: of the result; 1/sqrt(n) makes the transform orthogonal; a finite number.
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
        scale: of the result; 1/sqrt(n) makes the transform orthogonal; a finite number.
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
    """Rows less their mean, divided by their deviation.

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

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

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

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

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
    """Sums of two rows, and these less their mean, divided by their deviation.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: what is added to them.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        bias: [d], float32, float16 or bfloat16: added to the features. Optional.
        eps: added to the variance; a positive finite number.
        out, sum: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias.
        sum: [..., d], dtype that of x: x + residual, which out is the norm of.

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

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
        residual: [..., d], dtype that of x: what is added to them.
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

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization.
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

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

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

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

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
    """Sums of two rows, and these divided by their root mean square.

    Args:
        x: [..., d], float32, float16 or bfloat16: rows.
        residual: [..., d], dtype that of x: what is added to them.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        eps: added to the mean of the squares; a positive finite number.
        out, sum: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [..., d], dtype that of x: x / sqrt(mean(x^2) + eps) * weight.
        sum: [..., d], dtype that of x: x + residual, which out is the norm of.

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

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
        residual: [..., d], dtype that of x: what is added to them.
        weight: [d], float32, float16 or bfloat16: factors of the features. Optional.
        eps: added to the mean of the squares; a positive finite number.
        dx, dresidual, dweight: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        dx: [..., d], dtype that of x: gradient of x.
        dresidual: [..., d], dtype that of residual: gradient of residual.
        dweight: [d], float32: gradient of weight. None unless weight.

    Rules:
        x: expected at most 16384 features; normalise parts of a row.

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
    """Rotary position embedding: pairs of features turned by angles of the positions.

    Args:
        x: [tokens, heads, d] or [batch, tokens, heads, d], float32, float16 or bfloat16: queries or keys.
        cosine: [length, half], float32: of the angles of every position.
        sine: [length, half], float32: of the same angles.
        positions: [tokens] or [batch, tokens], int32: of the tokens; 0, 1, 2, ... unless given. Optional.
        pairing: features that are turned together: j and j + half, or 2j and 2j + 1; one of halves, neighbours.
        inverse: turns back, which is also the gradient.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [tokens, heads, d] or [batch, tokens, heads, d], dtype that of x: the first 2*half features turned, the
            others as they are.

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

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in pieces.
    """

def log_softmax(
    x: Array,
    *,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Rows less the logarithm of the sum of their exponentials.

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

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in pieces.
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

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in pieces.
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

    Source: Milakov and Gimelshein 2018, Online normalizer calculation for softmax, for rows that are read in pieces.
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
        x: [..., n], float32, float16 or bfloat16: rows; NaN is the largest, of equal ones the first comes first.
        count: elements of a row; a number from 0 to 256.
        gates: what becomes of the chosen: softmax over them, or their sigmoids; one of none, softmax, sigmoid.
        normalized: sigmoids are divided by their sum.
        values, indices: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        values: [..., count], dtype that of x: the chosen, or the gates.
        indices: [..., count], int32: where they stand in their rows.

    Rules:
        count: expected at most {n}, the elements of a row; choose no more than there are.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the gating of Shazeer et al. 2017, Outrageously Large Neural Networks.
    """

def block_scores(
    q: Array,
    k: Array,
    *,
    q_block_size: int = 64,
    k_block_size: int = 64,
    layout: Literal["bshd", "bhsd"] = "bshd",
    causal: bool = False,
    per_kv_head: bool = True,
    scale: float | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Products of the means of query blocks and key blocks.

    Args:
        q: [batch, queries, kv_heads * group, d] if layout=bshd; [batch, kv_heads * group, queries, d], float32,
            float16 or bfloat16: queries. Elements of the last dimension lie side by side.
        k: [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys, d], dtype that of q: keys. Elements of
            the last dimension lie side by side.
        q_block_size: queries of a block; a block size from 1 to 2^20.
        k_block_size: keys of a block; a block size from 1 to 2^20.
        layout: order of batch, sequence, heads, features; one of bshd, bhsd.
        causal: blocks that no query of the row sees score -inf.
        per_kv_head: one row for the heads of a group.
        scale: of the scores; a positive finite number, 1/sqrt(d) unless given.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, heads, q_blocks, k_blocks], float32: scale * mean of a query block * mean of a key block.

    Rules:
        k: expected no heads, as q; give q a head for each of k, or more.
        q: expected 1 to 512 features; split the heads.

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
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Numbers of the largest block scores of every row, ascending.

    Args:
        scores: [batch, heads, q_blocks, k_blocks], float32: -inf and NaN are never chosen.
        count: blocks of a row.
        keep_first: block 0 is chosen before all others.
        keep_diagonal: and so is the block at the last query of the row.
        q_block_size: queries of a block, for the diagonal; a block size from 1 to 2^20.
        k_block_size: keys of a block, for the diagonal; a block size from 1 to 2^20.
        key_offset: keys - queries, for the diagonal; a number below 2^29 in magnitude.
        out: written instead of new arrays.
        target: "automatic" (the fastest for the device of the arrays), "cpu", "cuda", or "interpreter" (slow, finds
            errors of kernels). On a GPU the work is queued on the current stream of the library of the first array.

    Returns:
        out: [batch, heads, q_blocks, count], int32: block numbers, -1 where fewer exist.

    Rules:
        count: expected a number of blocks from 0 to {most}: there are {k_blocks}; choose no more than there are.

    Raises:
        TypeError: an argument is no array, or an option has another type.
        ValueError: a shape, dtype, stride or value is wrong.
        RuntimeError: the device or a compiler failed.

    Source: the selection of Yuan et al. 2025, Native Sparse Attention, with its first and local blocks.
    """
