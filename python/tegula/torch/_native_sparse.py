"""All of native sparse attention (Yuan et al., 2025): a function, and a module with a cache for decoding."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch
from torch import Tensor, nn

from .._tables import evaluate, tables
from ._functions import functions
from ._rotary import positions_of, rotated

Pair = Tuple[Tensor, Tensor]


_fast = dict(tables["nsa_decode"].derived)["fast"]


def _is_decoded(q: Tensor, k: Tensor, v: Tensor, layout: str, block_size: int) -> bool:
    """Whether one operator of all branches takes the call and is the fast way, as its table says."""
    if not q.dim() == k.dim() == v.dim() == 4:
        return False
    tokens, heads = (2, 1) if layout == "bhsd" else (1, 2)
    values = {
        "queries": q.shape[tokens], "keys": k.shape[tokens], "group": q.shape[heads] // max(k.shape[heads], 1),
        "d": q.shape[3], "d_v": v.shape[3], "block_size": block_size,
    }  # fmt: skip
    return bool(evaluate(_fast, values))


def native_sparse_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gates: Tensor,
    *,
    length: int = 32,
    stride: int = 16,
    block_size: int = 64,
    count: int = 16,
    first_blocks: int = 1,
    local_blocks: int = 2,
    window: int = 512,
    scale: Optional[float] = None,
    compressed: Optional[Pair] = None,
    layout: str = "bshd",
    cu_seqlens: Optional[Tensor] = None,
    max_seqlen: int = 0,
) -> Tensor:
    """Attention over compressed entries, selected blocks and a window, summed with gates; differentiable.

    Args:
        q: [batch, tokens, heads, d]; float32, float16 or bfloat16. The last query is aligned with the last key.
        k, v: [batch, keys, kv_heads, d] and d_v.
        gates: [batch, tokens, heads, 3], or 2 without a window: logits of the branches in this order.
        length, stride: of the windows whose means are the compressed entries.
        block_size, count: tokens per block, and blocks that a token selects.
        first_blocks, local_blocks: number of blocks at the beginning, and up to the token's own, that are always
            selected.
        window: tokens of the window, which ends with the query's own; 0: no window.
        scale: factor of the scores; 1/sqrt(d) by default.
        compressed: keys and values of the entries computed by the caller; default: means.
        layout: "bshd", or "bhsd" with heads before tokens in all tensors.
        cu_seqlens: packed sequences, as in ``nsa_compress``; then no tensor has a batch.
        max_seqlen: an upper bound on the tokens of a sequence.

    Returns:
        A tensor like q, with the features of v.

    Raises:
        TypeError, ValueError, RuntimeError: like the operators that it is composed of.
    """
    packed = {"layout": layout, "cu_seqlens": cu_seqlens, "max_seqlen": max_seqlen}
    windows = {"length": length, "stride": stride, **packed}
    coarse_k, coarse_v = compressed or (functions["nsa_compress"](x, **windows) for x in (k, v))
    tokens = 0 if cu_seqlens is not None else k.shape[2 if layout == "bhsd" else 1]
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, gates, coarse_k, coarse_v))
    forced = {"block_size": block_size, "first_blocks": first_blocks, "local_blocks": local_blocks}
    if not learns and cu_seqlens is None and _is_decoded(q, k, v, layout, block_size):
        own = {"length": length, "stride": stride, "layout": layout, "count": count, "window": window, "scale": scale}
        decoded: Tensor = functions["nsa_decode"](q, k, v, coarse_k, coarse_v, gates, **own, **forced)
        return decoded
    seen = {"key_tokens": tokens, "scale": scale, **windows}
    coarse, lse = functions["nsa_compressed_attention"](q, coarse_k, coarse_v, **seen)
    blocks = functions["nsa_select"](q, coarse_k, lse, count, **forced, **seen)
    chosen = {
        "block_size": block_size, "window": window, "scale": scale, "layout": layout,
        "cu_seqlens_q": cu_seqlens, "cu_seqlens_k": cu_seqlens,
        "max_seqlen_q": max_seqlen, "max_seqlen_k": max_seqlen,
    }  # fmt: skip
    whole: Tensor = functions["nsa_gated_attention"](q, k, v, blocks, coarse, gates, keep_branches=learns, **chosen)[0]
    return whole


class _Growing:
    """Appends rows along dimension 1, in memory that grows by doubling."""

    def __init__(self) -> None:
        self.memory: Optional[Tensor] = None
        self.rows = 0

    def add(self, rows: Tensor) -> Tensor:
        if self.memory is not None and rows.shape[0] != self.memory.shape[0]:
            raise ValueError(f"x: expected a batch of {self.memory.shape[0]}, as the cache has, given {rows.shape[0]}")
        total = self.rows + rows.shape[1]
        if self.memory is None or total > self.memory.shape[1]:
            grown = rows.new_empty(rows.shape[0], max(2 * total, 64), *rows.shape[2:])
            if self.memory is not None:
                grown[:, : self.rows] = self.memory[:, : self.rows]
            self.memory = grown
        self.memory[:, self.rows : total] = rows
        self.rows = total
        return self.memory[:, :total]


class NativeSparseCache:
    """The state of ``NativeSparseAttention`` for earlier tokens: keys, values and their compressed entries."""

    def __init__(self) -> None:
        self._k, self._v, self._coarse_k, self._coarse_v = (_Growing() for _ in range(4))

    @property
    def tokens(self) -> int:
        return self._k.rows

    def add(self, k: Tensor, v: Tensor, compress: Any, stride: int) -> Tuple[Tensor, Tensor, Pair]:
        """Appends keys and values, adds entries for completed windows, and returns all of them."""
        k, v = self._k.add(k), self._v.add(v)
        begin = self._coarse_k.rows * stride
        return k, v, (
            self._coarse_k.add(compress(k[:, begin:], None, 0)),
            self._coarse_v.add(compress(v[:, begin:], None, 1)),
        )  # fmt: skip


class _Windows(nn.Module):
    """Entries of overlapping windows of x [batch, tokens, heads, d], made by ``entries_of`` [..., length, heads, d]."""

    def __init__(self, length: int, stride: int) -> None:
        super().__init__()
        self.length, self.stride = length, stride

    def entries_of(self, windows: Tensor) -> Tensor:
        raise NotImplementedError

    def _packed(self, x: Tensor, cu_seqlens: Tensor) -> Tensor:
        """Entries of packed sequences [tokens, heads, d], in the rows that ``nsa_compress`` uses."""
        begins, ends = cu_seqlens[:-1].long(), cu_seqlens[1:].long()
        counts = ((ends - begins - self.length) // self.stride + 1).clamp(min=0)
        begins, counts = begins[counts > 0], counts[counts > 0]
        rows = torch.arange(x.shape[0] // self.stride, device=x.device)
        if not len(begins):
            return x.new_zeros(len(rows), *x.shape[1:])
        sequence = (torch.searchsorted(begins // self.stride, rows, right=True) - 1).clamp(min=0)
        number = rows - (begins // self.stride)[sequence]
        there = (number >= 0) & (number < counts[sequence])
        starts = torch.where(there, begins[sequence] + number * self.stride, 0)
        tokens = starts[:, None] + torch.arange(self.length, device=x.device)
        return self.entries_of(x[tokens]).to(x.dtype).masked_fill(~there[:, None, None], 0)

    def forward(self, x: Tensor, cu_seqlens: Optional[Tensor] = None) -> Tensor:
        if cu_seqlens is not None:
            return self._packed(x, cu_seqlens)
        if x.shape[1] < self.length:
            return x[:, :0]
        windows = x.unfold(1, self.length, self.stride)  # [batch, entries, heads, d, length]
        return self.entries_of(windows.movedim(-1, -3)).to(x.dtype).contiguous()


class _GatedMeans(_Windows):
    """Weighted means: each token's weight, by its own features and its place in the window, is softmax over it."""

    def __init__(self, dim: int, length: int, stride: int) -> None:
        super().__init__(length, stride)
        self.weigh = nn.Linear(dim, 1, bias=False)
        self.places = nn.Parameter(torch.zeros(length))

    def entries_of(self, windows: Tensor) -> Tensor:
        weights = (self.weigh(windows) + self.places.to(windows.dtype)[:, None, None]).softmax(-3)
        return (windows * weights).sum(-3)


class _Mlp(_Windows):
    """By an MLP of one hidden layer of all features of a window, to which a vector for each place is added."""

    def __init__(self, dim: int, length: int, stride: int) -> None:
        super().__init__(length, stride)
        self.places = nn.Parameter(torch.zeros(length, dim))
        self.inner, self.outer = nn.Linear(length * dim, 2 * dim), nn.Linear(2 * dim, dim)

    def entries_of(self, windows: Tensor) -> Tensor:
        placed = windows + self.places.to(windows.dtype)[:, None]
        return self.outer(torch.nn.functional.silu(self.inner(placed.movedim(-3, -2).flatten(-2))))


_LEARNED = {"gated": _GatedMeans, "mlp": _Mlp}


class NativeSparseAttention(nn.Module):
    """A layer of native sparse attention: projections, rotary positions, compression, selection, window and gates.

    Args:
        width: features of x and the result.
        heads, kv_heads: heads of queries; heads of keys and values, default: as many.
        dim: features of a head, even; default: width / heads.
        compression: "mean"; learned: "gated", windows weighted by a softmax, or "mlp", an MLP over each window.
        rotary_base: base of the rotary positions; None: no positions.
        length, stride, block_size, count, first_blocks, local_blocks, window: as ``native_sparse_attention``.

    ``layer(x)`` takes x [batch, tokens, width], or packed [tokens, width] with ``cu_seqlens``. With a
    ``NativeSparseCache`` the tokens continue those of earlier calls, and the results are those of the whole sequence.
    The cache is for inference, under ``torch.no_grad()``.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: Optional[int] = None,
        *,
        dim: Optional[int] = None,
        compression: str = "mean",
        rotary_base: Optional[float] = 10000.0,
        length: int = 32,
        stride: int = 16,
        block_size: int = 64,
        count: int = 16,
        first_blocks: int = 1,
        local_blocks: int = 2,
        window: int = 512,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads or heads, dim or width // heads
        if heads % self.kv_heads:
            raise ValueError(f"heads: expected a multiple of kv_heads = {self.kv_heads}, given {heads}")
        if rotary_base is not None and self.dim % 2:
            raise ValueError(f"dim: expected an even number for rotary positions, given {self.dim}")
        if compression != "mean" and compression not in _LEARNED:
            raise ValueError(f"compression: expected 'mean', 'gated' or 'mlp', given {compression!r}")
        self.width, self.rotary_base, self.length, self.stride = width, rotary_base, length, stride
        self.sizes = {
            "length": length, "stride": stride, "block_size": block_size, "count": count,
            "first_blocks": first_blocks, "local_blocks": local_blocks, "window": window,
        }  # fmt: skip
        self.project = nn.Linear(width, (heads + 2 * self.kv_heads) * self.dim, bias=False)
        self.gate = nn.Linear(width, heads * (3 if window > 0 else 2))
        self.merge = nn.Linear(heads * self.dim, width, bias=False)
        learned = _LEARNED.get(compression)
        self.compression = nn.ModuleList(learned(self.dim, length, stride) for _ in range(2 if learned else 0))

    def _compress(self, x: Tensor, cu_seqlens: Optional[Tensor], which: int) -> Tensor:
        if len(self.compression):
            return self.compression[which](x, cu_seqlens)
        return functions["nsa_compress"](x, length=self.length, stride=self.stride, cu_seqlens=cu_seqlens)

    def _projected(self, x: Tensor, cu_seqlens: Optional[Tensor], before: int) -> Tuple[Tensor, Tensor, Tensor]:
        shapes = [self.heads * self.dim, self.kv_heads * self.dim, self.kv_heads * self.dim]
        q, k, v = (rows.unflatten(-1, (-1, self.dim)) for rows in self.project(x).split(shapes, -1))
        if self.rotary_base is not None:
            positions = positions_of(x, cu_seqlens, before)
            q, k = rotated(positions, self.rotary_base, q, k)
        return q, k, v

    @torch.no_grad()
    def select(self, x: Tensor, cu_seqlens: Optional[Tensor] = None) -> Tensor:
        """The blocks that the tokens of x select, in the form of ``nsa_select``."""
        q, k, _ = self._projected(x, cu_seqlens, 0)
        entries, sizes = self._compress(k, cu_seqlens, 0), self.sizes
        seen = {"length": self.length, "stride": self.stride, "cu_seqlens": cu_seqlens}
        lse = functions["nsa_compressed_attention"](q, entries, entries, **seen)[1]
        forced = {name: sizes[name] for name in ("block_size", "first_blocks", "local_blocks")}
        chosen: Tensor = functions["nsa_select"](q, entries, lse, sizes["count"], **forced, **seen)
        return chosen

    def _check(self, x: Tensor, cu_seqlens: Optional[Tensor]) -> None:
        shape = ["batch", "tokens", self.width] if cu_seqlens is None else ["tokens", self.width]
        if x.dim() != len(shape) or x.shape[-1] != self.width:
            named = ", ".join(map(str, shape))
            raise ValueError(
                f"x: expected [{named}], given {list(x.shape)}; sequences packed by cu_seqlens have no batch"
            )

    def forward(
        self, x: Tensor, cache: Optional[NativeSparseCache] = None, cu_seqlens: Optional[Tensor] = None
    ) -> Tensor:
        if cu_seqlens is not None and cache is not None:
            raise ValueError("cu_seqlens: packed sequences have no cache; pass them one by one")
        self._check(x, cu_seqlens)
        q, k, v = self._projected(x, cu_seqlens, cache.tokens if cache else 0)
        if cache is not None:
            k, v, compressed = cache.add(k, v, self._compress, self.stride)
        else:
            compressed = (self._compress(k, cu_seqlens, 0), self._compress(v, cu_seqlens, 1))
        gates = self.gate(x).unflatten(-1, (self.heads, -1))
        out = native_sparse_attention(
            q, k, v, gates, compressed=compressed, cu_seqlens=cu_seqlens, **self.sizes
        )
        return self.merge(out.flatten(-2))
