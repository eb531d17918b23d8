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


def allowance(q, k, v, mask, out, lse, unit, softcap=0.0, sinks=None):
    """How far results and gradients of attention in 16 bits may be from exact ones: of out, q, k, v and the sinks.

    Tensor cores take weights and the gradients of scores rounded, which is a relative error of ``unit``; so is that of
    all that is written, and the backward pass reads out as it was written. All else is float32, whose errors are a
    small part of the same. ``out`` and ``lse`` are those of ``plain_attention`` in float64, with their gradients.
    """
    group = q.shape[2] // k.shape[2]
    q, k, v, out, dout = (x.detach().transpose(1, 2) for x in (q, k, v, out, out.grad))
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5
    scores = q @ k.transpose(2, 3) * scale
    slope = 1 / torch.cosh(scores / softcap) ** 2 if softcap else 1
    scores = softcap * torch.tanh(scores / softcap) if softcap else scores
    weights = torch.exp(scores.masked_fill(~mask, -torch.inf) - lse.detach().clamp(min=-1e30)[..., None])
    dlse = 0 if lse.grad is None else lse.grad[..., None]
    row = (dout * out).sum(-1, keepdim=True) - dlse
    dscores = slope * weights * (dout @ v.transpose(2, 3) - row)
    dq, dk, dv = dscores @ k * scale, dscores.transpose(2, 3) @ q * scale, weights.transpose(2, 3) @ dout
    relative = unit + 2**-16  # of weights, whose scores are float32
    of_row = relative * (dout * out).abs().sum(-1, keepdim=True)
    of_scores = relative * dscores.abs() + slope * weights * of_row
    results = [
        relative * weights @ v.abs() + unit * out.abs(),
        of_scores @ k.abs() * scale + unit * dq.abs(),
        of_scores.transpose(2, 3) @ q.abs() * scale,
        relative * weights.transpose(2, 3) @ dout.abs(),
    ]
    for at, gradient in ((2, dk), (3, dv)):
        results[at] = (
            results[at].unflatten(1, (-1, group)).sum(2) + unit * gradient.unflatten(1, (-1, group)).sum(2).abs()
        )
    results = [x.transpose(1, 2) for x in results]
    if sinks is None:
        return results, None
    of_sink = torch.exp(sinks.detach()[None, :, None] - lse.detach())[..., None]
    dsinks = (of_sink * row).sum((0, 2, 3))
    return results, (of_sink * (of_row + relative * row.abs())).sum((0, 2, 3)) + unit * dsinks.abs()


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


def plain_selected(q, k, v, block_size, indices, counts, sel_scale=None, own=True):
    """[batch, heads, tokens, d]: the own block up to the query, and beside it every named block whole, as often as named.

    Keys after the last one do not exist, also in its block.
    """
    group, tokens = q.shape[1] // k.shape[1], k.shape[2]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    indices, counts = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (indices.long(), counts))
    scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5
    rows = torch.arange(tokens)
    own_mask = (rows[:, None] >= rows) & (rows[:, None] // block_size == rows // block_size)
    padding = -tokens % block_size
    blocks = torch.nn.functional.pad(scores, (0, padding)).unflatten(-1, (-1, block_size))
    at = indices[..., None].expand(*indices.shape, block_size)
    named = blocks.gather(3, at)
    if sel_scale is not None:
        named = named * sel_scale.repeat_interleave(q.shape[1] // sel_scale.shape[1], 1)[..., None]
    exists = counts[..., None] & (at * block_size + torch.arange(block_size) < tokens)
    named = named.masked_fill(~exists, -torch.inf).flatten(-2)
    all_scores = torch.cat([scores.masked_fill(~(own_mask & own), -torch.inf), named], -1)
    lse = torch.logsumexp(all_scores, -1)
    weights = torch.exp(all_scores - lse[..., None].masked_fill(lse[..., None] == -torch.inf, 0))
    of_blocks = torch.zeros_like(blocks).scatter_add(3, at, weights[..., tokens:].unflatten(-1, (-1, block_size)))
    return (weights[..., :tokens] + of_blocks.flatten(-2)[..., :tokens]) @ v, lse


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
