"""Recurrent layers and the functions of other libraries against plain recurrences, token by token."""

import pytest
from tables import on_the_interpreter  # noqa: F401

torch = pytest.importorskip("torch")
tegula_torch = pytest.importorskip("tegula.torch")


def layers():
    torch.manual_seed(0)
    return {
        "linear": tegula_torch.LinearAttention(16, 2, 1),
        "lightning": tegula_torch.LinearAttention(
            16, 2, normalize=False, decays=tegula_torch.lightning_decays(2, 0, 2)
        ),
        "retention": tegula_torch.Retention(16, 2),
        "mamba": tegula_torch.Mamba2(16, head_dim=8, state=8),
        "delta": tegula_torch.GatedDeltaNet(16, 1, 2, dim=8),
    }


@pytest.fixture(params=["linear", "lightning", "retention", "mamba", "delta"])
def layer(request):
    return layers()[request.param]


def test_tokens_one_by_one_are_the_whole_sequence(layer):
    x = torch.randn(2, 23, 16)
    with torch.no_grad():
        whole = layer(x)
        cache = tegula_torch.RecurrentCache()
        steps = [layer(rows, cache) for rows in (x[:, :11], *x[:, 11:13].split(1, 1), x[:, 13:])]
    assert cache.tokens == 23
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)


def test_packed_sequences_do_not_meet(layer):
    x, ends = torch.randn(21, 16), torch.tensor([0, 12, 21], dtype=torch.int32)
    alone = torch.cat([layer(x[None, :12]), layer(x[None, 12:])], 1)[0]
    torch.testing.assert_close(layer(x, cu_seqlens=ends), alone, rtol=1e-4, atol=1e-5)


def test_every_parameter_learns(layer):
    layer(torch.randn(1, 12, 16)).square().sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in layer.parameters())


def test_computes_in_bf16(layer):
    x = torch.randn(1, 12, 16)
    with torch.no_grad():
        exact = layer(x)
        with torch.autocast("cpu", torch.bfloat16):
            torch.testing.assert_close(layer(x).float(), exact, rtol=0.1, atol=0.1)
        torch.testing.assert_close(layer.bfloat16()(x.bfloat16()).float(), exact, rtol=0.1, atol=0.1)


def recurrence(q, k, v, decay=None, beta=None, state=None, scale=None):
    """Of tensors [batch, tokens, heads, d]: (out, the last state); decay and beta [batch, tokens, heads]."""
    repeat = v.shape[2] // q.shape[2]
    q, k = (x.repeat_interleave(repeat, 2) for x in (q, k))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    state = q.new_zeros(q.shape[0], q.shape[2], q.shape[-1], v.shape[-1]) if state is None else state
    outs = []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * decay[:, t, :, None, None]
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - torch.einsum("bhdv,bhd->bhv", state, k[:, t]))
        state = state + k[:, t, :, :, None] * new[:, :, None]
        outs.append(scale * torch.einsum("bhdv,bhd->bhv", state, q[:, t]))
    return torch.stack(outs, 1), state


def assert_alike(got, wanted, inputs):
    """Results and gradients of the inputs, for both results of a call."""
    weights = [torch.randn(x.shape, generator=torch.Generator().manual_seed(9)) for x in wanted]
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    sums = [sum((x * w).sum() for x, w in zip(xs, weights)) for xs in (got, wanted)]
    slopes = [torch.autograd.grad(total, inputs, retain_graph=True) for total in sums]
    for a, b in zip(*slopes):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def of_heads(tokens=19, heads=2, key_heads=2, d=8, d_v=4, batch=2):
    torch.manual_seed(1)
    q, k = (torch.randn(batch, tokens, key_heads, d) * 0.5 for _ in range(2))
    v, state = torch.randn(batch, tokens, heads, d_v), torch.randn(batch, heads, d, d_v)
    return [x.requires_grad_() for x in (q, k, v, state)]


def test_chunk_gated_delta_rule():
    q, k, v, state = of_heads(key_heads=1)
    g = (-torch.rand(2, 19, 2) * 0.3).requires_grad_()
    beta = torch.rand(2, 19, 2, requires_grad=True)
    got = tegula_torch.chunk_gated_delta_rule(
        q, k, v, g, beta, initial_state=state, output_final_state=True, use_qk_l2norm_in_kernel=True
    )
    q1, k1 = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    assert_alike(got, recurrence(q1, k1, v, g.exp(), beta, state), [q, k, v, g, beta, state])


def test_chunk_gated_delta_rule_of_packed_sequences():
    q, k, v, _ = (x.detach() for x in of_heads(batch=1))
    beta, g, ends = torch.rand(1, 19, 2), torch.zeros(1, 19, 2), torch.tensor([0, 7, 19])
    out, states = tegula_torch.chunk_gated_delta_rule(
        q * 0.3, k * 0.3, v, g, beta, scale=1.0, output_final_state=True, cu_seqlens=ends
    )
    for n, (a, b) in enumerate(((0, 7), (7, 19))):
        own, state = recurrence(
            *(x[:, a:b] for x in (q * 0.3, k * 0.3, v)), beta=beta[:, a:b], decay=torch.ones(1, b - a, 2), scale=1.0
        )
        torch.testing.assert_close(out[:, a:b], own, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(states[n], state[0], rtol=1e-4, atol=1e-4)


def test_chunk_gated_delta_rule_of_raw_gates_and_shares():
    q, k, v, _ = of_heads()
    state = torch.randn(2, 2, 4, 8, requires_grad=True)
    raw, logits, rates, bias = (torch.randn(*s, requires_grad=True) for s in ((2, 19, 2), (2, 19, 2), (2,), (2,)))
    out, last = tegula_torch.chunk_gated_delta_rule(
        q * 0.3, k * 0.3, v, raw, logits, initial_state=state, output_final_state=True, use_beta_sigmoid_in_kernel=True,
        allow_neg_eigval=True, state_v_first=True, use_gate_in_kernel=True, A_log=rates, dt_bias=bias, chunk_size=32,
    )  # fmt: skip
    decay = (-rates.exp() * torch.nn.functional.softplus(raw + bias)).exp()
    wanted, end = recurrence(q * 0.3, k * 0.3, v, decay, 2 * logits.sigmoid(), state.mT)
    assert_alike((out, last), (wanted, end.mT), [q, k, v, raw, logits, rates, bias, state])


def test_fused_chunk_linear_attn_goes_on_from_sums():
    q, k, v, _ = (x.detach() for x in of_heads())
    q, k = q.exp(), k.exp()
    whole, (state, sums) = tegula_torch.fused_chunk_linear_attn(
        q, k, v, initial_state=(torch.zeros(2, 2, 8, 4), torch.zeros(2, 1, 2, 8)), output_final_state=True
    )
    torch.testing.assert_close(sums, k.sum(1, keepdim=True))
    _, first = tegula_torch.fused_chunk_linear_attn(
        q[:, :7], k[:, :7], v[:, :7], initial_state=(torch.zeros(2, 2, 8, 4), torch.zeros(2, 1, 2, 8)),
        output_final_state=True,
    )  # fmt: skip
    rest, last = tegula_torch.fused_chunk_linear_attn(
        q[:, 7:], k[:, 7:], v[:, 7:], initial_state=first, output_final_state=True
    )
    torch.testing.assert_close(rest, whole[:, 7:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last[0], state, rtol=1e-4, atol=1e-4)
    packed, _ = tegula_torch.fused_chunk_linear_attn(
        *(x.flatten(0, 1)[None] for x in (q, k, v)), cu_seqlens=torch.tensor([0, 19, 38])
    )
    torch.testing.assert_close(packed[0].unflatten(0, (2, 19)), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("normalize", [False, True])
def test_fused_chunk_linear_attn(normalize):
    q, k, v, state = of_heads()
    weights = [x.exp() for x in (q, k)]
    got = tegula_torch.fused_chunk_linear_attn(
        *weights, v, initial_state=state, output_final_state=True, normalize=normalize
    )
    out, last = recurrence(*weights, v, state=state)
    if normalize:
        sums = (weights[0] * 8**-0.5 * weights[1].cumsum(1)).sum(-1, keepdim=True)
        out = out / (sums + 1e-10)
    assert_alike(got, (out, last), [q, k, v, state])


def test_chunk_retention():
    q, k, v, state = of_heads()
    got = tegula_torch.chunk_retention(q, k, v, initial_state=state, output_final_state=True)
    decay = (1 - 2.0 ** (-5 - torch.arange(2.0))).expand(2, 19, 2)
    assert_alike(got, recurrence(q, k, v, decay, state=state), [q, k, v, state])


@pytest.mark.parametrize("learns", [False, True])
def test_decays_of_heads_may_learn_or_be_constants(learns):
    q, k, v, _ = of_heads()
    decays = torch.tensor([-0.02, -0.3], requires_grad=learns)
    got = tegula_torch.linear_attention(q, k, v, g_gamma=decays).out
    wanted, _ = recurrence(q, k, v, decays.exp().expand(2, 19, 2))
    assert_alike([got], [wanted], [q, k, v, decays] if learns else [q, k, v])


def mamba(x, dt, a, b, c, d, z, bias, state, limit=(0.0, float("inf"))):
    """[batch, tokens, heads, p]: (out, the last state), by linear attention with keys b, values dt x and queries c."""
    dt = torch.nn.functional.softplus(dt + bias).clamp(*limit)
    decay = (dt * a).exp()
    out, last = recurrence(c, b, x * dt[..., None], decay, state=state.transpose(-1, -2), scale=1.0)
    return (out + d.reshape(x.shape[2], -1) * x) * torch.nn.functional.silu(z), last.transpose(-1, -2)


@pytest.mark.parametrize("wide", [False, True], ids=["heads", "features"])
def test_mamba_chunk_scan_combined(wide):
    torch.manual_seed(2)
    x, z, dt = torch.randn(2, 19, 2, 4), torch.randn(2, 19, 2, 4), torch.randn(2, 19, 2)
    b, c, state = torch.randn(2, 19, 1, 8), torch.randn(2, 19, 1, 8), torch.randn(2, 2, 4, 8)
    a, d, bias = -torch.rand(2), torch.randn((2, 4) if wide else 2), torch.randn(2)
    inputs = [t.requires_grad_() for t in (x, dt, a, b, c, d, z, bias, state)]
    limit = (0.1, 0.9) if wide else (0.0, float("inf"))
    got = tegula_torch.mamba_chunk_scan_combined(
        x, dt, a, b, c, 16, D=d, z=z, dt_bias=bias, initial_states=state, dt_softplus=True, dt_limit=limit,
        return_final_states=True,
    )  # fmt: skip
    assert_alike(got, mamba(x, dt, a, b, c, d, z, bias, state, limit), inputs)


def test_mamba_chunk_scan_combined_of_several_sequences():
    torch.manual_seed(3)
    x, dt, b, c = torch.randn(2, 19, 2, 4), torch.rand(2, 19, 2), torch.randn(2, 19, 1, 8), torch.randn(2, 19, 1, 8)
    a, which = -torch.rand(2), (torch.arange(19) >= 7).int().repeat(2, 1)
    out, last = tegula_torch.mamba_chunk_scan_combined(
        x, dt, a, b, c, 16, seq_idx=which, return_final_states=True
    )
    steps = [
        recurrence(c[:, i:j], b[:, i:j], (x * dt[..., None])[:, i:j], (dt * a).exp()[:, i:j], scale=1.0)
        for i, j in ((0, 7), (7, 19))
    ]
    torch.testing.assert_close(out, torch.cat([own for own, _ in steps], 1), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(last, steps[1][1].transpose(-1, -2), rtol=1e-4, atol=1e-4)


def test_refusals():
    q, k, v, state = of_heads()
    with pytest.raises(ValueError, match="head_first"):
        tegula_torch.chunk_retention(q, k, v, head_first=True)
    g, beta = torch.zeros(2, 19, 2), torch.rand(2, 19, 2)
    for name, value in (("cp_context", object()), ("chunk_size", 0), ("unknown", 1)):
        with pytest.raises(ValueError, match=f"{name}: expected"):
            tegula_torch.chunk_gated_delta_rule(q, k, v, g, beta, **{name: value})
        with pytest.raises(ValueError, match=f"{name}: expected"):
            tegula_torch.chunk_retention(q, k, v, **{name: value})
    with pytest.raises(ValueError, match="A_log: expected"):
        tegula_torch.chunk_gated_delta_rule(q, k, v, g, beta, use_gate_in_kernel=True)
    with pytest.raises(ValueError, match="allow_neg_eigval: expected"):
        tegula_torch.chunk_gated_delta_rule(q, k, v, g, beta, allow_neg_eigval=True)
    with pytest.raises(ValueError, match="chunk_size: expected at least 1, given 0"):
        tegula_torch.mamba_chunk_scan_combined(
            torch.randn(1, 4, 2, 4), torch.rand(1, 4, 2), -torch.rand(2), torch.randn(1, 4, 1, 8),
            torch.randn(1, 4, 1, 8), 0,
        )  # fmt: skip
    with pytest.raises(ValueError, match="head_dim: expected a divisor of expand"):
        tegula_torch.Mamba2(24, head_dim=64)
    with pytest.raises(ValueError, match="layer: expected 0 to 1, given 2"):
        tegula_torch.lightning_decays(2, 2, 2)
    with pytest.raises(ValueError, match="initial_states"):
        tegula_torch.mamba_chunk_scan_combined(
            torch.randn(1, 4, 2, 4), torch.rand(1, 4, 2), -torch.rand(2), torch.randn(1, 4, 1, 8),
            torch.randn(1, 4, 1, 8), 16, seq_idx=torch.zeros(1, 4), initial_states=torch.zeros(1, 2, 4, 8),
        )  # fmt: skip
