# Printed from the tables of the operators by scripts/print-stubs.
from typing import Any, Callable, Literal, NamedTuple

from ._arrays import Array

functions: dict[str, Callable[..., Any]]
__all__ = ["gemm", "rms_norm", "rms_norm_backward", "RmsNormBackwardResult"]

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
        activation: applied to the sums; one of none, relu, gelu, silu.
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
