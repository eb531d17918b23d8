"""Gradients composed of calls of other operators, for tables that name no gradient operator."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Set

import torch
from torch import Tensor

Named = Dict[str, Any]


def _slope(activation: str, z: Tensor, dout: Tensor) -> Tensor:
    """The gradient of z from that of its activation."""
    if activation == "none":
        return dout
    if activation == "relu":
        return dout * (z > 0)
    if activation == "silu":
        return torch.ops.aten.silu_backward(dout, z)
    return torch.ops.aten.gelu_backward(dout, z, approximate="tanh")


def _activated(activation: str, z: Tensor) -> Tensor:
    functions = torch.nn.functional
    if activation == "gelu":
        return functions.gelu(z, approximate="tanh")
    return {"none": torch.clone, "relu": functions.relu, "silu": functions.silu}[activation](z)


def _before_activation(call: Callable[..., Tensor], tensors: Named, options: Named, dout: Tensor) -> Tensor:
    """The gradient of the activation's argument, which is recomputed."""
    activation, gated = options["activation"], options["gated"]
    if activation == "none" and not gated:
        return dout
    plain = {**options, "activation": "none", "gated": False, "out_scale": 1.0, "out_dtype": "float32"}
    z, dout = call({**tensors, "residual": None}, plain), dout.float()
    if not gated:
        return _slope(activation, z, dout)
    gates, values = z.chunk(2, -1)
    return torch.cat([_slope(activation, gates, dout * values), _activated(activation, gates) * dout], -1)


def _as_given(gradient: Tensor, transposed: bool, like: Tensor) -> Tensor:
    """A gradient in the shape of its argument: transposed back, and summed if one matrix was broadcast over the
    batch."""
    if transposed:
        gradient = gradient.transpose(-1, -2)
    if gradient.dim() > like.dim():
        return gradient.sum(0)
    return gradient.sum(0, keepdim=True) if gradient.shape[0] != like.shape[0] else gradient


def _gemm(call: Callable[..., Tensor], tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    a, b, bias = tensors["a"], tensors["b"], tensors["bias"]
    rows, columns, residual = tensors["row_scale"], tensors["column_scale"], tensors["residual"]
    transpose_a, transpose_b, scale = options["transpose_a"], options["transpose_b"], options["scale"]
    dout, precision = gradients["dout"], options["precision"]
    if options["out_scale"] != 1:
        dout = dout.float() * options["out_scale"]
    dz = _before_activation(call, tensors, options, dout)
    made: Named = {}
    if "residual" in needed:
        made["residual"] = dout.to(residual.dtype)
    if "bias" in needed:
        made["bias"] = dz.float().flatten(0, -2).sum(0).to(bias.dtype)
    factors = 1.0 if rows is None else rows[:, None]
    factors = factors if columns is None else factors * columns
    if needed & {"row_scale", "column_scale"}:
        given = {"transpose_a": transpose_a, "transpose_b": transpose_b, "scale": scale, "out_dtype": "float32"}
        given["precision"] = precision
        shares = dz.float() * call({"a": a, "b": b}, given)
        shares = shares.sum(0) if shares.dim() == 3 else shares
        if "row_scale" in needed:
            made["row_scale"] = (shares if columns is None else shares * columns).sum(1)
        if "column_scale" in needed:
            made["column_scale"] = (shares if rows is None else shares * rows[:, None]).sum(0)
    dz = (dz if rows is None and columns is None else dz.float() * factors).to(a.dtype)
    if "a" in needed:
        da = call({"a": dz, "b": b}, {"transpose_b": not transpose_b, "scale": scale, "precision": precision})
        made["a"] = _as_given(da, transpose_a, a)
    if "b" in needed:
        db = call({"a": a, "b": dz}, {"transpose_a": not transpose_a, "scale": scale, "precision": precision})
        made["b"] = _as_given(db, transpose_b, b)
    return made


def _gemv(call: Callable[..., Tensor], tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    a, x, dout = tensors["a"], tensors["x"], gradients["dout"]
    transposed, scale = options["transpose_a"], options["scale"]
    made: Named = {}
    if "x" in needed:
        dx = call({"a": a, "x": dout.to(x.dtype)}, {"transpose_a": not transposed, "scale": scale})
        made["x"] = _as_given(dx, False, x)
    if "a" in needed:
        made["a"] = _as_given(scale * dout[..., :, None] * x[..., None, :], transposed, a).to(a.dtype)
    return made


def _grouped_gemm(
    call: Callable[..., Tensor], tensors: Named, options: Named, gradients: Named, needed: Set[str]
) -> Named:
    from . import grouped_gemm_weights  # type: ignore[attr-defined]

    a, b, offsets, counts = tensors["a"], tensors["b"], tensors["offsets"], tensors["counts"]
    transposed = options["transpose_b"]
    both = {"max_rows": options["max_rows"], "precision": options["precision"]}
    dout = gradients["dout"].to(a.dtype)
    if counts is not None:
        counted = torch.arange(a.shape[1], device=a.device) < counts[:, None]
        a, dout = (rows.masked_fill(~counted[..., None], 0) for rows in (a, dout))
    made: Named = {}
    if "a" in needed:
        made["a"] = call({"a": dout, "b": b, "offsets": offsets}, {"transpose_b": not transposed, **both})
    if "b" in needed:
        if offsets is None:
            db = a.transpose(1, 2) @ dout
        else:
            db = grouped_gemm_weights(a, dout, offsets, **both).to(b.dtype)
        made["b"] = db.transpose(1, 2) if transposed else db
    if "bias" in needed:
        made["bias"] = _sums_of_groups(dout, offsets).to(tensors["bias"].dtype)
    return made


def _sums_of_groups(rows: Tensor, offsets: Optional[Tensor]) -> Tensor:
    if offsets is None:
        return rows.float().sum(1)
    # Rows after the last group belong to none.
    numbers = torch.arange(rows.shape[0], device=rows.device)
    groups = torch.searchsorted(offsets[1:].long().contiguous(), numbers, right=True)
    sums = torch.zeros(offsets.shape[0], rows.shape[1], dtype=torch.float32, device=rows.device)
    return sums.index_add(0, groups, rows.float())[:-1]


def _lengths(x: Tensor, size: int) -> Tensor:
    """The number of rows of each block; the last may be shorter."""
    starts = torch.arange(0, x.shape[2], size, device=x.device)
    return (x.shape[2] - starts).clamp(max=size).to(torch.float32)


def _block_means(x: Tensor, size: int) -> Tensor:
    """[batch, heads, rows, d] as float32 [batch, heads, blocks, d]."""
    rows = torch.nn.functional.pad(x.float(), (0, 0, 0, -x.shape[2] % size))
    return rows.unflatten(2, (-1, size)).sum(3) / _lengths(x, size)[:, None]


def _spread(means: Tensor, x: Tensor, size: int) -> Tensor:
    """The gradient of rows from the gradient of the means of their blocks, in the dtype of x."""
    return (means / _lengths(x, size)[:, None]).repeat_interleave(size, 2)[:, :, : x.shape[2]].to(x.dtype)


def _of_largest(rows: Tensor, k: Tensor, gradient: Tensor, k_block: int, q_block: int, queries: int) -> Tensor:
    """The gradient of each block of keys at the key with the largest product; with a q_block, among the visible
    keys."""
    keys = k.shape[2]
    products = rows @ k.float().repeat_interleave(rows.shape[1] // k.shape[1], 1).transpose(2, 3)
    if q_block:
        last = (torch.arange(1, rows.shape[2] + 1, device=k.device) * q_block - 1).clamp(max=queries - 1) + keys - queries
        products = products.masked_fill(torch.arange(keys, device=k.device) > last[:, None], -torch.inf)
    blocks = -(-keys // k_block)
    padded = torch.nn.functional.pad(products, (0, blocks * k_block - keys), value=-torch.inf)
    best = padded.unflatten(-1, (blocks, k_block)).argmax(-1, keepdim=True)
    spread = torch.zeros_like(padded).unflatten(-1, (blocks, k_block)).scatter(-1, best, gradient.unsqueeze(-1))
    return spread.flatten(-2)[..., :keys]


def _block_scores(call: Any, tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    q, k, gradient = tensors["q"], tensors["k"], gradients["dout"]
    q_block, k_block, scale = options["q_block_size"], options["k_block_size"], options["scale"]
    if options["layout"] == "bshd":
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    group = q.shape[1] // k.shape[1]
    if options["causal"]:
        last = torch.arange(1, gradient.shape[2] + 1, device=q.device) * q_block - 1
        last = last.clamp(max=q.shape[2] - 1) + k.shape[2] - q.shape[2]
        unseen = torch.arange(gradient.shape[3], device=q.device) * k_block > last[:, None]
        gradient = gradient.masked_fill(unseen, 0)
    # One row for a group is that of the mean of its queries; every head of the group has an equal share in it.
    if options["per_kv_head"]:
        gradient = gradient.repeat_interleave(group, 1) / group
    gradient = gradient * (q.shape[-1] ** -0.5 if scale is None else scale)
    q_means = _block_means(q, q_block)
    if options["proxy"] == "max":
        rows = q_means.unflatten(1, (-1, group)).mean(2).repeat_interleave(group, 1) if options["per_kv_head"] else q_means
        gradient = _of_largest(rows, k, gradient, k_block, options["causal"] and q_block, q.shape[2])
        dq = _spread(gradient @ k.float().repeat_interleave(group, 1), q, q_block)
        dk = (gradient.transpose(2, 3) @ q_means).unflatten(1, (-1, group)).sum(2).to(k.dtype)
    else:
        dq = _spread(gradient @ _block_means(k, k_block).repeat_interleave(group, 1), q, q_block)
        dk = _spread((gradient.transpose(2, 3) @ q_means).unflatten(1, (-1, group)).sum(2), k, k_block)
    if options["layout"] == "bshd":
        dq, dk = dq.transpose(1, 2), dk.transpose(1, 2)
    return {"q": dq, "k": dk}


def _pairs(x: Tensor, pairs: int, pairing: str) -> Any:
    """The features that are rotated together, each [batch, tokens, heads, pairs] in float32."""
    rotated = x[..., : 2 * pairs].float()
    return rotated.chunk(2, -1) if pairing == "halves" else rotated.unflatten(-1, (pairs, 2)).unbind(-1)


def _of_angles(product: Tensor, positions: Any, like: Tensor) -> Tensor:
    """A sum over heads and over the tokens of each position."""
    sums = product.sum(-2)
    rows = sums.flatten(0, -2)
    if positions is None:
        positions = torch.arange(sums.shape[-2], device=rows.device).expand(sums.shape[:-1])
    return torch.zeros_like(like).index_add(0, positions.reshape(-1).long(), rows)


def _rope(call: Any, tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    dout, cosine, positions = gradients["dout"], tensors["cosine"], tensors["positions"]
    made: Named = {"x": call({**tensors, "x": dout}, {**options, "inverse": not options["inverse"]})}
    if needed & {"cosine", "sine"}:
        (a, b), (da, db) = (_pairs(x, cosine.shape[1], options["pairing"]) for x in (tensors["x"], dout))
        across = da * b - db * a if options["inverse"] else db * a - da * b
        made["cosine"] = _of_angles(da * a + db * b, positions, cosine)
        made["sine"] = _of_angles(across, positions, cosine)
    return made


def _cumsum(call: Any, tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    return {"x": call({**tensors, "x": gradients["dout"]}, {**options, "reverse": not options["reverse"]})}


def _topk(call: Any, tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    """The gradient of the selected elements, scattered to their positions in the rows."""
    x, given = tensors["x"], gradients["dvalues"]
    values, indices = call(tensors, {**options, "gates": "none"})
    if options["gates"] == "softmax":
        gates = values.float().softmax(-1)
        given = gates * (given - (given * gates).sum(-1, keepdim=True))
    elif options["gates"] == "sigmoid":
        gates = values.float().sigmoid()
        if options["normalized"]:
            total = gates.sum(-1, keepdim=True)
            given = (given - (given * gates / total).sum(-1, keepdim=True)) / total
        given = given * gates * (1 - gates)
    return {"x": torch.zeros_like(x).scatter(-1, indices.long(), given.to(x.dtype))}


def _places_of(order: Tensor, count: int) -> Tensor:
    """The position of each pair in the order, -1 if it is not in it."""
    places = order.new_full((count + 1,), -1)
    at = torch.where(order < 0, count, order).long()
    return places.scatter(0, at, torch.arange(order.shape[0], device=order.device, dtype=order.dtype))[:count]


def _moe_permute(call: Any, tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    from . import moe_unpermute  # type: ignore[attr-defined]

    x, topk = tensors["x"], options["topk"]
    places = _places_of(tensors["order"], x.shape[0] * topk).unflatten(0, (-1, topk))
    return {"x": moe_unpermute(gradients["dout"], places)}


def _moe_unpermute(call: Any, tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    from . import moe_permute  # type: ignore[attr-defined]

    y, places, weights, dout = tensors["y"], tensors["places"], tensors["weights"], gradients["dout"]
    made: Named = {}
    if "weights" in needed:
        dots = (y[places.long().clamp(min=0)].float() * dout[:, None].float()).sum(-1)
        made["weights"] = torch.where(places < 0, 0, dots).to(weights.dtype)
    if "y" in needed:
        order = _places_of(places.flatten(), y.shape[0])
        dy = moe_permute(dout, order, places.shape[1])
        if weights is not None:
            dy = (dy.float() * weights.flatten()[order.long().clamp(min=0), None]).to(y.dtype)
        made["y"] = dy
    return made


def _unit(name: str, options: Named, h: Tensor) -> Tensor:
    """A gated unit of rows of gates and values, in float32 by PyTorch's own functions."""
    gate, value = (h[..., ::2], h[..., 1::2]) if options["interleaved"] else h.chunk(2, -1)
    if name == "swiglu_oai":
        limit = options["limit"]
        gate = gate.clamp(max=limit)
        return gate * torch.sigmoid(options["alpha"] * gate) * (value.clamp(-limit, limit) + 1)
    functions = torch.nn.functional
    if name == "gelu":
        return functions.gelu(gate, approximate="tanh") * value
    return (functions.silu(gate) if name == "silu" else functions.relu(gate)) * value


def _gated_mlp(call: Any, tensors: Named, options: Named, gradients: Named, needed: Set[str]) -> Named:
    from . import gemm  # type: ignore[attr-defined]

    x, w1, w2, dout = tensors["x"], tensors["w1"], tensors["w2"], gradients["dout"]
    rows, dout = x.flatten(0, -2), dout.flatten(0, -2).to(x.dtype)
    h = gemm(rows, w1, bias=tensors["bias1"], transpose_b=True)
    units, back = torch.func.vjp(lambda h: _unit(options["unit"], options, h), h.float())
    made: Named = {"w2": gemm(dout, units.to(x.dtype), transpose_a=True)}
    if "bias2" in needed:
        made["bias2"] = dout.float().sum(0).to(tensors["bias2"].dtype)
    dh = back(gemm(dout, w2, out_dtype="float32"))[0]
    if "bias1" in needed:
        made["bias1"] = dh.sum(0).to(tensors["bias1"].dtype)
    dh = dh.to(x.dtype)
    made["w1"] = gemm(dh, rows, transpose_a=True)
    made["x"] = gemm(dh, w1).view_as(x)
    return made


# By the operator's name: from a function that calls it by names, its tensors, its options, the gradients of its results
# (dout) and the names of the tensors whose gradients are needed, these gradients by name.
composed: Dict[str, Callable[[Callable[..., Any], Named, Named, Named, Set[str]], Named]] = {
    "block_scores": _block_scores,
    "cumsum": _cumsum,
    "gated_mlp": _gated_mlp,
    "gemm": _gemm,
    "gemv": _gemv,
    "grouped_gemm": _grouped_gemm,
    "moe_permute": _moe_permute,
    "moe_unpermute": _moe_unpermute,
    "rope": _rope,
    "topk": _topk,
}
