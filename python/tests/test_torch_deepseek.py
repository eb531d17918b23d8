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
