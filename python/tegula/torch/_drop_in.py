"""Functions with the signatures of other libraries."""

from __future__ import annotations

from typing import Optional, Tuple, Union

import torch
from torch import Tensor

from ._block_sparse import as_block_numbers
from ._nsa import nsa_selected_attention

Pair = Tuple[Tensor, Tensor]


def native_sparse_attend(
    fq: Tensor,
    fk: Tensor,
    fv: Tensor,
    block_size: int,
    selected_block_indices: Tensor,
    fmask: Tensor,
    sel_scale: Optional[Tensor] = None,
    include_block_causal: bool = True,
    return_lse: bool = False,
    return_sliding_window_out: bool = False,
) -> Union[Tensor, Pair, Tuple[Pair, Pair]]:
    """The fine selection of native sparse attention, in the form of the package native-sparse-attention-pytorch.

    Args:
        fq: [batch, heads, tokens, d]; float32, float16 or bfloat16.
        fk, fv: [batch, kv_heads, tokens, d].
        block_size: keys of a block.
        selected_block_indices: int32 or int64 [batch, heads or kv_heads, tokens, entries].
        fmask: bool, as the indices: which entries count.
        sel_scale: float, as the indices: factors of the scores of the chosen blocks that are 1 (straight through);
            its gradient tells the selector which blocks mattered.
        include_block_causal: a query also sees its own block, and no key after itself.
        return_lse: also give the natural logarithms of the sums of exp(score), float32 [batch, heads, tokens].
        return_sliding_window_out: also give attention over the keys from ``block_size`` before a query to itself.

    Returns:
        out; ``(out, window_out)`` with the window; ``(out, lse)`` or ``((out, window_out), (lse, window_lse))``
        with return_lse.

    Raises:
        TypeError, ValueError, RuntimeError: as ``tegula.attention``.
    """
    if fmask.shape != selected_block_indices.shape or fmask.dtype != torch.bool:
        raise ValueError(
            f"fmask: expected bool {list(selected_block_indices.shape)}, as selected_block_indices, "
            f"given {fmask.dtype} {list(fmask.shape)}"
        )
    choice = torch.where(fmask, as_block_numbers(selected_block_indices), -1)
    results = nsa_selected_attention(
        fq, fk, fv, choice, sel_scale=sel_scale, block_size=block_size, layout="bhsd", causal=include_block_causal,
        diagonal=include_block_causal, window=block_size + 1 if return_sliding_window_out else 0,
    )  # fmt: skip
    if not return_sliding_window_out:
        return (results[0], results[1]) if return_lse else results[0]
    outs, lses = (results[0], results[2]), (results[1], results[3])
    return (outs, lses) if return_lse else outs
