"""Refuses unknown keyword arguments, with a hint at the intended one."""

from __future__ import annotations

import difflib
from typing import Any, Mapping, Sequence

# What other libraries call the options of attention.
_hints = {
    "attn_mask": "masks of blocks are those of block_sparse_attention, and causal, left and right are windows",
    "dropout_p": "there is no dropout; leave it out",
    "enable_gqa": "k and v may have fewer heads than q without it; leave it out",
    "is_causal": "it is called causal here, and the last query stands at the last key",
    "need_weights": "the weights are never stored; leave it out",
    "sm_scale": "it is called scale here",
    "softmax_scale": "it is called scale here",
    "window_size": "it is given by left and right here",
}


def refuse_keywords(function: str, given: Mapping[str, Any], known: Sequence[str] = ()) -> None:
    """Refuses keyword arguments that the function does not have, as Python does, with a hint if there is one."""
    for name in given:
        close = difflib.get_close_matches(name, known, 1)
        hint = f"; {_hints[name]}" if name in _hints else f"; did you mean '{close[0]}'?" if close else ""
        raise TypeError(f"{function}() got an unexpected keyword argument '{name}'{hint}")
