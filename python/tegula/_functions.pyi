# Printed from the tables of the operators by scripts/print-stubs.
from typing import Any, Callable, Literal, NamedTuple

from ._arrays import Array

functions: dict[str, Callable[..., Any]]
__all__ = ["gemm", "rms_norm", "rms_norm_backward", "block_scores", "topk_blocks", "RmsNormBackwardResult"]

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
        dout: [..., d], dtype that of x: gradient of the result.
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

def block_scores(
    q: Array,
    k: Array,
    *,
    q_block: int = 64,
    k_block: int = 64,
    layout: Literal["bshd", "bhsd"] = "bshd",
    causal: bool = False,
    per_kv_head: bool = True,
    scale: float | None = None,
    out: Array | None = None,
    target: str = "automatic",
) -> Any:
    """Products of the means of query blocks and key blocks.

    Args:
        q: [batch, queries, group * kv_heads, d] if layout=bshd; [batch, group * kv_heads, queries, d], float32,
            float16 or bfloat16: queries. Elements of the last dimension lie side by side.
        k: [batch, keys, kv_heads, d] if layout=bshd; [batch, kv_heads, keys, d], dtype that of q: keys. Elements of
            the last dimension lie side by side.
        q_block: queries of a block; a block size from 1 to 2^20.
        k_block: keys of a block; a block size from 1 to 2^20.
        layout: order of batch, sequence, heads, features; one of bshd, bhsd.
        causal: blocks that no query of the row sees score -inf.
        per_kv_head: one row for the heads of a group.
        scale: of the scores, 1/sqrt(d) unless given; a positive finite number, chosen by the operator unless given.
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
    q_block: int = 64,
    k_block: int = 64,
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
        q_block: queries of a block, for the diagonal; a block size from 1 to 2^20.
        k_block: keys of a block, for the diagonal; a block size from 1 to 2^20.
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
