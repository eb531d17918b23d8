"""The rows of cpu_table.py: what is called, what it is compared with, and the formula that its result is checked by."""

from typing import Iterator

import tegula.torch as tt
import torch
import torch.nn.functional as F
from cpu_latents import latents
from cpu_products import families, gemm, gemv
from cpu_row import BYTES, NAMES, Row, against, copy_of, read_of

# ---- attention


def _attention(dtype, heads, kv_heads, tokens, d, causal):
    q, k, v = (torch.randn(1, tokens, n, d).to(dtype) for n in (heads, kv_heads, kv_heads))
    rival = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    options = dict(is_causal=causal, enable_gqa=heads != kv_heads)
    return (q, k, v), rival, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **options)


def attention() -> Iterator[Row]:
    shapes = [(8, 8, 2048, 64, False), (8, 8, 2048, 64, True), (8, 2, 2048, 128, False), (8, 2, 2048, 128, True)]
    for dtype in (torch.float32, torch.bfloat16):
        for heads, kv_heads, tokens, d, causal in shapes:
            ours, theirs, rival = _attention(dtype, heads, kv_heads, tokens, d, causal)
            call = lambda x=ours, causal=causal: tt.attention(*x, causal=causal)[0]
            name = f"{NAMES[dtype]} {heads}/{kv_heads} heads, {tokens}, D = {d}{', causal' if causal else ''}"
            tolerance = 1e-4 if dtype == torch.float32 else 3e-2
            yield Row(name, call, lambda f=rival, x=theirs: f(*x),
                      against(call, lambda f=rival, x=theirs: f(*x).transpose(1, 2)), 1.5, tolerance=tolerance)  # fmt: skip
            yield _gradients(name, ours, theirs, rival, causal, tolerance)


def _gradients(name, ours, theirs, rival, causal, tolerance):
    ours, theirs = ([x.clone().requires_grad_() for x in side] for side in (ours, theirs))
    out, other = tt.attention(*ours, causal=causal)[0], rival(*theirs)
    given = torch.randn_like(out)
    given_other = given.transpose(1, 2).contiguous()
    call = lambda: torch.autograd.grad(out, ours, given, retain_graph=True)
    beside = lambda: torch.autograd.grad(other, theirs, given_other, retain_graph=True)
    check = lambda: (call(), [x.transpose(1, 2) for x in beside()])
    return Row(name + ": gradients", call, beside, check, 1.3, tolerance=tolerance)


# ---- rows


def rows() -> Iterator[Row]:
    m, n = 4096, 4096
    for dtype in (torch.float32, torch.bfloat16):
        x, y = (torch.randn(m, n).to(dtype) for _ in range(2))
        w = torch.randn(n).to(dtype)
        pairs = torch.randn(n // 4, 64), torch.randn(n // 4, 64)
        heads = x.view(4, n // 4, 32, 128)
        size = m * n * BYTES[dtype]
        turned = lambda h=heads, p=pairs: _rotated(h.float(), *p)
        exact = dtype == torch.float32
        calls = [
            ("rms_norm", lambda x=x, w=w: tt.rms_norm(x, weight=w), lambda x=x, w=w: F.rms_norm(x.float(), (n,), w.float(), 1e-6), 2),
            ("layer_norm", lambda x=x, w=w: tt.layer_norm(x, weight=w, bias=w),
             lambda x=x, w=w: F.layer_norm(x.float(), (n,), w.float(), w.float()), 2),
            ("add_rms_norm", lambda x=x, y=y, w=w: tt.add_rms_norm(x, y, weight=w),
             lambda x=x, y=y, w=w: F.rms_norm((x.float() + y.float()).to(x.dtype).float(), (n,), w.float(), 1e-6), 4),
            ("softmax", lambda x=x: tt.softmax(x), lambda x=x: x.float().softmax(-1), 2),
            ("silu_and_mul", lambda x=x: tt.silu_and_mul(x),
             lambda x=x: F.silu(x[:, : n // 2].float()) * x[:, n // 2 :].float(), 1.5),
            ("rope", lambda h=heads, p=pairs: tt.rope(h, *p), turned, 2),
            ("cast_fp8", lambda x=x: tt.cast_fp8(x), None, 1 + 1 / BYTES[dtype]),
            ("cumsum", lambda x=x: tt.cumsum(x), lambda x=x: x.float().cumsum(-1), 2),
            ("hadamard", lambda x=x: tt.hadamard(x, scale=1 / 64), None, 2),
        ]  # fmt: skip
        for name, call, formula, times in calls:
            check = against(call, formula) if formula else _CHECKS[name](call, x)
            yield Row(f"{name} {NAMES[dtype]} {m} x {n}", call, copy_of(times * size), check, 0.7, times * size,
                      times * size // 8 * 8, 1e-4 if exact and name != "cast_fp8" else 5e-2)  # fmt: skip
    yield from _row_gradients(m, n)


def _row_gradients(m, n):
    dout, w = torch.randn(m, n), torch.randn(n)
    leaf = torch.randn(m, n).requires_grad_()
    for name, ours, formula in [
        ("rms_norm", lambda: tt.rms_norm(leaf, weight=w), lambda: F.rms_norm(leaf, (n,), w, 1e-6)),
        ("softmax", lambda: tt.softmax(leaf), lambda: leaf.softmax(-1)),
    ]:
        out, size = ours(), 3 * m * n * 4
        call = lambda out=out: torch.autograd.grad(out, leaf, dout, retain_graph=True)[0]
        expected = lambda f=formula: torch.autograd.grad(f(), leaf, dout)[0]
        yield Row(f"{name} f32 {m} x {n}: gradient", call, copy_of(size), against(call, expected), 0.7, size, size)


def _rotated(x, cosine, sine):
    a, b = x.chunk(2, -1)
    c, s = cosine[:, None], sine[:, None]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def _cast_check(call, x):
    def check():
        values, scales = call()
        return [values.float() * scales.repeat_interleave(128, 1)], [x.float()]

    return lambda: (lambda r, e: ([r[0]], [e[0]]))(*check())


def _hadamard_check(call, x):
    def check():
        y = x.float().unflatten(-1, (2,) * 12)
        for dim in range(1, 13):
            a, b = y.unbind(dim)
            y = torch.stack((a + b, a - b), dim)
        return [call()], [y.flatten(1) / 64]

    return check


_CHECKS = {"cast_fp8": _cast_check, "hadamard": _hadamard_check}


# ---- linear attention


def chunks(q, k, v, g, beta=None, length=64):
    """Gated linear attention, or with beta the gated delta rule, over chunks; g [..., tokens, d or 1], heads first."""
    state = v.new_zeros(*q.shape[:-2], q.shape[-1], v.shape[-1])
    lower = torch.ones(length, length).tril()
    outs = []
    for i in range(0, q.shape[-2], length):
        qc, kc, vc, gc = (x[..., i : i + length, :] for x in (q, k, v, g))
        gc = gc.cumsum(-2)
        qc, far, near, last = qc * gc.exp(), kc * gc.exp(), kc * (-gc).exp(), gc[..., -1:, :]
        if beta is not None:
            share = beta[..., i : i + length, None]
            inner = (share * far @ near.mT) * lower.tril(-1) + torch.eye(length)
            vc = torch.linalg.solve_triangular(inner, share * (vc - far @ state), upper=False, unitriangular=True)
        outs.append(qc @ state + (qc @ near.mT * lower) @ vc)
        state = state * last.exp().mT + (kc * (last - gc).exp()).mT @ vc
    return torch.cat(outs, -2)


def linear() -> Iterator[Row]:
    tokens, heads, d = 2048, 4, 128
    q, k, v = (torch.randn(1, tokens, heads, d) for _ in range(3))
    k = F.normalize(k, dim=-1)
    g, beta = -torch.rand(1, tokens, heads) / 8, torch.rand(1, tokens, heads)
    wide = -torch.rand(1, tokens, heads, d) / 8
    gamma = tt.retention_decays(heads)
    A, dt = -torch.rand(heads), torch.rand(1, tokens, heads) / 4
    one = lambda x: x[..., None].transpose(1, 2)
    by_heads = lambda *x: [y.transpose(1, 2) for y in x]
    scale = d**-0.5
    steady = lambda: gamma.view(1, heads, 1, 1).expand(1, heads, tokens, 1)
    variants = [
        ("linear_attention", lambda q, k, v: tt.linear_attention(q, k, v, g=g),
         lambda q, k, v: chunks(*by_heads(q * scale, k, v), one(g))),
        ("retention", lambda q, k, v: tt.linear_attention(q, k, v, g_gamma=gamma),
         lambda q, k, v: chunks(*by_heads(q * scale, k, v), steady())),
        ("ssd", lambda q, k, v: tt.ssd(v, dt, A, k, q), lambda q, k, v: chunks(*by_heads(q, k, v * dt[..., None]), one(dt * A))),
        ("gated_delta_rule", lambda q, k, v: tt.gated_delta_rule(q, k, v, beta, g=g),
         lambda q, k, v: chunks(*by_heads(q * scale, k, v), one(g), beta.transpose(1, 2))),
        ("kda", lambda q, k, v: tt.kda(q, k, v, wide, beta),
         lambda q, k, v: chunks(*by_heads(q * scale, k, v), wide.transpose(1, 2), beta.transpose(1, 2))),
    ]  # fmt: skip
    for name, call, formula in variants:
        yield from _with_gradients(f"{name} f32 {tokens}, {heads} heads, D = {d}", call, formula, (q, k, v))


def _with_gradients(name, call, formula, tensors):
    first = lambda x: x if isinstance(x, torch.Tensor) else x[0]
    ours = lambda: first(call(*tensors))
    theirs = lambda: formula(*tensors)
    yield Row(name, ours, theirs, against(ours, lambda: theirs().transpose(1, 2)), 5, tolerance=1e-3)
    leaves = [x.clone().requires_grad_() for x in tensors]
    out, other = first(call(*leaves)), formula(*leaves)
    given = torch.randn_like(out)
    given_other = given.transpose(1, 2).contiguous()
    back = lambda: torch.autograd.grad(out, leaves, given, retain_graph=True)
    beside = lambda: torch.autograd.grad(other, leaves, given_other, retain_graph=True)
    yield Row(name + ": gradients", back, beside, lambda: (back(), beside()), 5, tolerance=1e-3)


# ---- sparse attention and decoding


def _dense(dtype, d):
    """Dense attention of the same dtype, and its operations."""
    q, k, v = (torch.randn(1, 1024, 8, d).to(dtype) for _ in range(3))
    return lambda: tt.attention(q, k, v), 4 * 1024 * 1024 * 8 * d


def _softmax_of(scores, values):
    return scores.softmax(-1) @ values


def sparse() -> Iterator[Row]:
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        dense, work = _dense(dtype, 128)
        for row in (_mla, _sparse_mla, _blocks, _selected):
            name, call, formula, operations = row(dtype)
            yield Row(f"{name} {NAMES[dtype]}", call, dense, against(call, formula), 0.5, operations, work, tolerance)


def _mla(dtype, batch=1, heads=128, keys=4096):
    q, kv = torch.randn(batch, 1, heads, 576).to(dtype), torch.randn(batch, keys, 576).to(dtype)
    formula = lambda: _softmax_of(q[:, 0].float() @ kv.float().mT * 576**-0.5, kv[..., :512].float())[:, None]
    return "mla_decode 128 heads, 4096", lambda: tt.mla_decode(q, kv), formula, 2 * batch * heads * keys * (576 + 512)


def _sparse_mla(dtype, tokens=64, heads=64, keys=4096, count=512):
    q, kv = torch.randn(tokens, heads, 576).to(dtype), torch.randn(keys, 1, 576).to(dtype)
    choice = torch.stack([torch.randperm(keys)[:count].sort()[0] for _ in range(tokens)]).int()[:, None]
    rows = lambda: kv[choice[:, 0].long(), 0].float()
    formula = lambda: _softmax_of(q.float() @ rows().mT * 576**-0.5, rows()[..., :512])
    return (f"sparse_mla {tokens} tokens, {heads} heads, {count} of {keys}", lambda: tt.sparse_mla(q, kv, choice), formula,
            2 * tokens * heads * count * (576 + 512))  # fmt: skip


def _blocks(dtype, tokens=2048, heads=8, d=128):
    q, k, v = (torch.randn(1, tokens, heads, d).to(dtype) for _ in range(3))
    blocks = tokens // 64
    mask = torch.rand(1, heads, blocks, blocks) < 0.25
    mask |= torch.eye(blocks, dtype=torch.bool)
    keep = mask.repeat_interleave(64, 2).repeat_interleave(64, 3)
    formula = lambda: F.scaled_dot_product_attention(*(x.transpose(1, 2).float() for x in (q, k, v)), keep).transpose(1, 2)
    return ("block_sparse_attention 64 x 64, a quarter", lambda: tt.block_sparse_attention(q, k, v, mask=mask), formula,
            4 * int(mask.sum()) * 64 * 64 * d)  # fmt: skip


def _selected(dtype, tokens=1024, heads=16, d=128, count=8):
    q = torch.randn(1, tokens, heads, d).to(dtype)
    k, v = (torch.randn(1, tokens, 1, d).to(dtype) for _ in range(2))
    own = torch.arange(tokens) // 64
    draws = torch.rand(tokens, tokens // 64).masked_fill(torch.arange(tokens // 64) > own[:, None], -1)
    draws[torch.arange(tokens), own] = 2
    values, order = draws.topk(count)
    choice = order.masked_fill(values < 0, -1).int()[None, :, None]
    keep = torch.zeros(tokens, tokens // 64 + 1, dtype=torch.bool).scatter(1, order.masked_fill(values < 0, tokens // 64), True)
    keep = keep[:, :-1].repeat_interleave(64, 1) & torch.ones(tokens, tokens, dtype=torch.bool).tril()
    formula = lambda: F.scaled_dot_product_attention(*(x.transpose(1, 2).float() for x in (q, k, v)), keep, enable_gqa=True).transpose(1, 2)
    return (f"nsa_selected_attention {tokens}, {heads}/1 heads, {count} blocks", lambda: tt.nsa_selected_attention(q, k, v, choice),
            formula, 4 * int(keep.sum()) * heads * d)  # fmt: skip


def decode() -> Iterator[Row]:
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 3e-2)):
        for group in (1, 4):
            batch, keys, heads, d = 2, 8192, 4, 128
            q = torch.randn(batch, 1, heads * group, d).to(dtype)
            k, v = (torch.randn(batch, keys, heads, d).to(dtype) for _ in range(2))
            call = lambda q=q, k=k, v=v: tt.attention_with_kv_cache(q, k, v)
            formula = lambda q=q, k=k, v=v: F.scaled_dot_product_attention(
                *(x.transpose(1, 2).float() for x in (q, k, v)), enable_gqa=True).transpose(1, 2)  # fmt: skip
            size = 2 * k.numel() * BYTES[dtype]
            yield Row(f"{NAMES[dtype]} {heads * group}/{heads} heads, {batch} x {keys}", call, read_of(size),
                      against(call, formula), 0.7, size, size, tolerance)  # fmt: skip


def nsa() -> Iterator[Row]:
    tokens, heads, d = 4096, 16, 64
    q = torch.randn(1, tokens, heads, d)
    k, v = (torch.randn(1, tokens, 1, d) for _ in range(2))
    gates = torch.randn(1, tokens, heads, 3)
    call = lambda: tt.native_sparse_attention(q, k, v, gates)
    dense = lambda: tt.attention(q, k, v, causal=True)[0]
    all_keys = dict(length=16, stride=16, window=tokens)  # the window is then dense attention
    window = torch.full_like(gates, -30.0)
    window[..., 2] = 30.0
    check = lambda: ([tt.native_sparse_attention(q, k, v, window, **all_keys)], [dense()])
    yield Row(f"native_sparse_attention f32 {tokens}, {heads}/1 heads, D = {d}", call, dense, check, 2)
    layer = tt.NativeSparseAttention(heads * d, heads, 1)
    x = torch.randn(1, tokens, heads * d)

    def module():
        with torch.no_grad():
            return layer(x)

    yield Row(f"NativeSparseAttention, projections included, beside attention alone, {tokens}", module, dense, check, 2)


GROUPS = {
    "gemm": ("PyTorch", gemm),
    "attention": ("PyTorch's scaled_dot_product_attention", attention),
    "rows": ("a copy of as many bytes", rows),
    "linear": ("the same chunks in PyTorch, eagerly", linear),
    "sparse": ("attention, 8 heads, 1024 tokens, D = 128", sparse),
    "latents": ("attention, or its gradients, 8 heads, 1024 tokens, D = 128", latents),
    "decode": ("reading as many bytes", decode),
    "nsa": ("causal attention", nsa),
    "gemv": ("reading as many bytes", gemv),
    "families": ("gemm of the same dtype, 1024", families),
}
