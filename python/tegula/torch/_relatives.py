"""Relatives of native sparse attention: each scores blocks, selects some, and attends to them with a differentiable
operator."""

from __future__ import annotations

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ._functions import functions

_SLICE = 1 << 24  # scores in memory at a time, where no operator forms them tile by tile
_LEAST_BLOCK = 16  # smaller ones share the steps of block_sparse_attention, and its tiles of keys
_MOST_FEATURES = 576  # of rows that are gathered
_FIRST_OF_ALL = 3e38  # above any score, and finite


def _chosen(scores: Tensor, first_token: int, count: int, block_size: int, local: int) -> Tensor:
    """int32 [batch, rows, tokens, count] of float32 [batch, rows, tokens, blocks]: the last blocks up to the token's
    own, then those with the largest scores."""
    tokens, blocks = scores.shape[2:]
    numbers = torch.arange(blocks, device=scores.device)
    own = (torch.arange(first_token, first_token + tokens, device=scores.device) // block_size)[:, None]
    forced = (numbers > own - local) & (numbers <= own)
    return functions["topk_blocks"](scores.masked_fill(forced, _FIRST_OF_ALL), count)


def _attend(q: Tensor, k: Tensor, v: Tensor, choice: Tensor, block_size: int, scale: Optional[float]) -> Tensor:
    out: Tensor = functions["nsa_selected_attention"](q, k, v, choice, block_size=block_size, scale=scale)[0]
    return out


def moba_attention(
    q: Tensor, k: Tensor, v: Tensor, *, chunk_size: int = 512, count: int = 12, scale: Optional[float] = None
) -> Tensor:
    """Mixture of block attention: each query of each head sees its own chunk and the chunks whose mean keys score
    highest.

    Args:
        q: [batch, tokens, heads, d].
        k, v: [batch, tokens, kv_heads, d].
        chunk_size: tokens per chunk.
        count: chunks per query, including its own.
        scale: scale of the scores; default: 1/sqrt(d).

    Returns:
        A tensor like q, with the features of v; differentiable with respect to q, k and v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of.
    """
    windows = {"length": chunk_size, "stride": chunk_size}
    with torch.no_grad():
        # With a head of keys for each of queries the weights that nsa_select adds up are of one score: same order.
        means = functions["nsa_compress"](k, **windows).repeat_interleave(q.shape[2] // k.shape[2], 2)
        lse = functions["nsa_compressed_attention"](q, means, means, scale=scale, **windows)[1]
        choice = functions["nsa_select"](
            q, means, lse, count, block_size=chunk_size, first_blocks=0, local_blocks=1, scale=scale, **windows
        )
    return _attend(q, k, v, choice, chunk_size, scale)


def infllm_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    length: int = 32,
    stride: int = 16,
    block_size: int = 64,
    count: int = 64,
    first_blocks: int = 1,
    local_blocks: int = 8,
    scale: Optional[float] = None,
) -> Tensor:
    """InfLLM v2: selects blocks by the largest weight of their compressed keys, once per group of heads.

    Args:
        q: [batch, tokens, heads, d].
        k, v: [batch, tokens, kv_heads, d].
        length, stride: windows whose means are the compressed keys; stride divides block_size.
        block_size, count: tokens per block, and blocks per query, including those always selected.
        first_blocks, local_blocks: always selected, at the beginning and up to the query's own.
        scale: scale of the scores; default: 1/sqrt(d).

    Returns:
        A tensor like q, with the features of v; differentiable with respect to q, k and v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of; stride not dividing block_size.
    """
    if block_size % stride:
        raise ValueError(f"stride: expected a divisor of block_size = {block_size}, given {stride}")
    windows = {"length": length, "stride": stride}
    with torch.no_grad():
        entries = functions["nsa_compress"](k, **windows)
        lse = functions["nsa_compressed_attention"](q, entries, entries, scale=scale, **windows)[1]
        choice = functions["nsa_select"](
            q, entries, lse, count, block_size=block_size, first_blocks=first_blocks, local_blocks=local_blocks,
            weight="largest", scale=scale, **windows,
        )  # fmt: skip
    return _attend(q, k, v, choice, block_size, scale)


def msa_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index_q: Tensor,
    index_k: Tensor,
    *,
    block_size: int = 128,
    count: int = 16,
    local_blocks: int = 1,
    scale: Optional[float] = None,
) -> Tensor:
    """Selects blocks, per head of keys, by the largest product of an index query with an index key of the block.

    Args:
        q: [batch, tokens, heads, d].
        k, v: [batch, tokens, kv_heads, d].
        index_q: [batch, tokens, kv_heads, index features].
        index_k: [batch, tokens, index features].
        block_size, count: tokens per block, and blocks per query.
        local_blocks: always selected, up to the query's own.
        scale: scale of the scores; default: 1/sqrt(d).

    Returns:
        A tensor like q, with the features of v; differentiable with respect to q, k and v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of; if index_q has other heads than
        k.
    """
    if index_q.shape[2] != k.shape[2]:
        raise ValueError(f"index_q: expected {k.shape[2]} heads, as k, given {index_q.shape[2]}")
    batch, tokens, heads = index_q.shape[:3]
    blocks = -(-tokens // block_size)
    step = max(1, _SLICE // max(1, batch * heads * blocks))
    with torch.no_grad():
        choices = []
        for t in range(0, tokens, step):
            end = min(tokens, t + step)
            scores = functions["block_scores"](
                index_q[:, t:end], index_k[:, :end, None], q_block_size=1, k_block_size=block_size, causal=True,
                proxy="max", per_kv_head=False, scale=1.0,
            )  # fmt: skip
            choices.append(_chosen(scores, t, min(count, blocks), block_size, local_blocks))
        choice = torch.cat(choices, 2).transpose(1, 2)
    return _attend(q, k, v, choice, block_size, scale)


def _gathered(q: Tensor, k: Tensor, v: Tensor, lists: Tensor, block_size: int, scale: Optional[float]) -> Tensor:
    """Causal attention to the keys of lists of blocks [batch, kv_heads, tokens, entries], row by row."""
    keys = lists.transpose(1, 2)[..., None] * block_size + torch.arange(block_size, device=q.device, dtype=torch.int32)
    keys = keys.clamp(min=-1).flatten(3)  # nothing of a block that is -1
    # A row is a value and its key; queries are 0 where it is the value.
    rows, queries = torch.cat((v, k), -1), torch.cat((q.new_zeros(*q.shape[:3], v.shape[3]), q), -1)
    out: Tensor = functions["sparse_mla"](
        queries, rows, keys, d_v=v.shape[3], causal=True, scale=q.shape[3] ** -0.5 if scale is None else scale
    )[0]
    return out


def qsa_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    index_q: Tensor,
    index_k: Tensor,
    *,
    block_size: int = 4,
    count: int = 512,
    scale: Optional[float] = None,
) -> Tensor:
    """Selects small blocks for all heads by an indexer over their mean index keys; a query's own block is always seen.

    Args:
        q: [batch, tokens, heads, d].
        k, v: [batch, tokens, kv_heads, d].
        index_q: [batch, tokens, index heads, index features].
        index_k: [batch, tokens, index features].
        block_size, count: tokens per block, and blocks ending at or before the query, in addition to its own.
        scale: scale of the scores; default: 1/sqrt(d).

    Returns:
        A tensor like q, with the features of v; differentiable with respect to q, k and v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of.
    """
    batch, tokens, kv_heads = k.shape[:3]
    with torch.no_grad():
        means = functions["nsa_compress"](index_k[:, :, None], length=block_size, stride=block_size)[:, :, 0]
        ends = ((torch.arange(tokens, device=q.device, dtype=torch.int32) + 1) // block_size).expand(batch, -1)
        ones = torch.ones(index_q.shape[:3], device=q.device)
        choice = functions["indexer_topk"](index_q, means.contiguous(), ones, count=count, ends=ends.contiguous())
    choice = choice[:, :, None].expand(-1, -1, kv_heads, -1)
    if block_size >= _LEAST_BLOCK:
        chosen = {"block_size": block_size, "diagonal": True, "scale": scale}
        whole: Tensor = functions["nsa_selected_attention"](q, k, v, choice.contiguous(), **chosen)[0]
        return whole
    own = torch.arange(tokens, device=q.device, dtype=torch.int32) // block_size
    own_blocks = own[:, None, None].expand(batch, -1, kv_heads, 1)
    lists = torch.cat((choice.masked_fill(choice == own_blocks, -1), own_blocks), -1).transpose(1, 2).contiguous()
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    if learns and q.shape[3] + v.shape[3] <= _MOST_FEATURES:  # its gradients take half the time of those of blocks
        return _gathered(q, k, v, lists, block_size, scale)
    out: Tensor = functions["block_sparse_attention"](
        q, k, v, indices=lists, q_block_size=1, k_block_size=block_size, causal=True, scale=scale
    )[0]
    return out


def _by_cubes(grid: Tuple[int, int, int], cube: Tuple[int, int, int], device: torch.device) -> Tensor:
    """The token numbers of a grid, cube by cube."""
    if any(extent % edge for extent, edge in zip(grid, cube)):
        raise ValueError(f"grid: expected multiples of the cube {cube}, given {grid}; pad the grid")
    (t, h, w), (a, b, c) = grid, cube
    numbers = torch.arange(t * h * w, device=device).view(t // a, a, h // b, b, w // c, c)
    return numbers.permute(0, 2, 4, 1, 3, 5).flatten()


def video_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    grid: Tuple[int, int, int],
    *,
    cube: Tuple[int, int, int] = (4, 4, 4),
    count: int = 32,
    sub_blocks: int = 1,
    scale: Optional[float] = None,
) -> Tensor:
    """Attention without a mask for the tokens of a video: a cube of queries sees the cubes whose mean keys score
    highest.

    Args:
        q: [batch, tokens, heads, d], frame by frame and row by row.
        k, v: [batch, tokens, kv_heads, d].
        grid: frames, rows and columns, multiples of those of the cube.
        cube: extents of a block.
        count: cubes that each cube sees.
        sub_blocks: equal runs of the tokens of a cube, frame by frame, with means of their own; with several, the score
            of two cubes is the logarithm of the sum of exp over all pairs of their means.
        scale: scale of the scores; default: 1/sqrt(d).

    Returns:
        A tensor like q, with the features of v; differentiable with respect to q, k and v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of; if the grid is not a multiple.
            Also if sub_blocks do not divide a cube.
    """
    order = _by_cubes(grid, cube, q.device)
    if len(order) != q.shape[1]:
        raise ValueError(f"grid: expected {q.shape[1]} tokens, as q has, given {len(order)}")
    q, k, v = (x.index_select(1, order) for x in (q, k, v))
    size = cube[0] * cube[1] * cube[2]
    if sub_blocks < 1 or size % sub_blocks:
        raise ValueError(f"sub_blocks: expected a divisor of the cube's {size} tokens, given {sub_blocks}")
    blocks = {"q_block_size": size, "k_block_size": size}
    with torch.no_grad():
        run = size // sub_blocks
        scores = functions["block_scores"](q, k, per_kv_head=False, q_block_size=run, k_block_size=run, scale=scale)
        if sub_blocks > 1:
            scores = scores.unflatten(3, (-1, sub_blocks)).unflatten(2, (-1, sub_blocks)).logsumexp((3, 5))
        choice = functions["topk_blocks"](scores, min(count, scores.shape[-1]))
    out = functions["block_sparse_attention"](q, k, v, indices=choice, scale=scale, **blocks)[0]
    return out.index_select(1, torch.argsort(order))


def _antidiagonal_weights(q: Tensor, k: Tensor, block_size: int, stride: int, scale: float) -> Tensor:
    """[batch, heads, blocks, blocks]: softmax over sums of every stride-th antidiagonal, summed per block."""
    padding = (0, 0, 0, 0, 0, -q.shape[1] % block_size)
    k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    q, k = (F.pad(x.float(), padding).unflatten(1, (-1, stride)) for x in (q, k))
    scores = torch.einsum("bmihd,bnihd->bhmn", q.flip(2), k) * (scale / stride)
    rows = torch.arange(scores.shape[-1], device=q.device)
    weights = scores.masked_fill(rows > rows[:, None], -torch.inf).softmax(-1)
    per_block = block_size // stride
    return weights.unflatten(3, (-1, per_block)).sum(-1).unflatten(2, (-1, per_block)).sum(3)


def xattention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    block_size: int = 128,
    stride: int = 8,
    threshold: float = 0.9,
    scale: Optional[float] = None,
) -> Tensor:
    """Causal attention to the fewest blocks that have a given share of the weight, estimated by antidiagonal sums.

    Args:
        q: [batch, tokens, heads, d].
        k, v: [batch, tokens, kv_heads, d].
        block_size: tokens per block of queries and of keys.
        stride: distance between the antidiagonals of a block; divides block_size.
        threshold: the share of a row's weight, above 0. A block always sees itself.
        scale: scale of the scores; default: 1/sqrt(d).

    Returns:
        A tensor like q, with the features of v; differentiable with respect to q, k and v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of; stride not dividing block_size.
    """
    if block_size % stride:
        raise ValueError(f"stride: expected a divisor of block_size = {block_size}, given {stride}")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: expected a number above 0 and at most 1, given {threshold}")
    with torch.no_grad():
        weights = _antidiagonal_weights(q, k, block_size, stride, q.shape[-1] ** -0.5 if scale is None else scale)
        blocks = {"q_block_size": block_size, "k_block_size": block_size}
        choice = functions["topk_blocks"](
            weights.clamp(min=torch.finfo(weights.dtype).tiny).log(), weights.shape[-1], share=threshold,
            keep_diagonal=True, **blocks,
        )  # fmt: skip
    out: Tensor = functions["block_sparse_attention"](q, k, v, indices=choice, causal=True, scale=scale, **blocks)[0]
    return out
