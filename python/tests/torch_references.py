"""The operators by their formulas in PyTorch, whose automatic gradients are the reference; inputs, and comparisons."""

import references as reference
import torch


def plain_attention(q, k, v, mask, softcap=0.0, sinks=None, factors=1):
    """[batch, sequence, heads, features], in the dtype of the arguments; a row that sees nothing gives 0, -inf."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 * factors
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~mask, -torch.inf)
    all_scores = scores
    if sinks is not None:
        all_scores = torch.cat([scores, sinks[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    lse = torch.logsumexp(all_scores, -1)
    weights = torch.exp(scores - lse[..., None].masked_fill(lse[..., None] == -torch.inf, 0))
    return (weights @ v).transpose(1, 2), lse


def causal_mask(queries, keys, **window):
    return torch.from_numpy(reference.causal_mask(queries, keys, **{"right": 0, **window}))


def choice(rows, blocks, count, heads=2):
    """[1, heads, rows, count], every row with different blocks."""
    generator = torch.Generator().manual_seed(3)
    return torch.rand(1, heads, rows, blocks, generator=generator).topk(count, -1).indices


def as_mask(indices, queries, keys, q_block, k_block):
    """[1, 4, queries, keys] from the lists of two heads of keys."""
    return torch.from_numpy(reference.block_mask(indices.numpy(), queries, keys, q_block, k_block).repeat(2, 1))


def nsa_mask(indices, tokens, block_size, diagonal=True):
    """What tokens see by lists of their own."""
    mask = as_mask(indices, tokens, tokens, 1, block_size)
    block = torch.arange(tokens) // block_size
    return (mask | (diagonal & (block[:, None] == block[None, :]))) & causal_mask(tokens, tokens)


def heads(queries=21, keys=21, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = ((1, queries, 4, 16), (1, keys, 2, 16), (1, keys, 2, 16))
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def check_gradients(function, plain, inputs, tolerance=5e-5):
    """Results and gradients of `function` against those of `plain` in float64."""
    ours = [x.clone().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    results, expected = function(*ours), plain(*exact)
    generator = torch.Generator().manual_seed(2)
    loss = exact_loss = 0
    for result, right in zip(results, expected):
        weight = torch.randn(right.shape, generator=generator, dtype=torch.float64)
        finite = right.isfinite()
        torch.testing.assert_close(result.double(), right, atol=tolerance, rtol=tolerance)
        loss = loss + (result.double()[finite] * weight[finite]).sum()
        exact_loss = exact_loss + (right[finite] * weight[finite]).sum()
    loss.backward()
    exact_loss.backward()
    for one, right in zip(ours, exact):
        assert one.grad.dtype == one.dtype and one.grad.shape == one.shape
        torch.testing.assert_close(one.grad.double(), right.grad, atol=4 * tolerance, rtol=4 * tolerance)
