"""The operators by their formulas, in float64 with NumPy."""

import numpy as np


def causal_mask(queries, keys, left=-1, right=-1):
    distance = np.arange(keys)[None, :] - (np.arange(queries)[:, None] + keys - queries)
    mask = np.ones((queries, keys), bool)
    if left >= 0:
        mask &= distance >= -left
    if right >= 0:
        mask &= distance <= right
    return mask


def block_mask(indices, queries, keys, q_block, k_block):
    """[batch, heads, q_blocks, entries] as [batch, heads, queries, keys]."""
    batch, heads, _, _ = indices.shape
    blocks = -(-keys // k_block)
    chosen = np.zeros((batch, heads, indices.shape[2], blocks), bool)
    for b, h, row in np.ndindex(indices.shape[:3]):
        for entry in indices[b, h, row]:
            if 0 <= entry < blocks:
                chosen[b, h, row, entry] = True
    return chosen.repeat(q_block, 2)[:, :, :queries].repeat(k_block, 3)[:, :, :, :keys]


def attention(q, k, v, mask=True, scale=None, softcap=0.0, sinks=None):
    """q, k, v [batch, sequence, heads, features]; mask is broadcast to [batch, heads, queries, keys]."""
    q, k, v = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, 1), v.repeat(group, 1)
    scores = q @ k.transpose(0, 1, 3, 2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    mask = np.asarray(mask)
    if mask.ndim == 4 and mask.shape[1] != q.shape[1]:
        mask = mask.repeat(group, 1)
    scores = np.where(mask, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(np.asarray(sinks, np.float64)[None, :, None, None] - top)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    out = np.where(total > 0, weights @ v / np.where(total > 0, total, 1), 0)
    return out.transpose(0, 2, 1, 3), lse


def block_means(x, block):
    """[batch, heads, sequence, features]: means of its blocks."""
    starts = range(0, x.shape[2], block)
    return np.stack([x[:, :, start : start + block].mean(2) for start in starts], 2)


def block_scores(q, k, q_block, k_block):
    q, k = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k))
    group = q.shape[1] // k.shape[1]
    means = block_means(q, q_block)
    means = means.reshape(means.shape[0], k.shape[1], group, *means.shape[2:]).mean(2)
    return means @ block_means(k, k_block).transpose(0, 1, 3, 2) * q.shape[-1] ** -0.5
