"""Products of tensors of PyTorch: their gradients, and operands of 8 bits, against float64."""

import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs_operators = pytest.mark.skipif(
    not hasattr(torch.library, "custom_op"), reason="PyTorch before 2.4 has no such operators"
)
import tegula.torch  # noqa: E402
from tegula._printing import torch_options  # noqa: E402
from tegula._tables import tables  # noqa: E402
from torch_references import check_gradients  # noqa: E402


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
@pytest.mark.parametrize("transpose_a, transpose_b", [(False, True), (True, False)])
def test_gradients_of_products(transpose_a, transpose_b, activation):
    generator = torch.Generator().manual_seed(5)
    shapes = [(3, 7, 10) if transpose_a else (3, 10, 7), (9, 7) if transpose_b else (7, 9), (9,)]
    functions = {
        "none": lambda x: x,
        "relu": torch.relu,
        "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        "silu": torch.nn.functional.silu,
    }

    def function(a, b, bias):
        options = {"transpose_a": transpose_a, "transpose_b": transpose_b, "activation": activation, "scale": 1.75}
        return (tegula.torch.gemm(a, b, bias=bias, **options),)

    def plain(a, b, bias):
        a = a.transpose(-1, -2) if transpose_a else a
        b = b.transpose(-1, -2) if transpose_b else b
        return (functions[activation](1.75 * (a @ b) + bias),)

    check_gradients(function, plain, [torch.randn(shape, generator=generator) for shape in shapes])


@needs_operators
def test_sums_of_f16():
    generator = torch.Generator().manual_seed(8)
    a, b = (torch.randn(rows, 40, generator=generator).half().requires_grad_() for rows in (10, 9))
    out = tegula.torch.gemm(a, b, transpose_b=True, activation="relu", sum_dtype=torch.float16)
    wanted = torch.relu(a.double() @ b.double().T)
    torch.testing.assert_close(out.double(), wanted, rtol=2e-2, atol=2e-2)
    da, db = torch.autograd.grad(out.sum(), (a, b))
    slope = (wanted > 0).double()
    torch.testing.assert_close(da.double(), slope @ b.double(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(db.double(), slope.T @ a.double(), rtol=1e-2, atol=1e-2)
    with pytest.raises(ValueError, match="f32, or f16 for matrices of f16"):
        tegula.torch.gemm(a.bfloat16(), b.bfloat16(), transpose_b=True, sum_dtype=torch.float16)


needs_8_bits = pytest.mark.skipif(not hasattr(torch, "float8_e4m3fn"), reason="PyTorch before 2.1 has no such dtypes")
EIGHT_BITS = ["float8_e4m3fn", "float8_e5m2"]


def bytes_of_floats(dtype):
    """a [10, 32] and b [9, 32] of the dtype, and a bias."""
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.randn(rows, 32, generator=generator).to(getattr(torch, dtype)) for rows in (10, 9))
    return a, b, torch.randn(9, generator=generator)


class WithoutExport(torch.Tensor):
    """As in versions of PyTorch that do not export floats of 8 bits."""

    __dlpack_c_exchange_api__ = None

    def __dlpack__(self, *args, **kwargs):
        if str(self.dtype).startswith("torch.float8"):
            raise BufferError("float8 types are not supported by dlpack")
        return super().__dlpack__(*args, **kwargs)


@needs_8_bits
@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_products_of_8_bits(dtype):
    a, b, bias = bytes_of_floats(dtype)
    options = {"transpose_b": True, "scale": 0.25, "bias": bias}
    expected = 0.25 * a.double() @ b.double().T + bias.double()
    for out_dtype, tolerance in ((None, 1e-2), (torch.float16, 2e-3), (torch.float32, 2e-5)):
        for function in (tegula.gemm, tegula.torch.gemm):
            out = function(a, b, out_dtype=out_dtype, **options)
            assert out.dtype == (out_dtype or torch.bfloat16)
            torch.testing.assert_close(out.double(), expected, atol=tolerance, rtol=tolerance)
    hidden = tegula.gemm(a.as_subclass(WithoutExport), b.as_subclass(WithoutExport), **options)
    assert torch.equal(hidden.as_subclass(torch.Tensor), tegula.gemm(a, b, **options))
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(tegula.torch.gemm(a, b, **options), tegula.gemm(a, b, **options))
    with pytest.raises(ValueError, match="'b'.*e[45]m[23]"):
        tegula.torch.gemm(a, b.bfloat16(), transpose_b=True)


@needs_8_bits
def test_gradients_beside_products_of_8_bits():
    a, b, bias = bytes_of_floats("float8_e4m3fn")
    options = {"transpose_b": True, "scale": 0.25, "activation": "silu", "out_dtype": "float32"}
    check_gradients(
        lambda bias: (tegula.torch.gemm(a, b, bias=bias, **options),),
        lambda bias: (torch.nn.functional.silu(0.25 * a.double() @ b.double().T + bias),),
        [bias],
    )
    with pytest.raises(RuntimeError, match="float8_e4m3fn have no gradients"):
        tegula.torch.gemm(a.requires_grad_(), b, **options)
    with torch.no_grad():
        tegula.torch.gemm(a, b, **options)


@needs_8_bits
@needs_operators
@pytest.mark.parametrize("dtype", EIGHT_BITS)
def test_products_of_8_bits_compile(dtype):
    a, b, bias = bytes_of_floats(dtype)
    bias.requires_grad_()
    # The other checks compute with their arguments, which PyTorch does not do in 8 bits.
    given = {"transpose_b": True, "activation": "gelu", "scale": 0.25}
    others = [None] * (len(tables["gemm"].inputs) - 3)
    options = [given.get(option.name, option.default) for option in torch_options(tables["gemm"], tables)]
    product = (a, b, bias, *others, *options)
    torch.library.opcheck(torch.ops.tegula.gemm.default, product, test_utils=["test_faketensor"])

    def step(a, b, bias):
        return tegula.torch.gemm(a, b, bias=bias, **given).float().sum()

    torch._dynamo.reset()
    loss = torch.compile(step, fullgraph=True)(a, b, bias)
    torch.testing.assert_close(loss, step(a, b, bias))
    loss.backward()
    (expected,) = torch.autograd.grad(step(a, b, bias), bias)
    torch.testing.assert_close(bias.grad, expected)


@needs_operators
@pytest.mark.parametrize("rounds", [False, True])
def test_a_layer_of_ternary_weights(rounds):
    generator = torch.Generator().manual_seed(6)
    weight, bias, x = (torch.randn(shape, generator=generator) for shape in [(24, 64), (24,), (3, 5, 64)])
    layer = tegula.torch.BitLinear.from_weight(weight, bias, rounds=rounds)
    scale = weight.abs().mean()
    ternary = (weight / scale).round().clamp(-1, 1) * scale
    if rounds:
        step = x.abs().amax(-1, keepdim=True) / 127
        x_rounded = (x / step).round() * step
    else:
        x_rounded = x.bfloat16().float()
    torch.testing.assert_close(layer(x), x_rounded @ ternary.T + bias.bfloat16().float(), rtol=1e-5, atol=1e-5)
    loaded = tegula.torch.BitLinear(64, 24, True, rounds=rounds)
    loaded.load_state_dict(layer.state_dict())
    assert torch.equal(loaded(x), layer(x))
    with pytest.raises(ValueError, match="multiple of 4"):
        tegula.torch.BitLinear(6, 8)


@needs_8_bits
@pytest.mark.parametrize("dtype", ["int8", "float8_e4m3fn"])
def test_rows_of_8_bits_and_weights_of_4(dtype):
    generator = torch.Generator().manual_seed(7)
    x = torch.randint(-9, 9, (2, 5, 64), generator=generator).to(getattr(torch, dtype))
    b = torch.randint(0, 256, (24, 32), generator=generator, dtype=torch.uint8)
    scales, step = torch.rand(2, 24, generator=generator), torch.rand(2, 5, generator=generator)
    numbers = torch.stack([b & 15, b >> 4], -1).flatten(1).int()
    weights = ((numbers ^ 8) - 8) * scales.bfloat16().float().repeat_interleave(32, 0).T
    out = tegula.torch.quantised_gemm(x, b, scales.bfloat16(), group=32, row_scale=step, out_dtype=torch.float32)
    torch.testing.assert_close(out, x.float() @ weights.T * step[..., None], rtol=2e-2, atol=2e-1)
    assert tegula.torch.quantised_gemm(x, b, scales.bfloat16(), group=32).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="row_scale"):
        tegula.torch.quantised_gemm(x, b, scales.bfloat16(), group=32, row_scale=step[0])


@needs_8_bits
@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_norms_in_8_bits_are_the_casts_of_norms(norm):
    generator = torch.Generator().manual_seed(8)
    x, residual = torch.randn(2, 6, 300, generator=generator), torch.randn(2, 6, 300, generator=generator)
    weight = torch.randn(300, generator=generator)
    y, total = getattr(tegula.torch, "add_" + norm)(x, residual, weight=weight)
    expected, of_groups = tegula.torch.cast_fp8(y)
    out, scale, stream = getattr(tegula.torch, norm + "_fp8")(x, residual=residual, weight=weight)
    assert torch.equal(stream, total)
    torch.testing.assert_close(scale, of_groups)
    back, wanted = (tegula.torch.uncast_fp8(*pair) for pair in ((out, scale), (expected, of_groups)))
    torch.testing.assert_close(back, wanted, rtol=0.07, atol=1e-3)
    zeros, least, *_ = getattr(tegula.torch, norm + "_fp8")(torch.zeros(3, 40))
    assert not zeros.float().any() and bool((least > 0).all())
