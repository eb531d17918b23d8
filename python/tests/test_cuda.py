"""The operators on a GPU: results of the CPU, streams and graphs of the caller, arrays of PyTorch and CuPy."""

import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
if not hasattr(torch.library, "custom_op"):
    pytest.skip("tegula.torch needs PyTorch 2.4 or newer", allow_module_level=True)
import tegula.torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def heads(dtype=torch.float32, tokens=200):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn((1, tokens, n, 64), generator=generator).to(dtype) for n in (4, 2, 2)]


def block_choice(rows, blocks, count):
    generator = torch.Generator().manual_seed(2)
    return torch.rand(1, 2, rows, blocks, generator=generator).topk(count, -1).indices.int()


OPERATORS = {
    "attention": lambda q, k, v: tegula.torch.attention(q, k, v, causal=True),
    "window": lambda q, k, v: tegula.torch.attention(q, k, v, causal=True, left=31, softcap=10.0),
    "block_sparse": lambda q, k, v: tegula.torch.block_sparse_attn(
        q, k, v, 64, 64, block_choice(4, 4, 2).to(q.device), causal=True
    ),
    "nsa_selected": lambda q, k, v: tegula.torch.nsa_selected_attention(
        q, k, v, block_choice(200, 13, 4).transpose(1, 2).to(q.device), block_size=16, diagonal=True, window=17
    ),
}


def expect_close(actual, expected, dtype):
    assert actual.is_cuda
    torch.testing.assert_close(actual.cpu(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_results_and_gradients(name, dtype):
    inputs = heads(dtype)
    leaves = {device: [x.clone().to(device).requires_grad_() for x in inputs] for device in ("cpu", "cuda")}
    results = {device: OPERATORS[name](*leaves[device]) for device in leaves}
    generator = torch.Generator().manual_seed(3)
    for result, right in zip(results["cuda"], results["cpu"]):
        expect_close(result, right, dtype)
    weights = [torch.randn(x.shape, generator=generator) for x in results["cpu"]]
    for device, tensors in results.items():
        sum((x.float() * weight.to(device)).sum() for x, weight in zip(tensors, weights)).backward()
    for one, right in zip(leaves["cuda"], leaves["cpu"]):
        torch.testing.assert_close(one.grad.cpu(), right.grad, atol=8 * TOLERANCE[dtype], rtol=8 * TOLERANCE[dtype])


def test_choice_of_blocks_and_products():
    q, k, _ = heads()
    scores = tegula.block_scores(q.cuda(), k.cuda(), 32, 32)
    expect_close(scores, tegula.block_scores(q, k, 32, 32), torch.float32)
    chosen = tegula.topk_blocks(scores, 3)
    assert chosen.is_cuda and torch.equal(chosen.cpu(), tegula.topk_blocks(scores.cpu(), 3))
    a, b = q[0, :, 0], k[0, :, 0]
    expect_close(tegula.gemm(a.cuda(), b.cuda(), transpose_b=True), a @ b.T, torch.float32)


def test_current_stream():
    """The call waits for what the caller's stream has queued, and only there."""
    q, k, v = (x.cuda() for x in heads())
    expected = tegula.attention(q, k, v)[0]
    late = torch.zeros_like(q)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(q)
        out, _ = tegula.attention(late, k, v)
    stream.synchronize()
    assert torch.equal(out, expected)


def test_graph():
    q, k, v = (x.cuda() for x in heads(torch.bfloat16))
    tegula.torch.attention(q, k, v)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = tegula.torch.attention(q, k, v)
    q.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, tegula.torch.attention(q, k, v)[0])


def test_compile():
    inputs = [[x.cuda().requires_grad_() for x in heads(torch.bfloat16)] for _ in range(2)]

    def step(q, k, v):
        return tegula.torch.attention(q * 2, k, v, causal=True)[0].float().sum()

    step(*inputs[0]).backward()
    torch.compile(step, fullgraph=True, backend="aot_eager")(*inputs[1]).backward()
    for one, other in zip(*inputs):
        assert torch.equal(one.grad, other.grad)


def test_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    inputs = heads()
    q, k, v = (cupy.from_dlpack(x.cuda()) for x in inputs)
    with cupy.cuda.Stream(non_blocking=True):
        out, lse = tegula.attention(q * 1, k, v)
        out, lse = out * 1, lse * 1
    cupy.cuda.Device().synchronize()
    assert isinstance(out, cupy.ndarray)
    expected = tegula.attention(*inputs)
    for actual, right in zip((out, lse), expected):
        expect_close(torch.from_dlpack(actual), right, torch.float32)


def test_arrays_of_two_devices_are_refused():
    q, k, v = heads()
    with pytest.raises(ValueError, match="cuda"):
        tegula.attention(q.cuda(), k, v)
