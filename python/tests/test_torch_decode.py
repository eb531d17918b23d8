"""Decoding with caches: what is written in place, and the functions with the signatures of other libraries."""

import pytest

torch = pytest.importorskip("torch")
tegula = pytest.importorskip("tegula.torch")
from tables import on_the_interpreter  # noqa: E402,F401
from torch_references import plain_attention  # noqa: E402

LENGTHS = torch.tensor([7, 3], dtype=torch.int32)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rotated(x, cosine, sine, positions, interleaved):
    """The first features of [batch, tokens, heads, d] turned by the angles of positions [batch, tokens]."""
    half = cosine.shape[1]
    c, s = (t[positions.long()].unsqueeze(2) for t in (cosine, sine))
    first, behind = x[..., : 2 * half], x[..., 2 * half :]
    a, b = (first[..., 0::2], first[..., 1::2]) if interleaved else (first[..., :half], first[..., half:])
    turned = [a * c - b * s, b * c + a * s]
    first = torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
    return torch.cat([first, behind], -1)


def attention_to_rows(q, k, v, lengths, causal=False, left=-1, **options):
    """Against the first keys of each row, where the last query stands at the last key."""
    key = torch.arange(k.shape[1])
    position = lengths[:, None] - q.shape[1] + torch.arange(q.shape[1])
    mask = (key < lengths[:, None, None]).expand(-1, q.shape[1], -1).clone()
    if causal:
        mask &= key <= position[..., None]
    if left >= 0:
        mask &= key >= position[..., None] - left
    return plain_attention(q, k, v, mask[:, None], **options)


def in_pages(cache, size, order=3):
    """The rows of [batch, keys, ...] in pages in another order, and the table."""
    batch, keys = cache.shape[:2]
    width = -(-keys // size)
    padded = torch.cat([cache, torch.full((batch, width * size - keys, *cache.shape[2:]), torch.nan)], 1)
    pages = padded.reshape(batch * width, size, *cache.shape[2:])
    place = torch.randperm(batch * width, generator=torch.Generator().manual_seed(order))
    shuffled = torch.empty_like(pages)
    shuffled[place] = pages
    return shuffled, place.to(torch.int32).reshape(batch, width)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize(("causal", "window"), [(True, (-1, -1)), (False, (-1, -1)), (True, (3, 0))])
def test_flash_attn_with_kvcache_appends_and_attends(interleaved, paged, causal, window):
    q, k, v = randn(2, 2, 4, 16), randn(2, 2, 2, 16, seed=1), randn(2, 2, 2, 16, seed=2)
    k_cache, v_cache = randn(2, 10, 2, 16, seed=3), randn(2, 10, 2, 16, seed=4)
    angles = randn(12, 6, seed=5)
    cosine, sine = angles.cos(), angles.sin()
    # The formula.
    positions = LENGTHS[:, None] + torch.arange(2)
    own_k, own_v = k_cache.clone(), v_cache.clone()
    for b in range(2):
        own_k[b, LENGTHS[b] : LENGTHS[b] + 2] = rotated(k, cosine, sine, positions, interleaved)[b]
        own_v[b, LENGTHS[b] : LENGTHS[b] + 2] = v[b]
    same = positions if causal else LENGTHS[:, None].expand(-1, 2)
    expected, expected_lse = attention_to_rows(
        rotated(q, cosine, sine, same, interleaved), own_k, own_v, LENGTHS + 2, causal, window[0]
    )
    table = None
    if paged:
        (k_cache, table), (v_cache, _) = in_pages(k_cache, 4), in_pages(v_cache, 4)
        own_k, own_v = in_pages(own_k, 4)[0], in_pages(own_v, 4)[0]
    out, lse = tegula.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, cosine, sine, LENGTHS, block_table=table, causal=causal, window_size=window,
        rotary_interleaved=interleaved, return_softmax_lse=True,
    )  # fmt: skip
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(lse, expected_lse, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(k_cache, own_k, atol=1e-6, rtol=1e-6, equal_nan=True)
    assert torch.equal(v_cache.nan_to_num(7), own_v.nan_to_num(7))


def test_flash_attn_with_kvcache_reads_rows_by_number():
    q, k, v = randn(2, 1, 4, 16), randn(3, 10, 2, 16, seed=1), randn(3, 10, 2, 16, seed=2)
    rows = torch.tensor([2, 0])
    expected, _ = attention_to_rows(q, k[rows], v[rows], LENGTHS, softcap=3.0)
    got = tegula.flash_attn_with_kvcache(
        q, k, v, cache_seqlens=LENGTHS, cache_batch_idx=rows, softcap=3.0, num_splits=2, window_size=(-1, 5)
    )
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    all_seven = tegula.flash_attn_with_kvcache(q, k, v, cache_seqlens=7, cache_batch_idx=rows)
    expected, _ = attention_to_rows(q, k[rows], v[rows], torch.tensor([7, 7]))
    torch.testing.assert_close(all_seven, expected, atol=1e-5, rtol=1e-5)


def test_flash_attn_with_kvcache_refuses_what_it_cannot():
    q, k = randn(2, 4, 2, 16), randn(2, 8, 2, 16)
    for name, wrong in {
        "alibi_slopes": {"alibi_slopes": torch.ones(2)},
        "cache_leftpad": {"cache_leftpad": LENGTHS},
        "window_size": {"window_size": (2, 1)},
        "rotary_cos": {"rotary_cos": torch.ones(8, 4), "rotary_sin": torch.ones(8, 4)},
        "cache_seqlens": {"k": q, "v": q},
        "k and v": {"k": q},
        "splits": {"num_splits": 1000},
        "cache_batch_idx": {"cache_batch_idx": torch.zeros(3, dtype=torch.int64)},
    }.items():
        with pytest.raises(ValueError, match=name):
            tegula.flash_attn_with_kvcache(q, k, k, **wrong)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_batch_decode_with_paged_kv_cache(layout):
    q, k, v = randn(2, 4, 16), randn(2, 10, 2, 16, seed=1), randn(2, 10, 2, 16, seed=2)
    expected, lse = attention_to_rows(q[:, None], k, v, LENGTHS, left=4)
    (k_pages, table), (v_pages, _) = in_pages(k, 4), in_pages(v, 4)
    both = torch.stack([k_pages, v_pages], 1)
    indptr = torch.tensor([0, 2, 3], dtype=torch.int32)
    for most in (None, 2):
        out, base2 = tegula.batch_decode_with_paged_kv_cache(
            q, both.transpose(2, 3) if layout == "HND" else both, indptr,
            torch.cat([table[0, :2], table[1, :1]]), torch.tensor([3, 3], dtype=torch.int32), kv_layout=layout,
            window_left=4, max_pages=most, v_scale=2.0, return_lse=True,
        )  # fmt: skip
        torch.testing.assert_close(out, 2 * expected[:, 0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(base2, lse[..., 0] / torch.log(torch.tensor(2.0)), atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="kv_layout"):
        tegula.batch_decode_with_paged_kv_cache(q, both, indptr, table[0], LENGTHS, kv_layout="DHN")


def test_batch_decode_refuses_lists_that_do_not_fit():
    q, pages = randn(2, 4, 16), (randn(6, 4, 2, 16, seed=1), randn(6, 4, 2, 16, seed=2))
    indptr, indices, last = (torch.tensor(x, dtype=torch.int32) for x in ([0, 2, 3], [5, 0, 1], [3, 3]))
    decode = tegula.batch_decode_with_paged_kv_cache
    for name, wrong in {
        "paged_kv_cache: expected keys and values": (q, pages[0], indptr, indices, last),
        "given 3 tensors": (q, (*pages, pages[0]), indptr, indices, last),
        "kv_indptr": (q, pages, indptr[:2], indices, last),
        "kv_last_page_len": (q, pages, indptr, indices, last[:1]),
        "kv_indices": (q, pages, indptr, indices[None], last),
        "q: expected": (q[:, None], pages, indptr, indices, last),
    }.items():
        with pytest.raises(ValueError, match=name):
            decode(*wrong)
    falling, negative = (torch.tensor(x, dtype=torch.int32) for x in ([2, 0, 1], [-1, 1, 3]))
    for lists in (
        (indptr + 1, indices, last),
        (falling, indices, last),
        (negative, indices, last),
        (indptr, indices, last + 2),
        (indptr, indices, last - 3),
    ):
        with pytest.raises(RuntimeError, match="more tokens than its cache has room for"):
            decode(q, pages, *lists)


def latent_attention(q, rows, seen, d_v, sink=None):
    """Queries [n, heads, d] against the rows [keys, d] that lists name."""
    outs, lses = [], []
    for query, own in zip(q, seen):
        chosen = rows[own[own >= 0].long()]
        scores = query @ chosen.T * q.shape[-1] ** -0.5
        lse = scores.logsumexp(-1)
        total = lse if sink is None else torch.logaddexp(lse, sink)
        weights = torch.where(total[:, None] == -torch.inf, 0, torch.exp(scores - total[:, None]))
        outs.append(weights @ chosen[:, :d_v])
        lses.append(lse)
    return torch.stack(outs), torch.stack(lses)


def test_flash_mla_of_all_rows():
    q, rows = randn(2, 2, 3, 24), randn(2, 10, 24, seed=1)
    pages, table = in_pages(rows, 4)
    k = rows[:, :, None]
    expected, lse = attention_to_rows(q, k, k[..., :16], LENGTHS, causal=True, sinks=None)
    sink = randn(3, seed=2)
    shares = torch.sigmoid(lse - sink[:, None]).transpose(1, 2)[..., None]
    for given, factor in ((None, 1), (sink, shares)):
        got, got_lse = tegula.flash_mla_with_kvcache(
            q, pages[:, :, None], table, LENGTHS, 16, object(), None, causal=True, attn_sink=given
        )
        torch.testing.assert_close(got, expected * factor, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(got_lse, lse, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("extra", [False, True])
def test_flash_mla_of_chosen_rows(extra):
    q, pages, more = randn(2, 2, 3, 24), randn(3, 4, 1, 24, seed=1), randn(2, 4, 1, 24, seed=2)
    chosen = torch.tensor([[[3, 11, 0, 7], [-1, 2, -1, 5]], [[1, 1, 9, -1], [-1, -1, -1, -1]]], dtype=torch.int32)
    other = torch.tensor([[[2, 7], [0, -1]], [[5, 4], [-1, -1]]], dtype=torch.int32)
    counts, more_counts = torch.tensor([3, 4]), torch.tensor([1, 2])
    seen = torch.where(torch.arange(4) < counts[:, None, None], chosen, -1)
    seen_more = torch.where(torch.arange(2) < more_counts[:, None, None], other, -1)
    rows, lists = pages.flatten(0, 2), seen
    options = {}
    if extra:
        rows = torch.cat([rows, more.flatten(0, 2)])
        lists = torch.cat([seen, torch.where(seen_more >= 0, seen_more + 12, -1)], -1)
        options = {"extra_k_cache": more, "extra_indices_in_kvcache": other, "extra_topk_length": more_counts}
    sink = randn(3, seed=5)
    out, lse = latent_attention(q.flatten(0, 1), rows, lists.flatten(0, 1), 16, sink)
    got, got_lse = tegula.flash_mla_with_kvcache(
        q, pages, None, None, 16, indices=chosen, topk_length=counts, attn_sink=sink, **options
    )
    torch.testing.assert_close(got.flatten(0, 1), out, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got_lse.transpose(1, 2).flatten(0, 1), lse, atol=1e-5, rtol=1e-5)
    out, lse = latent_attention(q[0], rows[:12], seen[0], 16)
    got, _, got_lse = tegula.flash_mla_sparse_fwd(
        q[0], pages.flatten(0, 1), chosen[0].unsqueeze(1), 24**-0.5, 16, topk_length=torch.tensor([3, 3], dtype=torch.int32)
    )
    torch.testing.assert_close(got[0], out[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(got_lse[0], lse[0], atol=1e-5, rtol=1e-5)


def records(pages, size, seed):
    """Records of 656 bytes, and the rows of 576 features that they stand for."""
    values = randn(pages, size, 512, seed=seed).to(torch.float8_e4m3fn)
    factors, last = randn(pages, size, 4, seed=seed + 1).abs() + 0.5, randn(pages, size, 64, seed=seed + 2).bfloat16()
    cache = torch.cat([values.view(torch.uint8), factors.view(torch.uint8), last.view(torch.uint8)], -1)
    return cache[:, :, None], torch.cat([values.float() * factors.repeat_interleave(128, -1), last.float()], -1)


def records_of_584(pages, size, seed):
    """Pages of records of 584 bytes, 64 bytes apart, and the rows of 512 features that they stand for."""
    values = randn(pages, size, 448, seed=seed).to(torch.float8_e4m3fn)
    exponents = (126 + randn(pages, size, 8, seed=seed + 1)).to(torch.uint8)
    last = randn(pages, size, 64, seed=seed + 2).bfloat16()
    first = torch.cat([values.view(torch.uint8), last.view(torch.uint8)], -1)
    gap = torch.full((pages, 64), 255, dtype=torch.uint8)
    whole = torch.cat([first.flatten(1), exponents.flatten(1), gap], -1)
    cache = whole[:, : size * 584].unflatten(1, (size, 584))[:, :, None]
    factors = torch.exp2(exponents[..., :7].float() - 127).repeat_interleave(64, -1)
    return cache, torch.cat([values.float() * factors, last.float()], -1)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("of, features", [(records, 576), (records_of_584, 512)])
def test_flash_mla_of_records(of, features, dense):
    cache, rows = of(3, 4, 1)
    more, more_rows = of(2, 4, 7)
    q = (0.2 * randn(1, 2, 2, features)).bfloat16()
    table = torch.tensor([[2, 0, 1]], dtype=torch.int32)
    if dense:
        key = torch.tensor([8, 9, 10, 11, 0, 1, 2])
        out, lse = latent_attention(q.float()[0], rows.flatten(0, 1), key.expand(2, -1), 512)
        got, got_lse = tegula.flash_mla_with_kvcache(
            q, cache, table, torch.tensor([7], dtype=torch.int32), 512, is_fp8_kvcache=True
        )
    else:
        chosen = torch.tensor([[[3, 11, 0], [-1, 2, 5]]], dtype=torch.int32)
        other = torch.tensor([[[1, -1], [6, 7]]], dtype=torch.int32)
        both = torch.cat([rows.flatten(0, 1), more_rows.flatten(0, 1)])
        lists = torch.cat([chosen, torch.where(other >= 0, other + 12, -1)], -1)
        out, lse = latent_attention(q.float()[0], both, lists[0], 512)
        got, got_lse = tegula.flash_mla_with_kvcache(
            q, cache.view(torch.float8_e4m3fn), None, None, 512, is_fp8_kvcache=True, indices=chosen,
            extra_k_cache=more, extra_indices_in_kvcache=other,
        )  # fmt: skip
    torch.testing.assert_close(got[0].float(), out, atol=4e-2, rtol=2e-2)
    torch.testing.assert_close(got_lse[0].T, lse, atol=2e-2, rtol=2e-2)


def test_records_of_584_bytes_need_pages_without_gaps():
    cache, _ = records_of_584(3, 4, 1)
    with pytest.raises(ValueError, match="pages without gaps"):
        tegula.flash_mla_with_kvcache(
            randn(1, 1, 2, 512).bfloat16(), cache[:, ::2], None, None, 512, is_fp8_kvcache=True,
            indices=torch.zeros(1, 1, 3, dtype=torch.int32),
        )  # fmt: skip


@pytest.mark.parametrize("of, features", [(records, 576), (records_of_584, 512)])
def test_flash_mla_refuses_records_of_other_forms(of, features):
    q, cache = randn(1, 1, 2, features).bfloat16(), of(3, 4, 1)[0]
    lists = {"indices": torch.zeros(1, 1, 3, dtype=torch.int32)}
    for name, pages, values, options in (
        ("k_cache: expected records", cache.expand(-1, -1, 2, -1), 512, {}),
        ("k_cache: expected records", cache.expand(-1, -1, 2, -1), 512, lists),
        ("k_cache: expected records", cache[..., :-8], 512, lists),
        ("extra_k_cache: expected records", cache, 512,
         {**lists, "extra_k_cache": cache.expand(-1, -1, 2, -1), "extra_indices_in_kvcache": lists["indices"]}),
        ("head_dim_v", cache, 448, lists),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            tegula.flash_mla_with_kvcache(q, pages, None, None, values, is_fp8_kvcache=True, **options)


def test_flash_mla_refuses_what_it_cannot():
    q, cache = randn(1, 1, 2, 24), randn(2, 4, 1, 24)
    chosen = torch.zeros(1, 1, 3, dtype=torch.int32)
    for name, wrong in {
        "extra_k_cache": {"extra_k_cache": cache},
        "topk_length": {"topk_length": LENGTHS[:1]},
        "causal": {"indices": chosen, "causal": True},
        "extra_k_cache and": {"indices": chosen, "extra_k_cache": cache},
        "expected records": {"indices": chosen, "is_fp8_kvcache": True},
        "k_cache: expected records": {"is_fp8_kvcache": True},
        "attn_sink": {"attn_sink": torch.ones(3)},
        "indices: expected": {"indices": chosen[0]},
        "topk_length: expected": {"indices": chosen, "topk_length": LENGTHS},
        "extra_indices_in_kvcache: ": {
            "indices": chosen, "extra_k_cache": cache, "extra_indices_in_kvcache": chosen[:, 0],
        },
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=name):
            tegula.flash_mla_with_kvcache(q, cache, None, None, 16, **wrong)
    with pytest.raises(ValueError, match="q: expected"):
        tegula.flash_mla_with_kvcache(q[0], cache, None, None, 16)
    q, rows = randn(2, 2, 24), randn(4, 1, 24)
    for name, wrong in {
        "q: expected": (q[0], rows, chosen[0]),
        "indices: expected": (q, rows, chosen),
        "topk_length: expected": (q, rows, chosen.expand(2, 1, 3), 1.0, 16, None, LENGTHS[:1]),
        "attn_sink": (q, rows, chosen.expand(2, 1, 3), 1.0, 16, torch.ones(3)),
    }.items():
        with pytest.raises(ValueError, match=name):
            tegula.flash_mla_sparse_fwd(*(wrong if len(wrong) > 3 else (*wrong, 1.0, 16)))


def test_what_is_written_in_place_is_known_to_pytorch():
    k, cache = randn(1, 2, 1, 8), torch.zeros(1, 5, 1, 8)
    version = cache._version
    assert tegula.append_kv(k, cache, cache_seqlens=LENGTHS[1:]) is None
    assert torch.equal(cache[:, 1:3], k) and cache._version > version
    with pytest.raises(RuntimeError, match="what is written in place has none"):
        tegula.append_kv(k, cache.clone().requires_grad_())
    with pytest.raises(NotImplementedError, match="writes tensors in place"):
        torch.vmap(tegula.append_kv)(k[None], cache[None].clone())

    def step(cache):
        tegula.append_kv(k, cache, cache_seqlens=LENGTHS[1:])
        return cache.sum()

    fresh = torch.zeros(1, 5, 1, 8)
    total = torch.compile(step, backend="aot_eager", fullgraph=True)(fresh)
    torch.testing.assert_close(total, k.sum())
    assert torch.equal(fresh, cache)


def test_vertical_slash_attention_sees_what_the_last_queries_choose():
    q, k, v = randn(1, 40, 4, 16), randn(1, 40, 2, 16, seed=1), randn(1, 40, 2, 16, seed=2)
    vertical, slash = tegula.vertical_slash_select(
        4 * q, k, 5, 4, last=8, first_columns=1, local_slashes=1
    )
    assert (vertical == 0).any(-1).all() and (slash == 0).any(-1).all()
    # The weights of the last queries, summed by columns, by hand for one head.
    weights = (4 * q[0, 32:, 3] @ k[0, :, 1].T / 4).masked_fill(
        torch.arange(40) > torch.arange(32, 40)[:, None], -torch.inf
    ).softmax(-1)
    best = weights.sum(0)[1:].topk(4).indices + 1
    assert set(vertical[0, 3].tolist()) == {0, *best.tolist()}
    diagonals = torch.stack([sum(weights[i, 32 + i - d] for i in range(8) if 32 + i >= d) for d in range(1, 40)])
    assert set(slash[0, 3].tolist()) == {0, *(diagonals.topk(3).indices + 1).tolist()}
    position, key = torch.arange(40)[:, None], torch.arange(40)
    mask = torch.zeros(1, 4, 40, 40, dtype=torch.bool)
    for h in range(4):
        mask[0, h, :, vertical[0, h].long()] = True
        for d in slash[0, h].tolist():
            for row in range(d, 40):
                block = (row - d) // 4 * 4
                mask[0, h, row // 8 * 8 : row // 8 * 8 + 8, block : block + 4] = True
    expected, lse = plain_attention(q, k, v, mask & (key <= position))
    for layout in ("bshd", "bhsd"):
        given = (x.transpose(1, 2) if layout == "bhsd" else x for x in (q, k, v))
        got, got_lse = tegula.vertical_slash_attention(
            *given, vertical, slash.long(), q_block_size=8, k_block_size=4, layout=layout
        )
        got = got.transpose(1, 2) if layout == "bhsd" else got
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(got_lse, lse, atol=1e-5, rtol=1e-5)
