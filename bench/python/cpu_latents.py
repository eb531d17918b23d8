"""Rows of cpu_table.py of DeepSeek sparse attention, beside dense attention and its gradients."""

from typing import Iterator

import tegula.torch as tt
import torch
from cpu_row import NAMES, Row, against

TYPES = {torch.float32: 1e-4, torch.bfloat16: 3e-2}  # and what a result may differ by
E4M3 = torch.float8_e4m3fn


def _dense(dtype):
    """Dense attention, its gradients, and the operations of either."""
    q, k, v = (torch.randn(1, 1024, 8, 128).to(dtype).requires_grad_() for _ in range(3))
    out = tt.attention(q, k, v)[0]
    given, work = torch.randn_like(out), 4 * 1024 * 1024 * 8 * 128
    own = [x.detach() for x in (q, k, v)]
    gradients = lambda: torch.autograd.grad(out, (q, k, v), given, retain_graph=True)
    return (lambda: tt.attention(*own), work), (gradients, 5 * work // 2)


def _lists(queries, keys, count):
    return torch.stack([torch.randperm(keys)[:count].sort()[0] for _ in range(queries)]).int()


def _row(name, dtype, call, formula, work, dense, aim=0.5):
    rival, rival_work = dense
    return Row(f"{name} {NAMES.get(dtype, 'e4m3')}", call, rival, against(call, formula), aim, work, rival_work,
               TYPES.get(dtype, 1e-4))  # fmt: skip


def latents() -> Iterator[Row]:
    for dtype in TYPES:
        attention, gradients = _dense(dtype)
        yield from _listed(dtype, attention, gradients)
        yield from _indexer(dtype, attention, gradients)
    yield from _indexer(E4M3, attention, None)
    for heads in (64, 128):
        yield _records(torch.bfloat16, attention, heads)


def _listed(dtype, attention, gradients, tokens=64, heads=64, keys=4096, count=512):
    q, kv = torch.randn(tokens, heads, 576).to(dtype), torch.randn(keys, 1, 576).to(dtype)
    lists = _lists(tokens, keys, count)
    work = 2 * tokens * heads * count

    def attended(q, kv):
        rows = kv[lists.long(), 0]
        return (q @ rows.mT * 576**-0.5).softmax(-1) @ rows[..., :512]

    leaves, wide = ([x.to(t).requires_grad_() for x in (q, kv)] for t in (dtype, torch.float32))
    out = tt.sparse_mla(*leaves, lists[:, None])[0]
    given = torch.randn_like(out)
    back = lambda: torch.autograd.grad(out, leaves, given, retain_graph=True)[1]
    formula = lambda: torch.autograd.grad(attended(*wide), wide, given.float())[1]
    yield _row(f"sparse_mla, {count} of {keys}: gradients", dtype, back, formula, work * (3 * 576 + 2 * 512), gradients)
    lse = (q.float() @ kv[lists.long(), 0].float().mT * 576**-0.5).logsumexp(-1)
    target = lambda: tt.sparse_mla_target(q, kv, lists[:, None], lse)
    weights = lambda: (q.float() @ kv[lists.long(), 0].float().mT * 576**-0.5).softmax(-1).mean(1)[:, None]
    yield _row(f"sparse_mla_target, {count} of {keys}", dtype, target, weights, work * 576, attention)


def _indexer(dtype, attention, gradients, queries=256, keys=4096, d=128, count=512):
    for heads in (32, 64):
        q, k = torch.randn(queries, heads, d).to(dtype), torch.randn(keys, d).to(dtype)
        weights = torch.randn(queries, heads)
        work = 2 * queries * keys * heads * d
        logits = lambda q, k, weights: torch.einsum("ihn,ih->in", (q @ k.T).relu(), weights)
        call = lambda: tt.indexer_logits(q, k, weights)
        formula = lambda: logits(q.float(), k.float(), weights)
        name = f"{queries} x {keys}, {heads} heads"
        yield _row(f"indexer_logits {name}", dtype, call, formula, work, attention)
        chosen = lambda: tt.indexer_topk(q, k, weights, count)
        largest = lambda: call().topk(count)[1].sort()[0]
        yield _row(f"indexer_topk {name}, {count} keys", dtype, chosen, largest, work, attention)
        means = k.float().view(-1, 64, d).mean(1).to(dtype)
        in_blocks = lambda: tt.indexer_topk_of_blocks(q, k, weights, means, count, block_count=16, block_size=64)
        rivals = lambda: _of_blocks(call(), tt.indexer_logits(q, means, weights), 16, 64, count)
        work_of_blocks = 2 * queries * (keys // 64 + 16 * 64) * heads * d
        yield _row(f"indexer_topk_of_blocks {name}", dtype, in_blocks, rivals, work_of_blocks, attention)
        if gradients is None:
            continue
        leaves = [x.clone().requires_grad_() for x in (q, k, weights)]
        out, given = tt.indexer_logits(*leaves), torch.randn(queries, keys)
        wide = [x.float().requires_grad_() for x in (q, k, weights)]
        back = lambda: torch.autograd.grad(out, leaves, given, retain_graph=True)[1]
        expected = lambda: torch.autograd.grad(logits(*wide), wide, given)[1]
        yield _row(f"indexer_logits {name}: gradients", dtype, back, expected, 4 * work, gradients)


def _of_blocks(logits, of_blocks, blocks, size, count):
    chosen = torch.zeros_like(of_blocks, dtype=torch.bool).scatter(1, of_blocks.topk(blocks)[1], True)
    return logits.masked_fill(~chosen.repeat_interleave(size, 1), -torch.inf).topk(count)[1].sort()[0]


def _records(dtype, attention, heads, queries=16, keys=4096, count=512):
    q, values = torch.randn(queries, heads, 576).to(dtype), torch.randn(keys, 512).to(E4M3)
    scales, ropes = torch.rand(keys, 4) + 0.5, torch.randn(keys, 64).to(dtype)
    lists = _lists(queries, keys, count)
    rows = torch.cat([values.float() * scales.repeat_interleave(128, 1), ropes.float()], 1)[lists.long()]
    formula = lambda: (q.float() @ rows.mT * 576**-0.5).softmax(-1) @ rows[..., :512]
    call = lambda: tt.sparse_mla_decode(q, values, scales, lists, ropes=ropes)
    work = 2 * queries * heads * count * (576 + 512)
    return _row(f"sparse_mla_decode {heads} heads, {count} of {keys}", dtype, call, formula, work, attention)
