"""The operators on tensors of PyTorch: kinds of results, gradients against float64, compilation."""

import numpy as np
import pytest
import references as reference
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs_operators = pytest.mark.skipif(
    not hasattr(torch.library, "custom_op"), reason="tegula.torch needs PyTorch 2.4 or newer"
)
if hasattr(torch.library, "custom_op"):
    import tegula.torch


def heads(queries=21, keys=21, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = ((1, queries, 4, 16), (1, keys, 2, 16), (1, keys, 2, 16))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def plain_attention(q, k, v, mask, softcap=0.0, sinks=None, factors=1):
    """[batch, sequence, heads, features], in the dtype of the arguments; a row that sees nothing gives 0, -inf."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 * factors
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~mask, -torch.inf)
    all_scores = scores
    if sinks is not None:
        all_scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    lse = torch.logsumexp(all_scores, -1)
    weights = torch.exp(scores - lse[..., None].masked_fill(lse[..., None] == -torch.inf, 0))
    return (weights @ v).transpose(1, 2), lse


def causal_mask(queries, keys, **window):
    return torch.from_numpy(reference.causal_mask(queries, keys, **{"right": 0, **window}))


def check_gradients(function, plain, inputs, tolerance=5e-5):
    """Results and gradients of `function` against those of `plain` in float64."""
    ours = [x.clone().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    results, expected = function(*ours), plain(*exact)
    generator = torch.Generator().manual_seed(2)
    loss = exact_loss = 0
    for result, right in zip(results, expected):
        weight = torch.randn(right.shape, generator=generator, dtype=torch.float64)
        finite = right.isfinite()
        torch.testing.assert_close(result.double(), right, atol=tolerance, rtol=tolerance)
        loss = loss + (result.double()[finite] * weight[finite]).sum()
        exact_loss = exact_loss + (right[finite] * weight[finite]).sum()
    loss.backward()
    exact_loss.backward()
    for one, right in zip(ours, exact):
        assert one.grad.dtype == one.dtype and one.grad.shape == one.shape
        torch.testing.assert_close(one.grad.double(), right.grad, atol=4 * tolerance, rtol=4 * tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_functions(dtype):
    q, k, v = heads(dtype=dtype)
    out, lse = tegula.attention(q, k, v, causal=True)
    assert type(out) is torch.Tensor and out.dtype == dtype and lse.dtype == torch.float32
    expected_out, expected_lse = plain_attention(q.double(), k.double(), v.double(), causal_mask(21, 21))
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(out.double(), expected_out, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), expected_lse, atol=tolerance, rtol=tolerance)
    product = tegula.gemm(q[0, :, 0], k[0, :, 0], transpose_b=True, out_dtype=torch.float32)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product, q[0, :, 0].float() @ k[0, :, 0].float().T, atol=1e-4, rtol=1e-4)
    scores = tegula.block_scores(q, k, 8, 8)
    chosen = tegula.topk_blocks(scores, 2)
    assert type(scores) is torch.Tensor and chosen.dtype == torch.int32 and chosen.shape == (1, 2, 3, 2)


def test_lost_gradients_are_refused():
    q, k, v = heads()
    with pytest.raises(TypeError, match="tegula.torch"):
        tegula.attention(q.requires_grad_(), k, v)


@needs_operators
def test_gradients_of_attention():
    sinks = torch.tensor([0.1, -1.0, 2.0, 0.5])
    check_gradients(
        lambda q, k, v, s: tegula.torch.attention(q, k, v, causal=True, left=9, softcap=5.0, sinks=s),
        lambda q, k, v, s: plain_attention(q, k, v, causal_mask(21, 21, left=9), 5.0, s),
        [*heads(), sinks],
    )


def choice(rows, blocks, count, heads=2):
    generator = torch.Generator().manual_seed(3)
    return torch.rand(1, heads, rows, blocks, generator=generator).topk(count, -1).indices


def as_mask(indices, queries, keys, q_block, k_block):
    return torch.from_numpy(reference.block_mask(indices.numpy(), queries, keys, q_block, k_block).repeat(2, 1))


@needs_operators
def test_gradients_of_block_sparse_attention():
    indices = choice(3, 3, 2)
    indices[0, 0, 1] = -1  # a row that sees nothing
    mask = as_mask(indices, 21, 21, 8, 8) & causal_mask(21, 21)
    check_gradients(
        lambda q, k, v: tegula.torch.block_sparse_attn(q, k, v, 8, 8, indices, causal=True),
        lambda q, k, v: plain_attention(q, k, v, mask),
        heads(),
    )


def nsa_mask(indices, diagonal=True):
    mask = as_mask(indices, 21, 21, 1, 4)
    block = torch.arange(21) // 4
    return (mask | (diagonal & (block[:, None] == block[None, :]))) & causal_mask(21, 21)


@needs_operators
def test_gradients_of_selected_attention():
    indices = choice(21, 6, 3)
    mask = nsa_mask(indices)

    def function(q, k, v):
        return tegula.torch.nsa_selected_attention(
            q, k, v, indices.transpose(1, 2), block_size=4, diagonal=True, window=5
        )

    def plain(q, k, v):
        return plain_attention(q, k, v, mask) + plain_attention(q, k, v, causal_mask(21, 21, left=4))

    check_gradients(function, plain, heads())


@needs_operators
def test_gradient_of_the_selector():
    """A factor of 1 for every entry: no result depends on it, its gradient is that of the scores it multiplies."""
    indices = choice(21, 6, 3)
    mask = nsa_mask(indices)
    key_block = torch.arange(21) // 4

    def plain(q, k, v, factors):
        named = (indices[..., None] == key_block).double()  # [batch, heads, tokens, entries, keys]
        of_keys = (named * factors[..., None]).sum(3) + (1 - named.sum(3))
        return plain_attention(q, k, v, mask, factors=of_keys.repeat_interleave(2, 1))

    def function(q, k, v, factors):
        return tegula.torch.nsa_selected_attention(
            q, k, v, indices.transpose(1, 2), sel_scale=factors.transpose(1, 2), block_size=4, diagonal=True
        )

    check_gradients(function, plain, [*heads(), torch.ones(indices.shape)])


@needs_operators
def test_gradients_of_packed_sequences():
    bounds = torch.tensor([0, 8, 21], dtype=torch.int32)
    indices = choice(21, 6, 3)
    part = torch.arange(21) >= 8
    first, place = torch.where(part, 8, 0), torch.where(part, torch.arange(21) - 8, torch.arange(21))
    # Blocks are numbered from the beginning of each sequence.
    named = (indices[..., None] == (place // 4)) & (first[:, None] == first[None, :])[None, None, :, None, :]
    mask = (named.any(3) & causal_mask(21, 21)).repeat_interleave(2, 1)

    def function(q, k, v):
        out, lse = tegula.torch.nsa_selected_attention(
            q[0], k[0], v[0], indices[0].transpose(0, 1), block_size=4, cu_seqlens_q=bounds, cu_seqlens_k=bounds
        )
        return out[None], lse[None]

    check_gradients(function, lambda q, k, v: plain_attention(q, k, v, mask), heads())


@needs_operators
def test_native_sparse_attend():
    indices = choice(21, 6, 3)
    counts = torch.rand(indices.shape, generator=torch.Generator().manual_seed(4)) < 0.7
    mask = nsa_mask(torch.where(counts, indices, -1))
    inputs = [x.transpose(1, 2) for x in heads()]

    def function(q, k, v):
        (out, window_out), (lse, window_lse) = tegula.torch.native_sparse_attend(
            q, k, v, 4, indices, counts, return_lse=True, return_sliding_window_out=True
        )
        return out, lse, window_out, window_lse

    def plain(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        out, lse = plain_attention(q, k, v, mask)
        window_out, window_lse = plain_attention(q, k, v, causal_mask(21, 21, left=4))
        return out.transpose(1, 2), lse, window_out.transpose(1, 2), window_lse

    check_gradients(function, plain, inputs)
    with torch.no_grad():
        out = tegula.torch.native_sparse_attend(*inputs, 4, indices, counts)
    torch.testing.assert_close(out, function(*inputs)[0], atol=1e-5, rtol=1e-5)


@needs_operators
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
        options = {"transpose_a": transpose_a, "transpose_b": transpose_b, "activation": activation}
        return (tegula.torch.gemm(a, b, bias=bias, **options),)

    def plain(a, b, bias):
        a = a.transpose(-1, -2) if transpose_a else a
        b = b.transpose(-1, -2) if transpose_b else b
        return (functions[activation](a @ b + bias),)

    check_gradients(function, plain, [torch.randn(shape, generator=generator) for shape in shapes])


@needs_operators
def test_operators_are_well_formed():
    """Schemas, fake tensors and gradients as torch.compile needs them."""
    q, k, v = (x.requires_grad_() for x in heads())
    options = ["bshd", None, True, -1, -1, 0.0, True]
    torch.library.opcheck(torch.ops.tegula.attention.default, (q, k, v, None, None, None, *options))
    product = (q[0], k[0].detach(), None, False, True, "silu", "float16")
    torch.library.opcheck(torch.ops.tegula.gemm.default, product)
    indices = choice(3, 3, 2).int()
    sparse = (q, k, v, indices, None, None, 8, 8, "bshd", False, None, 0.0, False)
    torch.library.opcheck(torch.ops.tegula.block_sparse_attn.default, sparse)
    tokens = choice(21, 6, 3).int().transpose(1, 2)
    factors = torch.ones(tokens.shape, requires_grad=True)
    selected = (q, k, v, tokens, factors, None, None, None, 4, "bshd", True, True, 5, None)
    torch.library.opcheck(torch.ops.tegula.nsa_selected_attention.default, selected)


@needs_operators
def test_compile_takes_the_whole_function():
    def step(q, k, v):
        out, lse = tegula.torch.attention(q * 2, k, v, causal=True)
        return out.sum() + lse.sum()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    inputs = [[x.clone().requires_grad_() for x in heads()] for _ in range(2)]
    for function, tensors in zip((step, compiled), inputs):
        function(*tensors).backward()
    for one, other in zip(*inputs):
        assert torch.equal(one.grad, other.grad)


@needs_operators
def test_autocast():
    q, k, v = (x.requires_grad_() for x in heads())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = tegula.torch.attention(q, k, v, causal=True)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32 and bool(np.isfinite(q.grad.numpy()).all())
