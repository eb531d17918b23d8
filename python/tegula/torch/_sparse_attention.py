"""The module of native-sparse-attention-pytorch, with its arguments and the names of its parameters."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ._drop_in import _merged, native_sparse_attend
from ._functions import functions

Pair = Tuple[Tensor, Tensor]
Cache = Tuple[Pair, Pair]
_NEVER = -1e30  # of a score that is not seen


class _Rotary(nn.Module):
    """Rotary positions of neighbouring features. The rates are a parameter, though none that learns, as in the package:
    its state loads here and the other way round."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.freqs = nn.Parameter(10000.0 ** -(torch.arange(0, dim, 2) / dim), requires_grad=False)

    def forward(self, x: Tensor, first: int) -> Tensor:
        """[batch, heads, tokens, d], of which the first token has the position ``first``."""
        angles = torch.arange(first, first + x.shape[2], device=x.device)[:, None] * self.freqs
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class SparseAttention(nn.Module):
    """Native sparse attention of the package native-sparse-attention-pytorch, on Tegula's operators.

    Args:
        dim, dim_head, heads, kv_heads: features of the input, of a head, query heads, heads of keys.
        sliding_window_size: tokens of the window before the query's own (if not causal, on both sides).
        compress_block_size, compress_block_sliding_stride: length and stride of compressed windows, in tokens.
        selection_block_size, num_selected_blocks: tokens per block, a multiple of the stride; blocks per query.
        num_compressed_mem_kv: learned compressed entries that all queries see.
        causal, norm: hide later tokens; apply an RMS norm to the input. Without a mask, a query that selects nothing has
            a fine branch of 0, and of its own block where there is nothing to select.
        use_diff_topk: the scores of selected blocks train the selection (straight through).
        use_triton_kernel: accepted for compatibility; the fused kernel attends to selected blocks in either case.
        query_heads_share_selected_kv: one selection for the heads of a group.
        compress_mlp, compress_mlp_expand_factor: [..., window, d] to [..., d], copied for keys and values; default: an
            MLP of this hidden width.
        strategy_combine_mlp: maps dim to 3 * heads logits of the branches.

    ``layer(inp)`` takes [batch, tokens, dim]; with ``return_cache`` it returns ``(out, cache)``, and a call with a
    cache continues the earlier tokens.
    """

    def __init__(
        self,
        dim: int,
        dim_head: int,
        heads: int,
        sliding_window_size: int,
        compress_block_size: int,
        compress_block_sliding_stride: int,
        selection_block_size: int,
        num_selected_blocks: int,
        kv_heads: Optional[int] = None,
        num_compressed_mem_kv: int = 1,
        causal: bool = False,
        norm: bool = True,
        use_diff_topk: bool = False,
        use_triton_kernel: bool = False,
        query_heads_share_selected_kv: bool = True,
        compress_mlp: Optional[nn.Module] = None,
        compress_mlp_expand_factor: float = 1.0,
        strategy_combine_mlp: Optional[nn.Module] = None,
    ) -> None:
        super().__init__()
        kv_heads = kv_heads or heads
        if heads % kv_heads:
            raise ValueError(f"heads: expected a multiple of kv_heads = {kv_heads}, given {heads}")
        if not 0 < compress_block_sliding_stride <= compress_block_size:
            raise ValueError(
                f"compress_block_sliding_stride: expected 1 to compress_block_size = {compress_block_size}, "
                f"given {compress_block_sliding_stride}"
            )
        if selection_block_size % compress_block_sliding_stride:
            raise ValueError(
                f"selection_block_size: expected a multiple of the stride {compress_block_sliding_stride}, "
                f"given {selection_block_size}"
            )
        self.dim_head, self.heads, self.kv_heads, self.causal = dim_head, heads, kv_heads, causal
        self.length, self.stride = compress_block_size, compress_block_sliding_stride
        self.window, self.block_size, self.count = sliding_window_size, selection_block_size, num_selected_blocks
        self.use_diff_topk, self.shared = use_diff_topk, query_heads_share_selected_kv
        self.norm = nn.RMSNorm(dim) if norm else nn.Identity()
        self.rotary_emb = _Rotary(dim_head)
        self.to_qkv = nn.Linear(dim, (heads + 2 * kv_heads) * dim_head, bias=False)
        self.compress_mem_kv = nn.Parameter(torch.zeros(2, kv_heads, num_compressed_mem_kv, dim_head))
        self.k_intrablock_positions = nn.Parameter(torch.zeros(kv_heads, compress_block_size, dim_head))
        self.v_intrablock_positions = nn.Parameter(torch.zeros(kv_heads, compress_block_size, dim_head))
        inside = compress_block_size * dim_head
        hidden = int(compress_mlp_expand_factor * inside)
        compress = compress_mlp or nn.Sequential(
            nn.Flatten(-2), nn.Linear(inside, hidden), nn.ReLU(), nn.Linear(hidden, dim_head)
        )
        self.k_compress, self.v_compress = deepcopy(compress), deepcopy(compress)
        if strategy_combine_mlp is None:
            strategy_combine_mlp = nn.Linear(dim, 3 * heads)
            nn.init.zeros_(strategy_combine_mlp.weight)
            # The window comes first: it is what a network learns to use first.
            strategy_combine_mlp.bias.data.copy_(torch.tensor([-2.0, -2.0, 2.0] * heads))
        self.to_strategy_combine = nn.Sequential(strategy_combine_mlp)
        self.combine_heads = nn.Linear(heads * dim_head, dim, bias=False)

    def _entries(self, x: Tensor, positions: Tensor, compress: nn.Module, held: Optional[Tensor]) -> Tensor:
        """Entries of all windows that end in x: window n ends with token (n + 1) * stride - 1; it is preceded by
        zeros."""
        made = held.shape[2] if held is not None else 0
        total = x.shape[2] // self.stride
        if total == made:
            return x[:, :, :0] if held is None else held
        padded = F.pad(x, (0, 0, self.length - self.stride, 0))[:, :, made * self.stride :]
        windows = padded.unfold(2, self.length, self.stride)[:, :, : total - made].transpose(-1, -2)
        new = compress(windows + positions[:, None]).to(x.dtype)
        return new if held is None else torch.cat((held, new), 2)

    def _coarse(self, q: Tensor, ck: Tensor, cv: Tensor, tokens: int) -> Tensor:
        """Attention over the entries that end before the query and the learned ones."""
        memory = [x.expand(q.shape[0], -1, -1, -1).to(q.dtype).contiguous() for x in self.compress_mem_kv]
        if not self.causal:
            keys, values = (torch.cat(pair, 2) for pair in zip(memory, (ck, cv)))
            out: Tensor = functions["attention"](q, keys, values, layout="bhsd")[0]
            return out
        seen = functions["attention"](q, *memory, layout="bhsd")[:2]
        if ck.shape[2] == 0 or tokens < 2:
            return seen[0]
        # A query stands one token earlier here, for it does not see the entry that ends with itself.
        sizes = {"length": self.stride, "stride": self.stride, "layout": "bhsd", "key_tokens": tokens - 1}
        return _merged(functions["nsa_compressed_attention"](q, ck, cv, **sizes)[:2], seen)[0]

    def _importance(self, q: Tensor, ck: Tensor, first: int) -> Tensor:
        """[batch, rows, tokens, blocks]: softmax of the scores of blocks and one score of -1000 for no block."""
        grouped = q.float().unflatten(1, (self.kv_heads, -1))
        scores = torch.einsum("bhgid,bhjd->bhgij", grouped, ck.float()) * self.dim_head**-0.5
        place = torch.arange(first, first + q.shape[2], device=q.device)[:, None]
        if self.causal:
            ends = (torch.arange(ck.shape[2], device=q.device) + 1) * self.stride
            scores = scores.masked_fill(ends > place, _NEVER)
        scores = scores.mean(2) if self.shared else scores.flatten(1, 2)
        per_block = self.block_size // self.stride
        if per_block > 1:
            blocks = scores.shape[-1] // per_block
            scores = scores[..., : blocks * per_block].unflatten(-1, (blocks, per_block)).mean(-1)
            own = torch.arange(blocks, device=q.device) == place // self.block_size
            scores = scores.masked_fill(own, _NEVER)
        return F.pad(scores, (1, 0), value=-1e3).softmax(-1)[..., 1:]

    def _fine(self, q: Tensor, k: Tensor, v: Tensor, ck: Tensor, rotated: Pair, first: int) -> Pair:
        """The branches of selected blocks and of the window."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.use_diff_topk):
            importance = self._importance(q, ck, first)
            values, choice = importance.topk(min(self.count, importance.shape[-1]), -1)
        scale, used = values + (1 - values).detach() if self.use_diff_topk else None, values > 1e-10
        if not self.causal and not choice.shape[-1]:  # no block to select from: a query sees its own
            own = torch.arange(q.shape[2], device=q.device)[:, None] // self.block_size
            choice, scale = own.expand(*choice.shape[:-1], 1), None
            used = choice >= 0
        # The kernel's window is as long as its blocks; here it may be of any length, so it is attention of its own.
        beside = {"left": self.window, "right": 0 if self.causal else self.window, "layout": "bhsd"}
        near = functions["attention"](*rotated, v, causal=self.causal, **beside)[0]
        fine = native_sparse_attend(
            *rotated, v, self.block_size, choice, used, sel_scale=scale, include_block_causal=self.causal,
            distinct_earlier_blocks=True,
        )  # fmt: skip
        assert isinstance(fine, Tensor)
        return fine, near

    def forward(
        self,
        inp: Tensor,
        cache: Optional[Cache] = None,
        disable_triton_kernel: bool = False,
        sliding_window_flex_mask: Any = None,
        fine_selection_flex_mask: Any = None,
        return_cache: bool = False,
    ) -> Union[Tensor, Tuple[Tensor, Cache]]:
        if sliding_window_flex_mask is not None or fine_selection_flex_mask is not None:
            raise ValueError("flex masks: expected None, for the operators need none; leave them out")
        if cache is not None and not self.causal:
            raise ValueError("cache: expected a causal layer: later tokens would change earlier results")
        inp = self.norm(inp)
        widths = [self.heads * self.dim_head] + 2 * [self.kv_heads * self.dim_head]
        projections = self.to_qkv(inp).split(widths, -1)
        q, k, v = (x.unflatten(-1, (-1, self.dim_head)).transpose(1, 2) for x in projections)
        (old_k, old_v), held = cache if cache is not None else ((k[:, :, :0], v[:, :, :0]), (None, None))
        first = old_k.shape[2]
        k, v = torch.cat((old_k, k), 2), torch.cat((old_v, v), 2)
        ck = self._entries(k, self.k_intrablock_positions, self.k_compress, held[0])
        cv = self._entries(v, self.v_intrablock_positions, self.v_compress, held[1])
        fine, near = self._fine(q, k, v, ck, (self.rotary_emb(q, first), self.rotary_emb(k, 0)), first)
        coarse = self._coarse(q, ck, cv, k.shape[2])
        gates = self.to_strategy_combine(inp).unflatten(-1, (self.heads, 3)).transpose(1, 2)
        out = functions["nsa_combine"](coarse.contiguous(), fine.contiguous(), gates, window=near.contiguous())
        out = self.combine_heads(out.transpose(1, 2).flatten(2))
        return (out, ((k, v), (ck, cv))) if return_cache else out
