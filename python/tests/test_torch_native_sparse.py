"""Native sparse attention whole against plain PyTorch, written from its definition."""

import pytest
from tables import on_the_interpreter  # noqa: F401

torch = pytest.importorskip("torch")
tegula_torch = pytest.importorskip("tegula.torch")

SIZES = {"length": 8, "stride": 4, "block_size": 8, "count": 4, "window": 12}


def attend(q, k, v, sees):
    """q [tokens, heads, d], k and v [keys, heads, d]; sees [tokens, (heads,) keys]. Rows without keys are 0."""
    scores = torch.einsum("ihd,jhd->ihj", q, k) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~(sees if sees.dim() == 3 else sees[:, None]), -torch.inf).softmax(-1).nan_to_num(0)
    return torch.einsum("ihj,jhd->ihd", weights, v), weights


def blocks_of(weights, group, first_blocks=1, local_blocks=2):
    """bool [tokens, kv_heads, blocks]: the blocks of every token, by the weights [tokens, heads, entries]."""
    tokens, size = weights.shape[0], SIZES["block_size"]
    blocks = -(-tokens // size)
    grouped = weights.unflatten(1, (-1, group)).sum(2)
    chosen = torch.zeros(tokens, grouped.shape[1], blocks, dtype=torch.bool)
    for i in range(tokens):
        own = i // size
        for h in range(grouped.shape[1]):
            matters = []
            for j in range(own + 1):
                entries = [
                    n
                    for n in range(grouped.shape[2])
                    if n * SIZES["stride"] < (j + 1) * size and n * SIZES["stride"] + SIZES["length"] > j * size
                ]
                forced = j < first_blocks or j > own - local_blocks
                matters.append((not forced, -float(grouped[i, h, entries].sum()), j))
            for _, _, j in sorted(matters)[: SIZES["count"]]:
                chosen[i, h, j] = True
    return chosen


def native(q, k, v, gates):
    """Of one sequence: q [tokens, heads, d], k and v [tokens, kv_heads, d], gates [tokens, heads, 3]."""
    tokens, group = q.shape[0], q.shape[1] // k.shape[1]
    of_heads = [x.repeat_interleave(group, 1) for x in (k, v)]
    place = torch.arange(tokens)
    count = max((tokens - SIZES["length"]) // SIZES["stride"] + 1, 0)
    means = [
        torch.stack([x[n * SIZES["stride"] :][: SIZES["length"]].mean(0) for n in range(count)])
        if count
        else x[:0]
        for x in of_heads
    ]
    ends = torch.arange(count) * SIZES["stride"] + SIZES["length"]
    coarse, weights = attend(q, *means, ends[None] <= place[:, None] + 1)
    causal = place[None] <= place[:, None]
    chosen = blocks_of(weights.detach(), group).repeat_interleave(SIZES["block_size"], 2)[..., :tokens]
    fine, _ = attend(q, *of_heads, chosen.repeat_interleave(group, 1) & causal[:, None])
    near, _ = attend(q, *of_heads, causal & (place[None] > place[:, None] - SIZES["window"]))
    branches = torch.stack((coarse, fine, near), -1)
    return (branches * gates.sigmoid()[:, :, None]).sum(-1)


def inputs(tokens, heads=4, kv_heads=2, dim=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(tokens, heads, dim), (tokens, kv_heads, dim), (tokens, kv_heads, dim), (tokens, heads, 3)]
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def gradients(out, tensors):
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9))
    return torch.autograd.grad((out * weights).sum(), tensors)


@pytest.mark.parametrize("tokens", [5, 40])
def test_is_its_definition_with_gradients(tokens):
    tensors = inputs(tokens)
    exact = native(*tensors)
    out = tegula_torch.native_sparse_attention(*(x[None] for x in tensors), **SIZES)[0]
    torch.testing.assert_close(out, exact, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(gradients(out, tensors), gradients(exact, tensors)):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def test_gradients_of_the_gated_sum_need_its_branches():
    q, k = torch.randn(1, 4, 2, 8, requires_grad=True), torch.randn(1, 4, 1, 8)
    choice = torch.zeros(1, 4, 1, 1, dtype=torch.int32)
    tensors = q, k, k, choice, torch.randn(1, 4, 2, 8), torch.randn(1, 4, 2, 2)
    out = tegula_torch.nsa_gated_attention(*tensors, block_size=2)[0]
    with pytest.raises(RuntimeError, match="needs the result selected, which a call has if keep_branches"):
        out.sum().backward()
    kept = tegula_torch.nsa_gated_attention(*tensors, block_size=2, keep_branches=True)
    one = torch.autograd.grad(kept.out.sum() + kept.selected.sum(), q)[0]
    fine = tegula_torch.nsa_selected_attention(*tensors[:4], block_size=2).out
    both = tegula_torch.nsa_combine(tensors[4], fine, tensors[5]).sum() + fine.sum()
    torch.testing.assert_close(one, torch.autograd.grad(both, q)[0], rtol=1e-4, atol=1e-5)


def test_heads_before_tokens():
    tensors = inputs(20)
    out = tegula_torch.native_sparse_attention(*(x[None].transpose(1, 2) for x in tensors), layout="bhsd", **SIZES)
    torch.testing.assert_close(out[0].transpose(0, 1), native(*tensors), rtol=1e-4, atol=1e-5)


def test_packed_sequences_do_not_meet():
    lengths = [36, 3, 0, 14]
    ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
    tensors = inputs(sum(lengths))
    exact = torch.cat([native(*(x[a:b] for x in tensors)) for a, b in zip(ends, ends[1:]) if a < b])
    out = tegula_torch.native_sparse_attention(*tensors, cu_seqlens=ends, **SIZES)
    torch.testing.assert_close(out, exact, rtol=1e-4, atol=1e-5)
    for got, wanted in zip(gradients(out, tensors), gradients(exact, tensors)):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("compression", ["mean", "gated", "mlp"])
def test_tokens_one_by_one_are_the_whole_sequence(compression):
    torch.manual_seed(1)
    layer = tegula_torch.NativeSparseAttention(32, 4, 2, compression=compression, **SIZES)
    x = torch.randn(1, 40, 32)
    with torch.no_grad():
        whole = layer(x)
        cache = tegula_torch.NativeSparseCache()
        steps = [layer(rows, cache) for rows in (x[:, :21], *x[:, 21:24].split(1, 1), x[:, 24:])]
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)


def test_wrong_tokens_of_a_layer():
    layer = tegula_torch.NativeSparseAttention(32, 4, 2, **SIZES)
    ends = torch.tensor([0, 5], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"x: expected \[batch, tokens, 32\], given \[2, 5, 31\]"):
        layer(torch.randn(2, 5, 31))
    with pytest.raises(ValueError, match=r"x: expected \[tokens, 32\], given \[1, 5, 32\]"):
        layer(torch.randn(1, 5, 32), cu_seqlens=ends)
    cache = tegula_torch.NativeSparseCache()
    with torch.no_grad(), pytest.raises(ValueError, match="x: expected a batch of 2, as the cache has, given 1"):
        layer(torch.randn(2, 3, 32), cache)
        layer(torch.randn(1, 1, 32), cache)


@pytest.mark.parametrize("compression", ["gated", "mlp"])
def test_every_parameter_learns(compression):
    torch.manual_seed(2)
    layer = tegula_torch.NativeSparseAttention(32, 4, 2, compression=compression, **SIZES)
    layer(torch.randn(1, 30, 32)).square().sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in layer.parameters())


def test_an_mlp_over_each_window():
    torch.manual_seed(4)
    layer = tegula_torch.NativeSparseAttention(32, 4, 2, compression="mlp", **SIZES)
    compression, x = layer.compression[0], torch.randn(1, 21, 2, 8)
    torch.nn.init.normal_(compression.places)
    entries = compression(x)
    assert entries.shape[1] == 4
    for n in range(4):
        for h in range(2):
            row = (x[0, 4 * n : 4 * n + 8, h] + compression.places).reshape(-1)
            hidden = compression.inner.weight @ row + compression.inner.bias
            wanted = compression.outer.weight @ (hidden * hidden.sigmoid()) + compression.outer.bias
            torch.testing.assert_close(entries[0, n, h], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compression", ["mean", "gated", "mlp"])
def test_a_module_of_packed_sequences(compression):
    torch.manual_seed(3)
    layer = tegula_torch.NativeSparseAttention(32, 4, 2, compression=compression, **SIZES)
    for compression in layer.compression:
        torch.nn.init.normal_(compression.places)
    lengths = [15, 3, 0, 14]
    x, ends = torch.randn(sum(lengths), 32), torch.tensor([0, *lengths]).cumsum(0).int()
    alone = torch.cat([layer(rows[None]) for rows in x.split(lengths) if len(rows)], 1)[0]
    torch.testing.assert_close(layer(x, cu_seqlens=ends), alone, rtol=1e-4, atol=1e-5)
    weights, parameters = torch.randn(alone.shape), list(layer.parameters())
    together, apart = (
        torch.autograd.grad((out * weights).sum(), parameters) for out in (layer(x, cu_seqlens=ends), alone)
    )
    for got, wanted in zip(together, apart):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("heads, kv_heads", [(4, 2), (3, 3)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_with_gradients(dtype, heads, kv_heads):
    exact_of = [x.detach().to(dtype).double().requires_grad_() for x in inputs(40, heads, kv_heads, 16)]
    tensors = [x.detach().to(dtype).requires_grad_() for x in exact_of]
    exact = native(*exact_of)
    out = tegula_torch.native_sparse_attention(*(x[None] for x in tensors), **SIZES)[0]
    unit = 2 ** (-8 if dtype == torch.bfloat16 else -11)
    for got, wanted in zip([out, *gradients(out, tensors)], [exact, *gradients(exact, exact_of)]):
        error = (got.double() - wanted).norm() / wanted.norm()
        assert float(error.detach()) < 8 * unit


def test_is_traced_as_a_whole():
    call = torch.compile(tegula_torch.native_sparse_attention, fullgraph=True, backend="eager")
    with torch.no_grad():
        for tokens in (1, 9):  # by one operator, and by all of them
            tensors = [x[None, -tokens:] if i in (0, 3) else x[None] for i, x in enumerate(inputs(20))]
            exact = tegula_torch.native_sparse_attention(*tensors, **SIZES)
            torch.testing.assert_close(call(*tensors, **SIZES), exact)
