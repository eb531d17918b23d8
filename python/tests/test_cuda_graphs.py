"""The operators in graphs of CUDA: a captured step gives, on new inputs, what a call gives."""

import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
import tegula.torch  # noqa: E402
from cuda_operators import OPERATORS, heads, lists  # noqa: E402


def capture(step, *arguments):
    """The graph of a step that has run once before, and what the step gave while it was captured."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step(*arguments)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step(*arguments)
    return graph, results


@pytest.mark.parametrize("name", OPERATORS)
def test_graph_of_results_and_gradients(name):
    """A captured step gives, on new inputs, what a call gives."""

    def step(q, k, v):
        results = OPERATORS[name](q, k, v, *lists())
        return results[0], torch.autograd.grad(results[0].float().square().sum(), [q, k], allow_unused=True)

    q, k, v = (x.cuda().requires_grad_() for x in heads(torch.bfloat16))
    graph, (out, gradients) = capture(step, q, k, v)
    with torch.no_grad():
        q.mul_(2)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    expected, expected_gradients = step(q, k, v)
    assert torch.equal(out, expected)
    for one, right in zip(gradients, expected_gradients):
        assert torch.equal(one, right)


def test_graph_of_gradients_beside_each_other():
    """The gradient of the delta rule runs grids in a second stream, which belongs to the graph as well."""
    shape = (1, 512, 2, 64)
    torch.manual_seed(5)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    k = torch.nn.functional.normalize(k, dim=-1)
    beta = torch.rand(shape[:3], device="cuda", dtype=torch.float32)
    g = -torch.rand(shape[:3], device="cuda", dtype=torch.float32)
    inputs = [x.requires_grad_() for x in (q, k, v, beta, g)]

    def step():
        out = tegula.torch.gated_delta_rule(q, k, v, beta, g=g)[0]
        return out, torch.autograd.grad(out.float().square().sum(), inputs)

    graph, (out, gradients) = capture(step)
    with torch.no_grad():
        v.mul_(2)
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    expected, expected_gradients = step()
    assert torch.equal(out, expected)
    for one, right in zip(gradients, expected_gradients):
        torch.testing.assert_close(one, right)


@pytest.mark.parametrize("splits", [0, 1, 3])
def test_graph_of_decoding(splits):
    """One captured step appends a token to pages and attends to them while lengths on the device grow."""
    torch.manual_seed(7)
    table = torch.randperm(12, device="cuda").int().view(2, 6)
    token = [torch.randn(2, 1, n, 64, device="cuda", dtype=torch.bfloat16) for n in (8, 2, 2)]
    latent_q = torch.randn(2, 1, 4, 80, device="cuda", dtype=torch.bfloat16)
    start = [torch.randn(12, 16, n, 64, device="cuda", dtype=torch.bfloat16) for n in (2, 2)]
    latents = torch.randn(12, 16, 80, device="cuda", dtype=torch.bfloat16)
    caches, first_token = [x.clone() for x in start], [x.clone() for x in token]
    lengths = torch.zeros(2, device="cuda", dtype=torch.int32)

    def step(k_cache, v_cache):
        lengths.add_(1)
        where = {"block_table": table, "cache_seqlens": lengths}
        tegula.torch.append_kv(token[1], k_cache, v=token[2], v_cache=v_cache, **where)
        dense = tegula.torch.attention_with_kv_cache(token[0], k_cache, v_cache, causal=True, splits=splits, **where)
        return *dense, *tegula.torch.mla_decode(latent_q, latents, d_v=64, splits=splits, **where)

    graph, captured = capture(step, *caches)
    lengths.copy_(torch.tensor([40, 3]))
    for cache, values in zip(caches, start):
        cache.copy_(values)
    results = []
    for _ in range(3):
        for x in token:
            x.mul_(1.5)
        graph.replay()
        results.append([x.clone() for x in captured])
    lengths.copy_(torch.tensor([40, 3]))
    for x, values in zip(token, first_token):
        x.copy_(values)
    for expected in results:
        for x in token:
            x.mul_(1.5)
        for one, right in zip(expected, step(*start)):
            torch.testing.assert_close(one, right, atol=1e-2, rtol=1e-2)
    for cache, values in zip(caches, start):
        torch.testing.assert_close(cache, values, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("learns", [False, True])
def test_graph_of_native_sparse_attention(learns):
    """Of a call that keeps no branches, as in generation, and of one that does."""
    shapes = ((1, 300, 32, 64), (1, 300, 2, 64), (1, 300, 2, 64), (1, 300, 32, 3))
    torch.manual_seed(6)
    inputs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=learns) for shape in shapes]

    def step():
        return tegula.torch.native_sparse_attention(*inputs, block_size=32, count=4, window=40)

    graph, out = capture(step)
    with torch.no_grad():
        inputs[2].mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, step())
