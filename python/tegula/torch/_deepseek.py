"""A layer of DeepSeek sparse attention: latent attention to the keys selected by an indexer."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from ._functions import functions
from ._rotary import rotated


class LatentCache(NamedTuple):
    """The keys of earlier tokens: rows [batch, tokens, 1, latent + rope] and index keys [batch, tokens, index_dim]."""

    rows: Tensor
    index_keys: Tensor


def _turned(x: Tensor, first: int) -> Tensor:
    """[batch, tokens, heads, d], with rotary positions, where the first token is at position `first`."""
    return rotated(torch.arange(first, first + x.shape[1], device=x.device), 10000.0, x)[0]


class DeepseekSparseAttention(nn.Module):
    """Multi-head latent attention in which every token sees the `top_k` tokens selected by a lightning indexer.

    A key consists of `latent` features, which are also the value of all heads, and `rope` features with a rotary
    embedding. The indexer is trained only by `index_loss`: its inputs are detached, because the selection has no
    gradient.

    Args:
        dim: features of tokens.
        heads: query heads.
        latent, rope: features of a key, at most 512 and 64.
        nope, value: features of a head's query before it is projected to the latent, and of its value.
        index_heads, index_dim: heads of the indexer, and their features.
        top_k: number of tokens that each token sees, at most 4096.
        dense: whether tokens see all earlier tokens, for example while the indexer warms up.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        latent: int = 512,
        rope: int = 64,
        nope: int = 128,
        value: int = 128,
        index_heads: int = 64,
        index_dim: int = 128,
        top_k: int = 2048,
        dense: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.latent, self.rope, self.nope, self.value = heads, latent, rope, nope, value
        self.index_heads, self.index_dim, self.top_k, self.dense = index_heads, index_dim, top_k, dense
        self.query = nn.Linear(dim, heads * (nope + rope), bias=False)
        self.row = nn.Linear(dim, latent + rope, bias=False)
        self.norm = nn.LayerNorm(latent)
        self.key_up = nn.Parameter(torch.randn(heads, nope, latent) * nope**-0.5)
        self.value_up = nn.Parameter(torch.randn(heads, latent, value) * latent**-0.5)
        self.out = nn.Linear(heads * value, dim, bias=False)
        self.index_query = nn.Linear(dim, index_heads * index_dim, bias=False)
        self.index_key = nn.Sequential(nn.Linear(dim, index_dim, bias=False), nn.LayerNorm(index_dim))
        self.index_weights = nn.Linear(dim, index_heads, bias=False)

    def _queries(self, x: Tensor, first: int) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads, self.nope + self.rope))
        plain, rotated = q.split((self.nope, self.rope), -1)
        return torch.cat((torch.einsum("bthn,hnl->bthl", plain, self.key_up), _turned(rotated, first)), -1)

    def _rows(self, x: Tensor, first: int) -> Tensor:
        latent, rotated = self.row(x).split((self.latent, self.rope), -1)
        return torch.cat((self.norm(latent)[:, :, None], _turned(rotated[:, :, None], first)), -1)

    def _index(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        q = self.index_query(x).unflatten(-1, (self.index_heads, self.index_dim))
        return q, self.index_weights(x) * (self.index_heads * self.index_dim) ** -0.5

    def _chosen(self, q: Tensor, weights: Tensor, keys: Tensor) -> Tensor:
        """int32 [batch, tokens, entries]."""
        if not self.dense:
            count = min(self.top_k, keys.shape[1])
            with torch.no_grad():
                return functions["indexer_topk"](q, keys, weights, count, causal=True)
        every = torch.arange(keys.shape[1], device=keys.device, dtype=torch.int32)
        return every.expand(q.shape[0], q.shape[1], -1).contiguous()

    def forward(
        self, x: Tensor, cache: Optional[LatentCache] = None, *, with_index_loss: bool = False
    ) -> Tuple[Tensor, LatentCache, Optional[Tensor]]:
        """(out, the cache with these tokens, the indexer's loss if requested) for x [batch, tokens, dim].

        The loss is the mean over tokens of the divergence of the indexer's probabilities from those of attention,
        averaged over heads, over the visible tokens.
        """
        first = 0 if cache is None else cache.rows.shape[1]
        rows, index_keys = self._rows(x, first), self.index_key(x.detach())
        if cache is not None:
            rows = torch.cat((cache.rows, rows), 1)
            index_keys = torch.cat((cache.index_keys, index_keys), 1)
        q, (index_q, weights) = self._queries(x, first), self._index(x.detach())
        chosen = self._chosen(index_q, weights, index_keys)
        scale = (self.nope + self.rope) ** -0.5
        lists = chosen[:, :, None]
        out, lse = functions["sparse_mla"](q, rows, lists, d_v=self.latent, causal=True, scale=scale)
        values = torch.einsum("bthl,hlv->bthv", out, self.value_up)
        loss = None
        if with_index_loss:
            with torch.no_grad():
                target = functions["sparse_mla_target"](q, rows, lists, lse, causal=True, scale=scale)[:, :, 0]
            logits = functions["indexer_logits"](index_q, index_keys, weights, causal=True)
            loss = _divergence(target, logits, chosen, first)
        return self.out(values.flatten(2)), LatentCache(rows, index_keys), loss


def _divergence(target: Tensor, logits: Tensor, chosen: Tensor, first: int) -> Tensor:
    positions = torch.arange(first, first + chosen.shape[1], device=chosen.device)[None, :, None]
    seen = (chosen >= 0) & (chosen <= positions)
    own = logits.gather(2, chosen.clamp(min=0).long()).masked_fill(~seen, -torch.inf)
    predicted = own.log_softmax(-1).masked_fill(~seen, 0)
    share = target / target.sum(-1, keepdim=True).clamp(min=torch.finfo(target.dtype).tiny)
    return (torch.special.xlogy(share, share) - share * predicted).sum(-1).mean()
