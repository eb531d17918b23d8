"""Functions with the signatures of flash-linear-attention and of mamba-ssm."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor

from ._functions import functions
from ._recurrent import retention_decays

Results = Tuple[Tensor, Optional[Tensor]]


def _scan(operator: str, tensors: Tuple[Tensor, ...], cu_seqlens: Optional[Tensor], options: dict) -> Results:
    """A call with packed sequences in a batch of 1, as in these libraries."""
    if cu_seqlens is None:
        out, state = functions[operator](*tensors, **options)
        return out, state
    if tensors[0].shape[0] != 1:
        raise ValueError(f"cu_seqlens: packed sequences are a batch of 1, given {tensors[0].shape[0]}")
    for name in ("g", "z"):
        if options.get(name) is not None:
            options[name] = options[name][0]
    own = (x if x.dim() == 1 else x[0] for x in tensors)  # one number of a head is no tensor over tokens
    out, state = functions[operator](*own, cu_seqlens=cu_seqlens.to(torch.int32), **options)
    return out[None], state


def _refuse_heads_first(head_first: bool) -> None:
    if head_first:
        raise ValueError("head_first: expected tensors [batch, tokens, heads, features]; transpose them")


# What these libraries compute ahead for their own kernels.
_hints = {"chunk_size", "chunk_indices", "cu_seqlens_cpu"}


def _refuse_others(options: Dict[str, Any]) -> None:
    """Results do not depend on chunks. Any other option would, and a result without it would be wrong."""
    for name, value in options.items():
        if name not in _hints and value is not None and value is not False:
            raise ValueError(f"{name}: expected none, given {value!r}: there is no such option; leave it out")
    chunk_size = options.get("chunk_size")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size: expected at least 1, given {chunk_size}; leave it out, results do not depend on it")


def _decays(g: Tensor, rates: Optional[Tensor], bias: Optional[Tensor]) -> Tensor:
    """Logarithms of decays of the raw gates of a layer."""
    if rates is None:
        raise ValueError("A_log: expected rates of heads with use_gate_in_kernel, given None; give them")
    return -rates.float().exp() * F.softplus(g.float() if bias is None else g.float() + bias.float())


def _turned(state: Optional[Tensor], wanted: bool) -> Optional[Tensor]:
    return state.mT if wanted and state is not None else state


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    head_first: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    **others: Any,
) -> Results:
    """``tegula.torch.gated_delta_rule`` with the signature of flash-linear-attention's function of this name.

    Args:
        q, k: [batch, tokens, heads, d]; v: [batch, tokens, value heads, d_v], a multiple of the heads.
        g, beta: [batch, tokens, value heads]: logarithms of the decays, at most 0, and the writing strength.
        scale: scale of the results; default: 1/sqrt(d).
        initial_state: [batch or sequences, value heads, d, d_v].
        output_final_state: also return the states after the last token.
        use_qk_l2norm_in_kernel: divide q and k by their norms.
        use_beta_sigmoid_in_kernel: beta are logits, of which shares are the sigmoid.
        allow_neg_eigval: twice these shares; with use_beta_sigmoid_in_kernel.
        state_v_first: states are [batch or sequences, value heads, d_v, d].
        cu_seqlens: boundaries of packed sequences in a batch of 1.
        use_gate_in_kernel: logarithms of decays are -exp(A_log) * softplus(g + dt_bias).
        A_log, dt_bias: [value heads].
        others: chunk_size, chunk_indices and cu_seqlens_cpu are ignored, because results do not depend on them; the
            rest is refused.

    Returns:
        (out, final_state or None).

    Raises:
        TypeError, ValueError, RuntimeError: as ``gated_delta_rule``.
    """
    _refuse_heads_first(head_first)
    _refuse_others(others)
    if allow_neg_eigval and not use_beta_sigmoid_in_kernel:
        raise ValueError("allow_neg_eigval: expected use_beta_sigmoid_in_kernel beside it; give twice the shares as beta")
    if use_beta_sigmoid_in_kernel:
        beta = beta.sigmoid() * (2 if allow_neg_eigval else 1)
    if use_gate_in_kernel:
        g = _decays(g, A_log, dt_bias)
    options = {
        "g": g.float(), "scale": scale, "initial_state": _turned(initial_state, state_v_first),
        "output_final_state": output_final_state, "qk_l2norm": use_qk_l2norm_in_kernel,
    }  # fmt: skip
    out, state = _scan("gated_delta_rule", (q, k, v, beta), cu_seqlens, options)
    return out, _turned(state, state_v_first)


def fused_chunk_linear_attn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: Union[Tensor, Tuple[Tensor, Tensor], None] = None,
    output_final_state: bool = False,
    normalize: bool = True,
    cu_seqlens: Optional[Tensor] = None,
    head_first: bool = False,
) -> Tuple[Tensor, Union[Tensor, Tuple[Tensor, Tensor], None]]:
    """``tegula.torch.linear_attention`` with the signature of flash-linear-attention's function of this name.

    Args:
        q, k: [batch, tokens, heads, d]; v: [batch, tokens, heads, d_v].
        scale: scale of the scores; default: 1/sqrt(d).
        initial_state: [batch or sequences, heads, d, d_v]; to normalize also a tuple of it and the sums of the keys
            before, [batch or sequences, 1, heads, d], without which results are divided by the sums of the weights of
            this call's tokens alone.
        output_final_state: also return the states after the last token.
        normalize: divide results by the sums of their weights.
        cu_seqlens: boundaries of packed sequences in a batch of 1.

    Returns:
        (out, final_state or None): normalised where a tuple was given, final_state is one.

    Raises:
        TypeError, ValueError, RuntimeError: as ``linear_attention``.
    """
    _refuse_heads_first(head_first)
    with_sums = isinstance(initial_state, tuple)
    if isinstance(initial_state, tuple):
        if not normalize:
            raise ValueError("initial_state: expected a tensor without normalize, given a tuple; leave the sums out")
        initial_state = torch.cat((initial_state[0], initial_state[1].squeeze(1)[..., None]), -1)
    elif normalize and initial_state is not None:
        initial_state = F.pad(initial_state, (0, 1))
    options = {
        "scale": scale, "initial_state": initial_state, "output_final_state": output_final_state,
        "normalize": normalize,
    }  # fmt: skip
    out, state = _scan("linear_attention", (q, k, v), cu_seqlens, options)
    if not normalize or state is None:
        return out, state
    return out, (state[..., :-1], state[..., -1].unsqueeze(1)) if with_sums else state[..., :-1]


def chunk_retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    head_first: bool = False,
    **others: Any,
) -> Results:
    """Retention, with the signature of flash-linear-attention's function of this name.

    Args:
        q, k: [batch, tokens, heads, d]; v: [batch, tokens, heads, d_v]. Decays are ``retention_decays(heads)``.
        scale: scale of the results; default: 1/sqrt(d).
        initial_state: [batch or sequences, heads, d, d_v].
        output_final_state: also return the states after the last token.
        cu_seqlens: boundaries of packed sequences in a batch of 1.
        others: as of ``chunk_gated_delta_rule``.

    Returns:
        (out, final_state or None).

    Raises:
        TypeError, ValueError, RuntimeError: as ``linear_attention``.
    """
    _refuse_heads_first(head_first)
    _refuse_others(others)
    options = {
        "g_gamma": retention_decays(v.shape[2]).to(v.device), "scale": scale, "initial_state": initial_state,
        "output_final_state": output_final_state,
    }  # fmt: skip
    return _scan("linear_attention", (q, k, v), cu_seqlens, options)


def mamba_chunk_scan_combined(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Optional[Tensor] = None,
    z: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    initial_states: Optional[Tensor] = None,
    seq_idx: Optional[Tensor] = None,
    cu_seqlens: Optional[Tensor] = None,
    dt_softplus: bool = False,
    dt_limit: Tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
) -> Union[Tensor, Tuple[Tensor, ...]]:
    """``tegula.torch.ssd`` with the signature of mamba-ssm's function of this name.

    Args:
        x: [batch, tokens, heads, p]; dt: [batch, tokens, heads]; A: [heads], at most 0.
        B, C: [batch, tokens, groups, n].
        chunk_size: ignored, because results do not depend on it.
        D: [heads], or [heads, p]: D * x is added to the result.
        z: like x: the result is multiplied by silu(z).
        dt_bias: [heads], added to dt.
        initial_states: [batch, heads, p, n].
        seq_idx: [batch, tokens]: states are reset where it changes.
        cu_seqlens: boundaries of packed sequences in a batch of 1, for return_varlen_states.
        dt_softplus, dt_limit: step sizes are log(1 + exp(dt + dt_bias)), clamped to the limit.
        return_final_states: also return the states after the last token of each batch entry.
        return_varlen_states: also return those after the last token of each packed sequence.

    Returns:
        out, or a tuple of out and the requested states.

    Raises:
        TypeError, ValueError, RuntimeError: as ``ssd``.
    """
    _refuse_others({"chunk_size": chunk_size})
    if seq_idx is not None and initial_states is not None:
        raise ValueError("initial_states: expected none beside seq_idx, whose sequences begin with zeros; give either")
    if return_varlen_states and cu_seqlens is None:
        raise ValueError("return_varlen_states: expected cu_seqlens, which say where sequences end")
    dt, dt_bias, dt_softplus = _step_sizes(dt, dt_bias, dt_softplus, dt_limit)
    wide = D if D is not None and D.dim() == 2 else None
    options = {
        "D": None if wide is not None or D is None else D.float(), "z": z if wide is None else None,
        "dt_bias": dt_bias, "dt_softplus": dt_softplus,
        "initial_state": initial_states, "output_final_state": return_final_states or return_varlen_states,
    }  # fmt: skip
    fences = cu_seqlens if return_varlen_states else None if seq_idx is None else _fences(seq_idx)
    tensors = (x, dt, A.float(), B, C)
    if fences is not None and x.shape[0] > 1:
        tensors = tuple(t if t.dim() == 1 else t.flatten(0, 1)[None] for t in tensors)
        options["z"] = None if options["z"] is None else options["z"].flatten(0, 1)[None]
    out, states = _scan("ssd", tensors, fences, options)
    out = out.reshape(x.shape)
    if wide is not None:
        out = out + (x * wide).to(out.dtype)
        out = out if z is None else out * F.silu(z)
    if states is None:
        return out
    last = states if fences is None else _states_at_ends(states, fences, *x.shape[:2])
    return (out, *([last] if return_final_states else []), *([states] if return_varlen_states else []))


def _step_sizes(
    dt: Tensor, bias: Optional[Tensor], softplus: bool, limit: Tuple[float, float]
) -> Tuple[Tensor, Optional[Tensor], bool]:
    """Step sizes, their bias and whether they are inputs of softplus, as ``ssd`` takes them, which has no limits."""
    if limit == (0.0, float("inf")):
        return dt, None if bias is None else bias.float(), softplus
    dt = dt.float() if bias is None else dt.float() + bias
    return (F.softplus(dt) if softplus else dt).clamp(*limit), None, False


def _states_at_ends(states: Tensor, fences: Tensor, batch: int, tokens: int) -> Tensor:
    """Of the states after each sequence, those after the last sequence of each batch entry."""
    ends = torch.arange(1, batch + 1, device=fences.device) * tokens
    return states[torch.searchsorted(fences.to(ends.dtype), ends) - 1]


def _fences(seq_idx: Tensor) -> Tensor:
    """Boundaries of the sequences of a batch when concatenated."""
    starts = torch.ones_like(seq_idx, dtype=torch.bool)
    starts[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    return F.pad(starts.flatten().nonzero()[:, 0], (0, 1), value=seq_idx.numel()).to(torch.int32)
