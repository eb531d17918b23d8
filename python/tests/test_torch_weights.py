"""Weights of few bits and sparse matrices from tensors of PyTorch, as docs/gemm-families.md packs them, against float64."""

import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import tegula.torch  # noqa: E402
from tables import on_the_interpreter  # noqa: E402,F401

needs_operators = pytest.mark.skipif(
    not hasattr(torch.library, "custom_op") or not hasattr(torch, "float8_e4m3fn"),
    reason="PyTorch before 2.4 has no such operators",
)

E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def bytes_of(numbers):
    """As docs/gemm-families.md packs numbers of 4 bits."""
    return numbers[..., ::2] & 15 | numbers[..., 1::2] << 4


def in_packed_order(b):
    """The same page's order of tensor cores."""
    return b.view(b.shape[0], -1, 4, 2, 4).permute(0, 1, 4, 2, 3).reshape(b.shape)


@needs_operators
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("format", ["int4", "uint4", "zeros", "mxfp4", "nvfp4"])
def test_weights_of_4_bits_from_tensors(format, packed):
    n, k, group = 9, 128, {"mxfp4": 32, "nvfp4": 16}.get(format, 64)
    generator = torch.Generator().manual_seed(9)
    x = torch.randn(3, k, generator=generator).bfloat16()
    codes = torch.randint(0, 16, (n, k), generator=generator, dtype=torch.uint8)
    scales, zeros = torch.rand(n, k // group, generator=generator) + 0.25, None
    options = {"group": group, "format": "uint4" if format == "zeros" else format}
    numbers = codes.double()
    if format == "int4":
        numbers = torch.where(codes < 8, numbers, numbers - 16)
    elif format == "uint4":
        numbers = numbers - 8
    elif format == "zeros":
        zeros = torch.randint(0, 16, (n, k // group), generator=generator).bfloat16()
        numbers = numbers - zeros.double().repeat_interleave(group, 1)
    else:
        numbers = torch.tensor(E2M1, dtype=torch.float64)[codes.long()]
        options = {"format": format}
    if format == "mxfp4":
        scales = torch.randint(120, 130, scales.shape, generator=generator, dtype=torch.uint8)
        factors = 2.0 ** (scales.double() - 127)
    else:
        scales = scales.to(torch.float8_e4m3fn if format == "nvfp4" else torch.bfloat16)
        factors = scales.double()
    b = bytes_of(codes)
    if packed:
        b = in_packed_order(b)
    if format == "nvfp4":
        options["tensor_scale"] = torch.tensor([0.5])
        factors = factors * 0.5
    wanted = x.double() @ (numbers * factors.repeat_interleave(group, 1)).T

    def product(b, scales):
        others = {} if zeros is None else {"zeros": zeros.t()}
        return tegula.torch.quantised_gemm(x, b, scales, packed=packed, out_dtype=torch.float32, **others, **options)

    out = product(b, scales.t())
    torch.testing.assert_close(out.double(), wanted, rtol=1e-2, atol=1e-1)
    if format == "mxfp4" and hasattr(torch, "float4_e2m1fn_x2"):
        own = product(b.view(torch.float4_e2m1fn_x2), scales.t().contiguous().view(torch.float8_e8m0fnu))
        assert torch.equal(own, out)


def test_ternary_weights_refuse_other_numbers():
    numbers = torch.tensor([[-1, 0, 1, 1], [0, 0, -1, 1]], dtype=torch.int8)
    b = tegula.torch.ternary_weights(numbers)
    codes = torch.stack([b[:, 0] >> shift & 3 for shift in (0, 2, 4, 6)], 1)
    assert torch.equal(codes.to(torch.int8) - 1, numbers)
    with pytest.raises(ValueError, match="expected -1, 0 and 1"):
        tegula.torch.ternary_weights(numbers * 2)
    with pytest.raises(ValueError, match="multiple of 4"):
        tegula.torch.ternary_weights(numbers[:, :3])


@needs_operators
def test_blocks_of_experts_from_tensors():
    """The layout of gpt-oss: blocks [groups, n, k / 32, 16] and scales [groups, n, k / 32]."""
    generator = torch.Generator().manual_seed(10)
    x = torch.randn(7, 64, generator=generator).bfloat16()
    blocks = torch.randint(0, 256, (3, 6, 2, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(120, 130, (3, 6, 2), generator=generator, dtype=torch.uint8)
    offsets = torch.tensor([0, 2, 2, 7], dtype=torch.int32)
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(2).long()
    weights = torch.tensor(E2M1, dtype=torch.float64)[codes] * 2.0 ** (scales.double() - 127).repeat_interleave(32, 2)
    wanted = torch.cat([x[begin:end].double() @ weights[i].T for i, (begin, end) in enumerate([(0, 2), (2, 2), (2, 7)])])
    b = blocks.flatten(2)
    for packed, own in ((False, b), (True, in_packed_order(b.flatten(0, 1)).view(b.shape))):
        out = tegula.torch.quantised_grouped_gemm(
            x, own, scales.transpose(1, 2), offsets=offsets, format="mxfp4", packed=packed, out_dtype=torch.float32
        )
        torch.testing.assert_close(out.double(), wanted, rtol=1e-2, atol=1e-1)


@needs_operators
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int8"])
def test_two_of_four_from_tensors(dtype):
    generator = torch.Generator().manual_seed(11)
    w = torch.randint(-8, 8, (6, 5 * 8), generator=generator).float().view(6, 10, 4)
    kept = torch.zeros_like(w).scatter_(2, torch.rand(w.shape, generator=generator).topk(2, 2).indices, 1)
    w = (w * kept).flatten(1).to(getattr(torch, dtype))
    x = torch.randint(-4, 4, (3, 40), generator=generator).to(w.dtype)
    values, metadata = tegula.torch.compress_24(w)
    halves = torch.stack([metadata & 15, metadata >> 4], -1).flatten(1)
    positions = torch.stack([halves & 3, halves >> 2], -1).long()
    back = torch.zeros(6, 10, 4).scatter_(2, positions, values.float().view(6, 10, 2))
    assert torch.equal(back.flatten(1), w.float())
    product = tegula.torch.integer_gemm_24 if dtype == "int8" else tegula.torch.gemm_24
    options = {} if dtype == "int8" else {"transpose_b": True, "out_dtype": torch.float32}
    torch.testing.assert_close(product(values, metadata, x, **options).float(), w.float() @ x.float().T)
