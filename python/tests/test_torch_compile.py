"""The operators under the compiler, the tracers and the transforms of PyTorch."""

from types import SimpleNamespace

import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs_operators = pytest.mark.skipif(
    not hasattr(torch.library, "custom_op"), reason="PyTorch before 2.4 has no such operators"
)
import tegula.torch  # noqa: E402
from tegula._printing import torch_options  # noqa: E402
from tegula._tables import tables  # noqa: E402
from torch_references import choice, heads  # noqa: E402


def check_operator(name, **given):
    """The custom operator with the tensors and options that are given; of others, the defaults."""
    table = tables[name]
    inputs = [given.get(x.name) for x in table.inputs]
    options = [given.get(o.name, o.default) for o in torch_options(table, tables)]
    torch.library.opcheck(getattr(torch.ops.tegula, name).default, (*inputs, *options))


@needs_operators
def test_operators_are_well_formed():
    """Schemas, fake tensors and gradients as torch.compile needs them."""
    q, k, v = (x.requires_grad_() for x in heads())
    indices = choice(3, 3, 2).int()
    blocks = {"q_block_size": 8, "k_block_size": 8}
    check_operator("block_sparse_attention", q=q, k=k, v=v, indices=indices, **blocks)
    lengths = torch.tensor([0, 5, 21], dtype=torch.int32)
    tokens = [x[0].detach().requires_grad_() for x in (q, k, v)]
    packed = {"indices": indices.expand(2, 2, 3, 2).clone(), "cu_seqlens_q": lengths, "cu_seqlens_k": lengths}
    check_operator("block_sparse_attention", **dict(zip("qkv", tokens)), **packed, **blocks)
    tokens = choice(21, 6, 3).int().transpose(1, 2)
    factors = torch.ones(tokens.shape, requires_grad=True)
    selected = {"block_indices": tokens, "sel_scale": factors, "block_size": 4, "diagonal": True, "window": 5}
    check_operator("nsa_selected_attention", q=q, k=k, v=v, **selected)


@needs_operators
def test_tensors_without_elements():
    """On the device meta operators give shapes, those of gradients too."""
    q, k, v = (x.to("meta").requires_grad_() for x in heads())
    out, lse = tegula.torch.attention(q, k, v, causal=True)
    assert out.is_meta and out.shape == q.shape and lse.shape == (1, 4, 21)
    out.sum().backward()
    assert q.grad.is_meta and q.grad.shape == q.shape
    chosen = tegula.torch.topk_blocks(tegula.torch.block_scores(q, k, q_block_size=8, k_block_size=8), 2)
    assert chosen.is_meta and chosen.shape == (1, 2, 3, 2)
    assert tegula.torch.gemm(q[0], k[0], transpose_b=True).shape == (21, 4, 2)


def whole_choice(q, k, v):
    """Scores, the choice of blocks by them, and attention over it, with a loss on the scores too."""
    scores = tegula.torch.block_scores(q * 2, k, q_block_size=8, k_block_size=8, causal=True)
    chosen = tegula.torch.topk_blocks(scores, 2, keep_diagonal=True, q_block_size=8, k_block_size=8)
    out, lse = tegula.torch.block_sparse_attn(q * 2, k, v, 8, 8, chosen, causal=True)
    return out.sum() + lse.sum() + scores.clamp(min=-10).sum()


def selection(q, k, v):
    indices = (torch.arange(21)[:, None, None] // 4 - torch.arange(1, 3)).expand(1, 21, 2, 2)
    return sum(
        x.relu().sum()
        for x in tegula.torch.nsa_selected_attention(q * 2, k, v, indices, block_size=4, diagonal=True, window=5)
    )


def drop_in(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q * 2, k, v))
    indices = (torch.arange(21)[:, None] // 4 - torch.arange(1, 3)).expand(1, 2, 21, 2)
    out = tegula.torch.native_sparse_attend(q, k, v, 4, indices, indices >= 0, return_sliding_window_out=True)
    return (out[0] * out[1]).sum()


def autocast_product(q, k, v):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        product = tegula.torch.gemm(q[0, :, 0] * 2, k[0, :, 0], transpose_b=True, bias=v[0, :, 0, 0], activation="gelu")
    return product.float().sum()


WHOLE_FUNCTIONS = {
    "attention": lambda q, k, v: tegula.torch.attention(q * 2, k, v, causal=True)[0].relu().sum(),
    "choice of blocks": whole_choice,
    "selection": selection,
    "native_sparse_attend": drop_in,
    "autocast": autocast_product,
}


@needs_operators
@pytest.mark.parametrize("name", WHOLE_FUNCTIONS)
def test_compile_takes_the_whole_function(name):
    """By Inductor, PyTorch's default compiler, without a break of the graph."""
    step = WHOLE_FUNCTIONS[name]
    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True)
    inputs = [[x.clone().requires_grad_() for x in heads()] for _ in range(2)]
    losses = [function(*tensors) for function, tensors in zip((step, compiled), inputs)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(losses[1], losses[0])
    for one, other in zip(*inputs):
        torch.testing.assert_close(one.grad, other.grad, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs[0]), losses[0].detach())


def test_compiled_graphs_of_other_versions_are_not_used(monkeypatch):
    """The sources belong to PyTorch's key of what it has compiled, beside the user's tag."""
    config = pytest.importorskip("torch.compiler.config", reason="PyTorch before 2.6 has no such configuration")
    if not hasattr(config, "cache_key_tag"):
        pytest.skip("PyTorch before 2.7 has no such tag")
    from tegula.torch import _cache_key

    assert config.cache_key_tag.split()[-1] == f"tegula-{_cache_key.fingerprint()}"
    with config.patch(cache_key_tag="mine tegula-of-before"):
        _cache_key.add_to_cache_key()
        assert config.cache_key_tag == f"mine tegula-{_cache_key.fingerprint()}"
    before = _cache_key.fingerprint()
    monkeypatch.setattr(_cache_key, "_tegula", SimpleNamespace(tables=lambda: []))
    assert _cache_key.fingerprint() != before


@needs_operators
def test_transforms_and_tracers():
    q, k, v = heads()

    def loss(q):
        return WHOLE_FUNCTIONS["attention"](q, k, v)

    leaf = q.clone().requires_grad_()
    loss(leaf).backward()
    torch.testing.assert_close(torch.func.grad(loss)(q), leaf.grad)
    graph = torch.fx.experimental.proxy_tensor.make_fx(loss)(q)
    assert "tegula.attention" in graph.code
    torch.testing.assert_close(graph(q), loss(q))
    with torch.no_grad():
        torch.testing.assert_close(loss(leaf), loss(q))


BLOCKS, OF_TOKENS = choice(3, 3, 2).int(), choice(21, 6, 3).int().transpose(1, 2)
TRACED = {
    "attention": lambda q, k, v: q + tegula.torch.attention(q, k, v, causal=True)[0],
    "block_sparse_attention": lambda q, k, v: q + tegula.torch.block_sparse_attn(q, k, v, 8, 8, BLOCKS)[0],
    "nsa_selected_attention": lambda q, k, v: q
    + tegula.torch.nsa_selected_attention(q, k, v, OF_TOKENS, block_size=4)[0],
    "topk_blocks": lambda q, k, v: tegula.torch.topk_blocks(tegula.torch.block_scores(q, k, q_block_size=8, k_block_size=8), 2) + 0 * v.sum(),
    "gemm": lambda q, k, v: v[0, :, 0] + tegula.torch.gemm(q[0, :, 0], k[0, :16, 0], transpose_b=True),
}


@needs_operators
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", TRACED)
def test_jit_trace_records_the_operators(name, gradients):
    """What it does not see would be a constant of its graph: the result of the example."""
    function, example = TRACED[name], heads()
    with torch.set_grad_enabled(gradients):
        traced = torch.jit.trace(function, tuple(x.requires_grad_(gradients) for x in example))
        assert f"tegula::{name}" in {node.kind() for node in traced.inlined_graph.nodes()}
        others = [2 * x.detach() - 1 for x in example]
        torch.testing.assert_close(traced(*others), function(*others))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_jit_trace_of_functions_without_operators_is_refused():
    q, k, v = heads()
    out, lse = tegula.attention(q, k, v)
    for function in (
        lambda q: q + tegula.attention(q, k, v)[0],
        lambda q: tegula.attention_backward(out, q, k, v, out, lse)[0],
    ):
        with pytest.raises(NotImplementedError, match="torch.jit.trace does not see this function"):
            torch.jit.trace(function, (q,))


def raw_attention(q, k, v):
    absent = [None] * 6
    return torch.ops.tegula.attention(
        q, k, v, *absent, "bshd", None, True, -1, -1, 0.0, 0, 0, 0, 0, 0, None, True
    )  # fmt: skip


FORWARD = {
    "tegula": lambda q, k, v: tegula.attention(q, k, v),
    "attention": lambda q, k, v: tegula.torch.attention(q, k, v),
    "block_sparse_attn": lambda q, k, v: tegula.torch.block_sparse_attn(q, k, v, 8, 8, BLOCKS),
    "nsa_selected_attention": TRACED["nsa_selected_attention"],
    "block_scores": lambda q, k, v: tegula.torch.block_scores(q, k, q_block_size=8, k_block_size=8),
    "gemm": TRACED["gemm"],
    "operator": raw_attention,
}


@needs_operators
@pytest.mark.parametrize("name", FORWARD)
def test_derivatives_in_forward_mode_are_refused(name):
    """Not given as zeros: in the order of duals and by torch.func, for tensors with and without a gradient."""
    q, k, v = heads()
    match = "forward-mode derivatives .* are not implemented"
    for gradient in (False, True):
        if gradient and name in ("tegula", "operator"):
            continue  # PyTorch's own refusal
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(q.clone().requires_grad_(gradient), torch.ones_like(q))
            with pytest.raises(NotImplementedError, match=match):
                FORWARD[name](dual, k, v)
            FORWARD[name](q, k, v)  # has no tangent
    if name != "tegula":
        with pytest.raises(NotImplementedError, match=match):
            torch.func.jvp(lambda q: FORWARD[name](q, k, v), (q,), (q,))


@needs_operators
def test_symbolic_traces_get_a_remedy():
    for name, function in FORWARD.items():
        if name in ("tegula", "operator"):
            continue
        with pytest.raises(TypeError, match="torch.fx.symbolic_trace gives no tensors; trace with torch.export"):
            torch.fx.symbolic_trace(function)


@needs_operators
def test_profilers_show_the_operators():
    q, k, v = (x.requires_grad_() for x in heads())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        out, _ = tegula.torch.attention(q, k, v, causal=True)
        out.sum().backward()
        torch.func.grad(lambda q: tegula.torch.attention(q, k, v, causal=True)[0].sum())(q)
    names = {event.key for event in profile.key_averages()}
    assert {"tegula::attention", "tegula::attention_backward"} <= names


def vmapped(functions, q, k, v, indices):
    """Entries of a dimension of vmap: in the batch, or as calls of their own."""
    sinks = torch.linspace(-1, 1, 4)
    lengths = torch.tensor([0, 5, 21], dtype=torch.int32)
    tokens = torch.zeros(1, 21, 2, 1, dtype=torch.int32)
    yield lambda q: functions.attention(q, k[0], v[0], causal=True), (q,)
    yield lambda q, v: functions.attention(q, k[0], v, sinks=sinks), (q, v)
    yield lambda q, k: functions.attention(q[0], k[0], v[0, 0], cu_seqlens_q=lengths, cu_seqlens_k=lengths), (q, k)
    yield lambda q, i: functions.block_sparse_attn(q, k[0], v[0], 8, 8, i), (q, indices)
    yield lambda q, k: functions.block_sparse_attn(
        q[0], k[0], v[0, 0], 8, 8, indices[0].expand(2, 2, 3, 2), cu_seqlens_q=lengths, cu_seqlens_k=lengths
    ), (q, k)
    yield lambda q, k: functions.nsa_selected_attention(q, k, v[0], tokens, block_size=8, window=3), (q, k)
    yield lambda q, k: functions.topk_blocks(functions.block_scores(q, k, q_block_size=8, k_block_size=8), 2), (q, k)
    yield lambda q: functions.gemm(q[0, :, 0], k[0, 0, :, 0], transpose_b=True, activation="gelu"), (q,)


@pytest.mark.skipif(not hasattr(torch, "func"), reason="this PyTorch has no torch.func")
@pytest.mark.parametrize("number", range(8))
def test_vmap(number):
    several = [torch.stack([x, 2 * x, -x]) for x in heads()]
    indices = torch.tensor([[0, 2], [1, 2], [0, 1]], dtype=torch.int32).expand(3, 1, 2, 3, 2).contiguous()
    function, inputs = list(vmapped(tegula.torch, *several, indices))[number]
    results = torch.vmap(function)(*inputs)
    one_by_one = [function(*entry) for entry in zip(*inputs)]
    if isinstance(results, torch.Tensor):
        results, one_by_one = (results,), [(x,) for x in one_by_one]
    for result, right in zip(results, zip(*one_by_one)):
        assert result.dtype == right[0].dtype
        torch.testing.assert_close(result, torch.stack(right))


@pytest.mark.skipif(not hasattr(torch, "func"), reason="this PyTorch has no torch.func")
def test_gradients_of_entries():
    several = [torch.stack([x, -x]) for x in heads()]
    chosen = torch.arange(21).reshape(1, 21, 1, 1).expand(1, 21, 2, 1)

    def loss(q, k, v):
        dense, _ = tegula.torch.attention(q, k, v, causal=True)
        sparse, _, near, _ = tegula.torch.nsa_selected_attention(q, k, v, chosen, block_size=1, window=3)
        return (dense * sparse + near).square().sum()

    gradients = torch.vmap(torch.func.grad(loss, (0, 1, 2)))(*several)
    for number in range(2):
        entry = [x[number].clone().requires_grad_() for x in several]
        for actual, right in zip(gradients, torch.autograd.grad(loss(*entry), entry)):
            torch.testing.assert_close(actual[number], right)
