"""Experts of PyTorch against plain float64: the layer, and grouped products in the form of torch.nn.functional.grouped_mm."""

import pytest
from tables import on_the_interpreter  # noqa: F401

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import tegula.torch  # noqa: E402
from torch_references import check_gradients  # noqa: E402


def plain_unit(unit, h, interleaved):
    gate, value = (h[..., ::2], h[..., 1::2]) if interleaved else h.chunk(2, -1)
    if unit == "swiglu_oai":
        gate = gate.clamp(max=7)
        return gate * torch.sigmoid(1.702 * gate) * (value.clamp(-7, 7) + 1)
    return torch.nn.functional.silu(gate) * value


def plain_experts(x, experts, weights, w1, w2, bias1, bias2, unit, interleaved):
    """Each expert with all tokens, and zeros for those that are not its own."""
    out = torch.zeros_like(x)
    for e in range(w1.shape[0]):
        y = plain_unit(unit, x @ w1[e].T + bias1[e], interleaved) @ w2[e].T + bias2[e]
        out = out + y * (weights * (experts == e)).sum(1, keepdim=True)
    return out


@pytest.mark.parametrize("unit, interleaved", [("silu", False), ("swiglu_oai", True)])
def test_experts_and_their_gradients(unit, interleaved):
    generator = torch.Generator().manual_seed(1)
    tokens, topk, d, groups, inner = 11, 2, 12, 3, 10
    experts = torch.randint(-1, groups, (tokens, topk), generator=generator, dtype=torch.int32)
    shapes = [(tokens, d), (tokens, topk), (groups, 2 * inner, d), (groups, d, inner), (groups, 2 * inner), (groups, d)]

    def fused(x, weights, w1, w2, bias1, bias2):
        options = {"unit": unit, "interleaved": interleaved}
        return (tegula.torch.fused_moe(x, experts, weights, w1, w2, bias1=bias1, bias2=bias2, **options),)

    def plain(x, weights, w1, w2, bias1, bias2):
        return (plain_experts(x, experts, weights, w1, w2, bias1, bias2, unit, interleaved),)

    check_gradients(fused, plain, [0.5 * torch.randn(shape, generator=generator) for shape in shapes])


def test_a_layer_of_experts():
    torch.manual_seed(2)
    layer = tegula.torch.MixtureOfExperts(16, 24, 5, 2, shared=8)
    x = torch.randn(2, 7, 16)
    rows = x.flatten(0, 1)
    chosen = layer.router(rows).topk(2, -1)
    zeros = torch.zeros(5, 1)
    expected = plain_experts(
        rows, chosen.indices, chosen.values.softmax(-1), layer.w1, layer.w2, zeros, zeros, "silu", False
    )
    expected = expected + plain_unit("silu", rows @ layer.shared1.T, False) @ layer.shared2.T
    out = layer(x)
    torch.testing.assert_close(out, expected.view_as(x), atol=1e-4, rtol=1e-4)
    out.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def plain_grouped(a, b, ends):
    begins = [0, *ends[:-1]] if ends else []
    if a.dim() == 3 and b.dim() == 3:
        return a @ b
    if a.dim() == 2 and b.dim() == 3:
        return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(zip(begins, ends))])
    if a.dim() == 3:
        return torch.cat([a[g] @ b[:, i:j] for g, (i, j) in enumerate(zip(begins, ends))], 1)
    return torch.stack([a[:, i:j] @ b[i:j] for i, j in zip(begins, ends)])


@pytest.mark.parametrize("ends", [[4, 4, 9], [2, 5, 7]])
@pytest.mark.parametrize(
    "of_a, of_b, turned", [((9, 6), (3, 6, 5), False), ((9, 6), (3, 6, 5), True), ((3, 5, 6), (6, 9), False),
                           ((5, 9), (9, 6), False), ((3, 5, 6), (3, 6, 4), False)]
)  # fmt: skip
def test_grouped_mm_is_that_of_pytorch(of_a, of_b, turned, ends):
    generator = torch.Generator().manual_seed(3)
    if len(of_a) == len(of_b):
        ends = [4, 4, 9]
    offs = None if len(of_a) == len(of_b) == 3 else torch.tensor(ends, dtype=torch.int32)

    def product(a, b):
        if turned:
            b = b.transpose(1, 2).contiguous().transpose(1, 2)
        out = tegula.torch.grouped_mm(a, b, offs=offs)
        if offs is not None and len(of_b) == 3:
            out = out[: ends[-1]]
        return (out[:, : ends[-1]] if len(of_a) == 3 and offs is not None else out,)

    def plain(a, b):
        return (plain_grouped(a, b, ends if offs is not None else []),)

    check_gradients(product, plain, [torch.randn(shape, generator=generator) for shape in (of_a, of_b)])
