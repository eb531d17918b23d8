"""The module of native-sparse-attention-pytorch against plain PyTorch, written from its definition."""

import pytest
from tables import on_the_interpreter  # noqa: F401

torch = pytest.importorskip("torch")
tegula_torch = pytest.importorskip("tegula.torch")

TOKENS, DIM, HEADS, KV_HEADS, FEATURES = 37, 24, 4, 2, 8


def make(block_size=8, stride=4, count=2, **options):
    torch.manual_seed(0)
    layer = tegula_torch.SparseAttention(
        DIM, FEATURES, HEADS, 5, 6 if stride == 4 else 8, stride, block_size, count, KV_HEADS, **options
    )
    for p in (layer.compress_mem_kv, layer.k_intrablock_positions, layer.v_intrablock_positions):
        torch.nn.init.normal_(p)
    return layer


def attend(q, k, v, sees):
    scores = (q @ k.transpose(-1, -2)) * FEATURES**-0.5
    return scores.masked_fill(~sees, -1e30).softmax(-1) * sees @ v


def rotated(x):
    out = torch.empty_like(x)
    for pair in range(FEATURES // 2):
        angles = torch.arange(x.shape[2]) * 10000.0 ** (-2 * pair / FEATURES)
        a, b = x[..., 2 * pair], x[..., 2 * pair + 1]
        out[..., 2 * pair] = a * angles.cos() - b * angles.sin()
        out[..., 2 * pair + 1] = b * angles.cos() + a * angles.sin()
    return out


def entries_of(layer, x, positions, compress):
    padded = torch.cat((x.new_zeros(*x.shape[:2], layer.length - layer.stride, FEATURES), x), 2)
    windows = [padded[:, :, n * layer.stride :][:, :, : layer.length] for n in range(x.shape[2] // layer.stride)]
    return torch.stack([compress(w + positions) for w in windows], 2)


def plain(layer, inp):
    inp = layer.norm(inp)
    batch, tokens = inp.shape[:2]
    qkv = layer.to_qkv(inp).view(batch, tokens, -1, FEATURES).transpose(1, 2)
    q, k, v = qkv.split([HEADS, KV_HEADS, KV_HEADS], 1)
    ck = entries_of(layer, k, layer.k_intrablock_positions, layer.k_compress)
    cv = entries_of(layer, v, layer.v_intrablock_positions, layer.v_compress)
    group, place = HEADS // KV_HEADS, torch.arange(tokens)
    memory = [x.expand(batch, -1, -1, -1) for x in layer.compress_mem_kv]
    repeat = lambda x: x.repeat_interleave(group, 1)  # noqa: E731
    ends = torch.cat((torch.full((memory[0].shape[2],), -1), (torch.arange(ck.shape[2]) + 1) * layer.stride - 1))
    sees = ends < place[:, None] if layer.causal else torch.ones(tokens, len(ends), dtype=torch.bool)
    coarse = attend(q, repeat(torch.cat((memory[0], ck), 2)), repeat(torch.cat((memory[1], cv), 2)), sees)
    scores = (q @ repeat(ck).transpose(-1, -2)) * FEATURES**-0.5
    scores = scores.masked_fill(~sees[:, memory[0].shape[2] :], -1e30)
    rows = KV_HEADS if layer.shared else HEADS
    scores = scores.view(batch, rows, HEADS // rows, tokens, -1).mean(2)
    size, per = layer.block_size, layer.block_size // layer.stride
    blocks = scores.shape[-1] // per
    scores = torch.stack([scores[..., j * per : (j + 1) * per].mean(-1) for j in range(blocks)], -1)
    if per > 1:
        scores = scores.masked_fill(torch.arange(blocks) == place[:, None] // size, -1e30)
    weights = torch.cat((torch.full_like(scores[..., :1], -1e3), scores), -1).softmax(-1)[..., 1:]
    values, choice = weights.topk(min(layer.count, blocks), -1)
    named = torch.zeros(batch, rows, tokens, tokens // size + 1, dtype=torch.bool)
    named.scatter_(-1, choice, values > 1e-10)
    fine_sees = named.repeat_interleave(size, -1)[..., :tokens].repeat_interleave(HEADS // rows, 1)
    own = place // size == place[:, None] // size
    if layer.causal:
        fine_sees = fine_sees | own & (place <= place[:, None])
    elif not choice.shape[-1]:
        fine_sees = own
    turned = rotated(q), repeat(rotated(k)), repeat(v)
    near = (place - place[:, None]).abs() <= layer.window
    near = near & (place <= place[:, None]) if layer.causal else near
    branches = torch.stack((coarse, attend(*turned, fine_sees), attend(*turned, near)), -1)
    gates = layer.to_strategy_combine(inp).sigmoid().view(batch, tokens, HEADS, 3).transpose(1, 2)
    return layer.combine_heads((branches * gates[:, :, :, None]).sum(-1).transpose(1, 2).flatten(2))


CASES = [
    {"causal": True},
    {"causal": True, "stride": 8, "norm": False, "use_triton_kernel": True},
    {"causal": True, "query_heads_share_selected_kv": False, "num_compressed_mem_kv": 3},
    {"causal": False},
    {"causal": False, "count": 0},
    {"causal": True, "count": 0, "use_diff_topk": True},
]


@pytest.mark.parametrize("options", CASES, ids=str)
def test_is_its_definition_with_gradients(options):
    layer = make(**options)
    x = torch.randn(2, TOKENS, DIM, requires_grad=True)
    torch.nn.init.normal_(layer.to_strategy_combine[0].weight, std=0.3)
    out, exact = layer(x), plain(layer, x)
    torch.testing.assert_close(out, exact, rtol=1e-4, atol=1e-5)
    weights, tensors = torch.randn(out.shape), [x, *(p for p in layer.parameters() if p.requires_grad)]
    got, wanted = (torch.autograd.grad((y * weights).sum(), tensors) for y in (out, exact))
    for a, b in zip(got, wanted):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_has_the_state_of_the_package():
    learned = [f"{x}_compress.{n}.{kind}" for x in "kv" for n in (1, 3) for kind in ("weight", "bias")]
    assert list(make().state_dict()) == [
        "compress_mem_kv", "k_intrablock_positions", "v_intrablock_positions", "norm.weight", "rotary_emb.freqs",
        "to_qkv.weight", *learned, "to_strategy_combine.0.weight", "to_strategy_combine.0.bias", "combine_heads.weight",
    ]  # fmt: skip


def test_tokens_one_by_one_are_the_whole_sequence():
    layer = make(causal=True)
    x = torch.randn(1, TOKENS, DIM)
    with torch.no_grad():
        out, cache = layer(x[:, :18], return_cache=True)
        steps = [out]
        for token in x[:, 18:].split(1, 1):
            out, cache = layer(token, cache, return_cache=True)
            steps.append(out)
        torch.testing.assert_close(torch.cat(steps, 1), layer(x), rtol=1e-4, atol=1e-5)


def test_chosen_blocks_train_the_selection():
    x = torch.randn(1, TOKENS, DIM, generator=torch.Generator().manual_seed(4))
    gradients = []
    for straight_through in (False, True):
        layer = make(causal=True, use_diff_topk=straight_through)
        out = layer(x)
        gradients.append((out, torch.autograd.grad(out.square().sum(), layer.to_qkv.weight)[0]))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    assert not torch.allclose(gradients[0][1], gradients[1][1])


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="selection_block_size"):
        make(block_size=6)
    with pytest.raises(ValueError, match="causal"):
        make(causal=False)(torch.randn(1, 8, DIM), cache=((None, None), (None, None)))
