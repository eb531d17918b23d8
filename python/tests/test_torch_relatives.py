"""Relatives of native sparse attention, and its forms in other libraries, against masks on dense attention."""

import itertools

import pytest
from tables import on_the_interpreter  # noqa: F401

torch = pytest.importorskip("torch")
tegula_torch = pytest.importorskip("tegula.torch")

TOKENS, HEADS, KV_HEADS, DIM = 40, 4, 2, 8


def inputs(tokens=TOKENS, seed=0, dim=DIM):
    generator = torch.Generator().manual_seed(seed)
    heads = (HEADS, KV_HEADS, KV_HEADS)
    return [torch.randn(1, tokens, h, dim, generator=generator, requires_grad=True) for h in heads]


def index_inputs(heads):
    generator = torch.Generator().manual_seed(5)
    return torch.randn(1, TOKENS, heads, DIM, generator=generator), torch.randn(1, TOKENS, DIM, generator=generator)


def dense(q, k, v, times):
    """times [heads, tokens, keys]: how often a query sees a key. Rows without keys are 0."""
    group = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(group, 2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5 + times.clamp(min=1e-30).log()
    weights = scores.masked_fill(times == 0, -1e30).softmax(-1) * (times > 0)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def check(out, exact, tensors):
    torch.testing.assert_close(out, exact, rtol=1e-4, atol=1e-5)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9))
    pairs = [torch.autograd.grad((x * weights).sum(), tensors, retain_graph=True) for x in (out, exact)]
    for got, wanted in zip(*pairs):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-4)


def times_of(rows, size, tokens=TOKENS, causal=True):
    """[heads, tokens, keys] of lists rows[head][token] of blocks, which may repeat."""
    times = torch.zeros(HEADS, tokens, tokens)
    for h in range(HEADS):
        for i in range(tokens):
            for j in rows[h][i]:
                times[h, i, j * size : (j + 1) * size] += 1
    return times.tril() if causal else times


def best(scores, forced, count):
    """Of scores by block: the forced ones, then the largest."""
    return sorted(scores, key=lambda j: (j not in forced, -scores[j], j))[:count]


def test_moba():
    q, k, v = tensors = inputs()
    size = 8

    def score(h, i, j):
        return float((q[0, i, h] @ k[0, j * size : (j + 1) * size, h // 2].mean(0)).detach())

    rows = [
        [best({j: score(h, i, j) for j in range(i // size + 1)}, {i // size}, 3) for i in range(TOKENS)]
        for h in range(HEADS)
    ]
    check(tegula_torch.moba_attention(q, k, v, chunk_size=size, count=3), dense(q, k, v, times_of(rows, size)), tensors)


def test_infllm():
    q, k, v = tensors = inputs()
    size, length, stride = 8, 8, 4
    entries = [k[0, n : n + length].mean(0) for n in range(0, TOKENS - length + 1, stride)]
    rows = [[] for _ in range(HEADS)]
    for h in range(HEADS):
        for i in range(TOKENS):
            weights = {}
            seen = [n for n in range(len(entries)) if n * stride + length <= i + 1]
            for g in range(2) if seen else ():
                logits = torch.stack([q[0, i, h // 2 * 2 + g] @ entries[n][h // 2] for n in seen]) * DIM**-0.5
                for n, w in zip(seen, logits.softmax(0).tolist()):
                    weights[n] = weights.get(n, 0) + w
            own = i // size
            scores = dict.fromkeys(range(own + 1), 0.0)
            for (n, w), j in itertools.product(weights.items(), scores):
                if n * stride < (j + 1) * size and n * stride + length > j * size:
                    scores[j] = max(scores[j], w)
            rows[h].append(best(scores, {0, own}, 3))
    out = tegula_torch.infllm_attention(
        q, k, v, length=length, stride=stride, block_size=size, count=3, local_blocks=1
    )
    check(out, dense(q, k, v, times_of(rows, size)), tensors)


def test_msa():
    q, k, v = tensors = inputs()
    index_q, index_k = index_inputs(KV_HEADS)
    size = 8

    def score(h, i, j):
        return float((index_k[0, j * size : min(i + 1, (j + 1) * size)] @ index_q[0, i, h // 2]).max())

    rows = [
        [best({j: score(h, i, j) for j in range(i // size + 1)}, {i // size}, 2) for i in range(TOKENS)]
        for h in range(HEADS)
    ]
    out = tegula_torch.msa_attention(q, k, v, index_q, index_k, block_size=size, count=2)
    check(out, dense(q, k, v, times_of(rows, size)), tensors)


@pytest.mark.parametrize("size, count", [(4, 3), (16, 1)])  # small blocks share tiles
def test_qsa(size, count):
    q, k, v = tensors = inputs(dim=16)
    index_q, index_k = index_inputs(3)
    rows = []
    for i in range(TOKENS):
        scores = {
            j: float((index_q[0, i] @ index_k[0, size * j : size * j + size].mean(0)).relu().sum())
            for j in range((i + 1) // size)
        }
        rows.append(set(best(scores, (), count)) | {i // size})
    out = tegula_torch.qsa_attention(q, k, v, index_q, index_k, block_size=size, count=count)
    check(out, dense(q, k, v, times_of([rows] * HEADS, size)), tensors)


def test_video():
    grid, cube = (4, 4, 4), (2, 2, 2)
    q, k, v = tensors = inputs(64)
    place = [(t // 2) * 4 + (y // 2) * 2 + x // 2 for t in range(4) for y in range(4) for x in range(4)]
    cubes = torch.tensor(place)
    times = torch.zeros(HEADS, 64, 64)
    for h in range(HEADS):
        for a in range(8):
            mean = q[0, cubes == a, h].mean(0)
            scores = {b: float((mean @ k[0, cubes == b, h // 2].mean(0)).detach()) for b in range(8)}
            for b in best(scores, (), 3):
                times[h] += (cubes == a)[:, None] & (cubes == b)[None]
    check(tegula_torch.video_attention(q, k, v, grid, cube=cube, count=3), dense(q, k, v, times), tensors)
    with pytest.raises(ValueError, match="multiples"):
        tegula_torch.video_attention(q, k, v, (4, 4, 4), cube=(3, 2, 2))


def test_video_by_sub_blocks():
    grid, cube, run = (2, 4, 4), (2, 2, 2), 4
    q, k, v = tensors = inputs(32)
    cubes = torch.tensor([(y // 2) * 2 + x // 2 for _ in range(2) for y in range(4) for x in range(4)])
    rows_of = [torch.nonzero(cubes == a).flatten().split(run) for a in range(4)]
    times = torch.zeros(HEADS, 32, 32)
    for h in range(HEADS):
        q_means = [torch.stack([q[0, rows, h].mean(0) for rows in of]) for of in rows_of]
        k_means = [torch.stack([k[0, rows, h // 2].mean(0) for rows in of]) for of in rows_of]
        for a in range(4):
            scores = {b: float((q_means[a] @ k_means[b].T * DIM**-0.5).logsumexp((0, 1)).detach()) for b in range(4)}
            for b in best(scores, (), 2):
                times[h] += (cubes == a)[:, None] & (cubes == b)[None]
    out = tegula_torch.video_attention(q, k, v, grid, cube=cube, count=2, sub_blocks=2)
    check(out, dense(q, k, v, times), tensors)
    with pytest.raises(ValueError, match="sub_blocks"):
        tegula_torch.video_attention(q, k, v, grid, cube=cube, sub_blocks=3)


def test_xattention():
    q, k, v = tensors = inputs()
    size, stride, rows = 8, 4, []
    for h in range(HEADS):
        blocks = []
        for a in range(TOKENS // size):
            shares = torch.zeros(a + 1)
            for m in range(a * size // stride, (a + 1) * size // stride):
                logits = torch.tensor([
                    sum(float(q[0, (m + 1) * stride - 1 - i, h] @ k[0, n * stride + i, h // 2]) for i in range(stride))
                    for n in range(m + 1)
                ])  # fmt: skip
                for n, w in enumerate((logits * DIM**-0.5 / stride).softmax(0)):
                    shares[n * stride // size] += w
            kept, total = {a}, float(shares[a])
            for j in sorted(range(a), key=lambda j: -float(shares[j])):
                if total < 0.6 * float(shares.sum()):
                    kept.add(j)
                total += float(shares[j])
            blocks += [kept] * size
        rows.append(blocks)
    out = tegula_torch.xattention(q, k, v, block_size=size, stride=stride, threshold=0.6)
    check(out, dense(q, k, v, times_of(rows, size)), tensors)


def gates(tokens=TOKENS):
    generator = torch.Generator().manual_seed(7)
    return [torch.rand(1, tokens, HEADS, generator=generator, requires_grad=True) for _ in range(3)]


def window_times(tokens, window):
    place = torch.arange(tokens)
    return ((place <= place[:, None]) & (place > place[:, None] - window)).float().expand(HEADS, -1, -1)


@pytest.mark.parametrize("lengths", [[40], [21, 3, 16]])
def test_naive_nsa_counts_duplicates(lengths):
    q, k, v = tensors = inputs()
    _, g_slc, g_swa = gates()
    size, window = 8, 6
    generator = torch.Generator().manual_seed(8)
    choice = torch.randint(-1, 6, (1, TOKENS, KV_HEADS, 4), generator=generator)
    counts = torch.randint(0, 5, (1, TOKENS, KV_HEADS), generator=generator)
    exact, begin = [], 0
    for n in lengths:
        own = slice(begin, begin + n)
        rows = [
            [[int(j) for j in choice[0, i, h // 2, : counts[0, i, h // 2]] if j >= 0] for i in range(begin, begin + n)]
            for h in range(HEADS)
        ]
        of_own = [x[:, own] for x in tensors]
        fine, near = dense(*of_own, times_of(rows, size, n)), dense(*of_own, window_times(n, window))
        exact.append(fine * g_slc[:, own, :, None] + near * g_swa[:, own, :, None])
        begin += n
    ends = None if len(lengths) == 1 else torch.tensor([0, *lengths]).cumsum(0)
    out = tegula_torch.naive_nsa(
        q, k, v, g_slc, g_swa, choice, counts, block_size=size, window_size=window, cu_seqlens=ends
    )
    check(out, torch.cat(exact, 1), [*tensors, g_slc, g_swa])


@pytest.mark.parametrize("lengths", [[40], [21, 3, 16]])
def test_parallel_nsa_chooses_and_compresses(lengths):
    q, k, v = tensors = inputs()
    g_cmp, g_slc, _ = gates()
    size, exact, exact_lse, packed_means, begin = 8, [], [], [], 0
    for n in lengths:
        own = slice(begin, begin + n)
        of_q, of_k, of_v = (x[:, own] for x in tensors)
        means = [
            torch.cat([x[:, j : j + size].mean(1, keepdim=True) for j in range(0, n, size)], 1) for x in (of_k, of_v)
        ]
        packed_means.append(means)
        sees = torch.arange(means[0].shape[1]) < (torch.arange(n)[:, None] + 1) // size
        coarse = dense(of_q, *means, sees.float().expand(HEADS, -1, -1))
        logits = torch.einsum("bihd,bjhd->bhij", of_q, means[0].repeat_interleave(2, 2)) * DIM**-0.5
        logits = logits.masked_fill(~sees, -torch.inf)
        lse = logits.logsumexp(-1)
        exact_lse.append(torch.where(lse == -torch.inf, 0, lse).transpose(1, 2))
        weights = logits.softmax(-1).nan_to_num(0)[0].unflatten(0, (KV_HEADS, 2)).sum(1)
        weights = weights.detach().tolist()

        def chosen(h, i, weights=weights):
            return best(dict(enumerate(weights[h // 2][i][: i // size + 1])), {0, i // size, i // size - 1}, 4)

        rows = [[chosen(h, i) for i in range(n)] for h in range(HEADS)]
        fine = dense(of_q, of_k, of_v, times_of(rows, size, n))
        exact.append((coarse, coarse * g_cmp[:, own, :, None] + fine * g_slc[:, own, :, None]))
        begin += n
    ends = None if len(lengths) == 1 else torch.tensor([0, *lengths]).cumsum(0)
    out = tegula_torch.parallel_nsa(q, k, v, g_cmp, g_slc, None, block_counts=4, block_size=size, cu_seqlens=ends)
    check(out, torch.cat([x for _, x in exact], 1), [*tensors, g_cmp, g_slc])
    entries = [torch.cat([means[i] for means in packed_means], 1) for i in range(2)]
    out, lse = tegula_torch.parallel_nsa_compression(q, *entries, TOKENS, size, cu_seqlens=ends)
    check(out, torch.cat([x for x, _ in exact], 1), tensors)
    torch.testing.assert_close(lse, torch.cat(exact_lse, 1), rtol=1e-4, atol=1e-5)


def listed(choice, limit=None):
    """Lists rows[head][token] of the blocks that are named, at most so many of each token."""
    of_heads = choice[0].repeat_interleave(HEADS // KV_HEADS, 1)[..., :limit].transpose(0, 1).tolist()
    return [[[j for j in row if j >= 0] for row in rows] for rows in of_heads]


def test_a_number_of_blocks_limits_those_given_to_naive_nsa_alone():
    q, k, v = tensors = inputs()
    _, g_slc, _ = gates()
    choice = torch.randint(-1, 5, (1, TOKENS, KV_HEADS, 20), generator=torch.Generator().manual_seed(8))
    whole = tegula_torch.parallel_nsa(q, k, v, None, g_slc, None, choice, block_size=8)
    check(whole, dense(q, k, v, times_of(listed(choice), 8)) * g_slc[..., None], [*tensors, g_slc])
    first = tegula_torch.naive_nsa(q, k, v, g_slc, None, choice, 2, block_size=8)
    check(first, dense(q, k, v, times_of(listed(choice, 2), 8)) * g_slc[..., None], [*tensors, g_slc])


def test_queries_and_keys_with_boundaries_of_their_own():
    of_q, of_k, size = [3, 0, 4], [9, 5, 17], 4
    q, k, v = (x[:, :n].detach().requires_grad_() for x, n in zip(inputs(), (sum(of_q), sum(of_k), sum(of_k))))
    choice = torch.randint(0, 5, (1, sum(of_q), KV_HEADS, 3), generator=torch.Generator().manual_seed(8))
    choice[..., 0] = 0  # which every query sees
    ends = [torch.tensor([0, *lengths]).cumsum(0) for lengths in (of_q, of_k)]
    exact = []
    for n, keys, q_begin, k_begin in zip(of_q, of_k, *(x.tolist() for x in ends)):
        times = times_of([[[]] * (keys - n) + own[q_begin : q_begin + n] for own in listed(choice)], size, keys)
        own = slice(k_begin, k_begin + keys)
        exact.append(dense(q[:, q_begin : q_begin + n], k[:, own], v[:, own], times[:, keys - n :]))
    out = tegula_torch.parallel_nsa(q, k, v, block_indices=choice, block_size=size, cu_seqlens=tuple(ends))
    check(out, torch.cat(exact, 1), [q, k, v])
    with pytest.raises(ValueError, match="one by one"):
        tegula_torch.parallel_nsa(q, k, v, q[..., 0], block_size=size, cu_seqlens=tuple(ends))
