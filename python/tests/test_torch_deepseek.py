"""The layer of DeepSeek sparse attention learns which tokens matter, and decodes what it computes at once."""

import pytest

torch = pytest.importorskip("torch")
layer = pytest.importorskip("tegula.torch").DeepseekSparseAttention

SMALL = {"latent": 16, "rope": 4, "nope": 8, "value": 8, "index_heads": 4, "index_dim": 16, "top_k": 6}


def small(**options):
    torch.manual_seed(0)
    return layer(12, 3, **{**SMALL, **options})


def test_decode_gives_what_all_tokens_at_once_do():
    model, x = small(), torch.randn(2, 11, 12)
    whole, _, _ = model(x)
    cache, steps = None, []
    for token in x.split([5, 1, 3, 1, 1], 1):
        step, cache, _ = model(token, cache)
        steps.append(step)
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=1e-5)


def test_all_tokens_chosen_are_dense_attention():
    x = torch.randn(1, 9, 12)
    sparse, dense = small(top_k=9), small(dense=True)
    torch.testing.assert_close(sparse(x)[0], dense(x)[0], atol=1e-5, rtol=1e-5)


def test_sparse_follows_dense_once_the_indexer_has_learnt():
    model = small(dense=True)
    # Attention that is sharp enough for some tokens to matter more than others.
    with torch.no_grad():
        model.query.weight.mul_(6)
    indexer = [p for name, p in model.named_parameters() if name.startswith("index")]
    optimizer = torch.optim.Adam(indexer, lr=1e-2)
    x = torch.randn(2, 24, 12)

    def error_of_sparse():
        with torch.no_grad():
            model.dense = True
            wanted = model(x)[0]
            model.dense = False
            error = (model(x)[0] - wanted).norm() / wanted.norm()
            model.dense = True
        return error.item()

    before, losses = error_of_sparse(), []
    for _ in range(60):
        optimizer.zero_grad()
        loss = model(x, with_index_loss=True)[2]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    assert error_of_sparse() < 0.7 * before


def test_all_parameters_have_gradients():
    model, x = small(), torch.randn(2, 10, 12, requires_grad=True)
    out, _, loss = model(x, with_index_loss=True)
    (out.square().mean() + loss).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
    assert x.grad is not None


def test_two_levels_choose_among_the_keys_of_chosen_blocks():
    tegula_torch = pytest.importorskip("tegula.torch")
    generator = torch.Generator().manual_seed(3)
    q, k, weights = (torch.randn(shape, generator=generator) for shape in [(2, 9, 4, 16), (2, 50, 16), (2, 9, 4)])
    means = torch.stack([rows.mean(1) for rows in k.split(8, 1)], 1)
    given = {"block_size": 8, "causal": True}
    choose = tegula_torch.indexer_topk_of_blocks
    # All blocks are chosen: the keys are those of one level.
    whole = tegula_torch.indexer_topk(q, k, weights, 12, causal=True)
    assert torch.equal(choose(q, k, weights, means, 12, block_count=7, **given), whole)
    blocks = tegula_torch.topk_select(
        tegula_torch.indexer_logits(q, means, weights),
        2,
        ends=torch.arange(42, 51, dtype=torch.int32).add(7).div(8, rounding_mode="floor").expand(2, 9),
    )
    chosen = choose(q, k, weights, means, 12, block_count=2, **given)
    in_blocks = (chosen[..., None] // 8 == blocks[..., None, :]).any(-1) | (chosen < 0)
    assert bool(in_blocks.all()) and bool((chosen >= 0).any(-1).all())
    with pytest.raises(ValueError, match="a key for every 16 of 50 keys"):
        choose(q, k, weights, means, 12, block_size=16)


def test_products_and_logits_of_inference_follow_their_formulas():
    """What DeepSeek-V3.2 runs beside attention: activations by 128 with one scale each, products of 8 bits, logits."""
    tt = pytest.importorskip("tegula.torch")
    generator = torch.Generator().manual_seed(5)
    x, w = (torch.randn(shape, generator=generator) for shape in [(9, 256), (200, 256)])
    for power_of_two in (False, True):
        (a, scale_a), (b, scale_b) = tt.cast_fp8(x, power_of_two=power_of_two), tt.cast_fp8(w, scaling="block")
        largest = x.unflatten(1, (-1, 128)).abs().amax(-1) / 448
        expected = torch.exp2(largest.log2().ceil()) if power_of_two else largest
        torch.testing.assert_close(scale_a, expected, atol=0, rtol=1e-6)
        wide_a = a.float() * scale_a.repeat_interleave(128, 1)
        wide_b = b.float() * scale_b.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)
        torch.testing.assert_close(wide_a, x, atol=0.04 * x.abs().max().item(), rtol=0.07)
        product = tt.scaled_gemm(a, b, scale_a, scale_b, out_dtype=torch.float32)
        torch.testing.assert_close(product, wide_a @ wide_b.T, atol=1e-2, rtol=1e-3)
    q, k = (torch.randn(shape, generator=generator).to(torch.float8_e4m3fn) for shape in [(2, 3, 8, 32), (2, 50, 32)])
    q_scales, k_scales = (torch.rand(shape, generator=generator) + 0.5 for shape in [(2, 3, 8), (2, 50)])
    products = torch.einsum("bmhd,bnd->bmnh", q.float(), k.float()).relu()
    logits = (products * q_scales[:, :, None]).sum(-1) * k_scales[:, None]
    torch.testing.assert_close(tt.indexer_logits(q, k, q_scales, k_scales=k_scales), logits, atol=1e-3, rtol=1e-3)


def test_pages_of_records_are_decoded_by_the_keys_that_the_indexer_chooses():
    tt = pytest.importorskip("tegula.torch")
    generator = torch.Generator().manual_seed(6)
    draw = lambda *shape: torch.randn(shape, generator=generator)
    table = torch.tensor([[4, 1, 3], [0, 5, -1]], dtype=torch.int32)
    lengths, page = torch.tensor([21, 11], dtype=torch.int32), 8
    values, scales, ropes = draw(6, page, 32).to(torch.float8_e4m3fn), draw(6, page, 2).abs() + 0.5, draw(6, page, 8)
    index_keys, index_q, weights = draw(6, page, 16), draw(2, 2, 4, 16), draw(2, 2, 4)
    q, count = draw(2, 2, 3, 40), 5
    logits = tt.paged_indexer_logits(index_q, index_keys, weights, block_table=table, cache_seqlens=lengths)
    chosen = tt.topk_select(logits, count, page_table=table, page_size=page)
    out, lse = tt.sparse_mla_decode(q.flatten(0, 1), values, scales, chosen.flatten(0, 1), ropes=ropes)
    rows = torch.cat([values.float() * scales.repeat_interleave(16, -1), ropes], -1)
    for b, i in ((0, 0), (0, 1), (1, 0), (1, 1)):
        seen = int(lengths[b]) - 1 + i
        place = torch.tensor([int(table[b, t // page]) * page + t % page for t in range(seen)])
        own = (index_q[b, i] @ index_keys.flatten(0, 1)[place].T).relu()
        best = (weights[b, i] @ own).topk(count)[1].sort()[0]
        assert torch.equal(chosen[b, i].long(), place[best])
        keys = rows.flatten(0, 1)[place[best]]
        scores = q[b, i] @ keys.T * 40**-0.5
        torch.testing.assert_close(out.view(2, 2, 3, 32)[b, i], scores.softmax(-1) @ keys[:, :32], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(lse.view(2, 2, 3)[b, i], scores.logsumexp(-1), atol=1e-4, rtol=1e-4)


class Recall(torch.nn.Module):
    """A tiny model: tokens, one layer of sparse attention, logits."""

    def __init__(self, tokens=8, dim=16):
        super().__init__()
        self.embed = torch.nn.Embedding(2 * tokens, dim)
        self.attend = layer(dim, 2, **{**SMALL, "top_k": 4})
        self.norm, self.head = torch.nn.LayerNorm(dim), torch.nn.Linear(dim, tokens)

    def forward(self, x, cache=None, **options):
        x = self.embed(x)
        out, cache, loss = self.attend(x, cache, **options)
        return self.head(self.norm(x + out)), cache, loss


def recalled(generator, batch=16, tokens=20):
    """Tokens of which one of the first ten is marked, and what is to be recalled at the last ten: that one."""
    x = torch.randint(8, (batch, tokens), generator=generator)
    at = torch.randint(10, (batch, 1), generator=generator)
    wanted = x.gather(1, at).expand(-1, 10)
    return x.scatter_add(1, at, torch.full_like(at, 8)), wanted


def test_a_model_is_trained_until_sparse_follows_dense_and_decodes_what_it_computes_at_once():
    torch.manual_seed(1)
    model, generator = Recall(), torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loss_of = lambda logits, wanted: torch.nn.functional.cross_entropy(logits[:, 10:].flatten(0, 1), wanted.flatten())
    for step in range(200):  # the indexer learns beside dense attention before it chooses
        model.attend.dense = step < 150
        x, wanted = recalled(generator)
        logits, _, index_loss = model(x, with_index_loss=True)
        optimizer.zero_grad()
        (loss_of(logits, wanted) + index_loss).backward()
        optimizer.step()
    x, wanted = recalled(generator, batch=64)
    with torch.no_grad():
        sparse = model(x)[0]
        cache, steps = None, []
        for tokens in x.split([7, 1, 1, 4, 1, 6], 1):
            logits, cache, _ = model(tokens, cache)
            steps.append(logits)
        model.attend.dense = True
        dense = model(x)[0]
    assert loss_of(dense, wanted) < 0.05 and loss_of(sparse, wanted) < 0.05
    assert (sparse - dense)[:, 10:].norm() < 0.25 * dense[:, 10:].norm()
    torch.testing.assert_close(torch.cat(steps, 1), sparse, atol=1e-4, rtol=1e-4)
