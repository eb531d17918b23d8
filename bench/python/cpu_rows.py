"""The rows of cpu_table.py: what is called, what it is compared with, and the formula that its result is checked by."""

import dataclasses
from typing import Callable, Iterator

import tegula.torch as tt
import torch
import torch.nn.functional as F

BYTES = {torch.float32: 4, torch.bfloat16: 2, torch.float16: 2}
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}


@dataclasses.dataclass
class Row:
    name: str
    call: Callable
    rival: Callable
    check: Callable  # gives results and what they should be
    aim: float
    work: float = 1
    rival_work: float = 1
    tolerance: float = 1e-4
    group: str = ""


def against(call, expected):
    """A check of one result, which a call may give together with others."""

    def check():
        result = call()
        return [result if isinstance(result, torch.Tensor) else result[0]], [expected()]

    return check


def copy_of(count):
    """A copy that reads and writes `count` bytes in all, into memory that it allocates, as operators do."""
    source = torch.randn(int(count) // 8)
    return source.clone


def read_of(count):
    """Reads `count` bytes."""
    x = torch.randn(int(count) // 4)
    return lambda: torch.dot(x, x)


# ---- products


def gemm() -> Iterator[Row]:
    for dtype, aim in ((torch.float32, 0.95), (torch.bfloat16, 0.9)):
        for n in (512, 1024, 2048):
            a, b = (torch.randn(n, n).to(dtype) for _ in range(2))
            call = lambda a=a, b=b: tt.gemm(a, b)
            yield Row(f"{NAMES[dtype]} {n}", call, lambda a=a, b=b: a @ b,
                      against(call, lambda a=a, b=b: a.float() @ b.float()), aim,
                      tolerance=1e-4 if dtype == torch.float32 else 1e-2)  # fmt: skip


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


# ---- other products


def gemv() -> Iterator[Row]:
    n = 8192
    for dtype in (torch.float32, torch.bfloat16):
        a, x = torch.randn(n // 2, n).to(dtype), torch.randn(n).to(dtype)
        call = lambda a=a, x=x: tt.gemv(a, x)
        size = a.numel() * BYTES[dtype]
        yield Row(f"gemv {NAMES[dtype]} {n // 2} x {n}", call, read_of(size), against(call, lambda a=a, x=x: a.float() @ x.float()),
                  0.7, size, size, 1e-2)  # fmt: skip
    for form, group in FORMATS.items():
        weights, scales, options, plain = _quantised(form, n, n, group)
        a = torch.randn(1, n).bfloat16()
        call = lambda a=a, w=weights, s=scales, o=options: tt.quantised_gemm(a, w, s, **o)
        size = weights.numel()
        yield Row(f"quantised_gemm {form}, 1 row, {n} x {n}", call, read_of(size),
                  against(call, lambda a=a, w=plain: a.float() @ w().T), 0.7, size, size, 2e-2)  # fmt: skip


FORMATS = {"int8": 128, "int4": 128, "mxfp4": 32, "nvfp4": 16, "ternary": 128}
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _quantised(form, n, k, group):
    """Random weights of a format: bytes, scales, options, and a function that decodes them."""
    options = dict(format=form, group=group)
    scales = (torch.rand(k // group, n) + 0.5).bfloat16() / 64
    if form == "int8":
        bytes_ = torch.randint(-128, 128, (n, k), dtype=torch.int8)
        decode = bytes_.float
    elif form == "ternary":
        bytes_ = tt.ternary_weights(torch.randint(-1, 2, (n, k)).to(torch.int8))
        decode = lambda: torch.stack([(bytes_ >> 2 * i & 3).float() - 1 for i in range(4)], -1).flatten(1)
    else:
        bytes_ = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
        halves = lambda: torch.stack((bytes_ & 15, bytes_ >> 4), -1).flatten(1).long()
        decode = (lambda: ((halves() + 8) % 16 - 8).float()) if form == "int4" else (lambda: E2M1[halves()])
    factors = scales
    if form == "mxfp4":
        scales = torch.randint(120, 124, (k // group, n), dtype=torch.uint8)
        factors = torch.exp2(scales.float() - 127)
    if form == "nvfp4":
        scales = (torch.rand(k // group, n) + 0.5).to(torch.float8_e4m3fn)
        options["tensor_scale"] = torch.tensor([0.25])
        factors = scales.float() * 0.25
    return bytes_, scales, options, lambda: decode() * factors.float().T.repeat_interleave(group, 1)


def families() -> Iterator[Row]:
    n = 1024
    work = 2 * n**3
    plain = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = (torch.randn(n, n).to(dtype) for _ in range(2))
        plain[dtype] = lambda a=a, b=b: tt.gemm(a, b)
    for name, dtype, call, formula, part in _family_calls(n):
        yield Row(f"{name} {n}", call, plain[dtype], against(call, formula), 0.8, work * part, work,
                  1e-4 if dtype == torch.float32 else 2e-2)  # fmt: skip


def _family_calls(n):
    bf16, f32 = torch.bfloat16, torch.float32
    x, y = torch.randn(n, n), torch.randn(n, n)
    narrow = x.bfloat16(), y.bfloat16()
    yield "gemm, transposed b, f32", f32, lambda: tt.gemm(x, y, transpose_b=True), lambda: x @ y.T, 1
    yield "gemm, transposed a, f32", f32, lambda: tt.gemm(x, y, transpose_a=True), lambda: x.T @ y, 1
    yield "gemm, silu, bf16", bf16, lambda: tt.gemm(*narrow, activation="silu"), lambda: F.silu(narrow[0].float() @ narrow[1].float()), 1
    small = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn)
    scales = torch.rand(n, n // 128) + 0.5, torch.rand(n // 128, n // 128) + 0.5
    spread = lambda: (small[0].float() * scales[0].repeat_interleave(128, 1),
                      small[1].float() * scales[1].repeat_interleave(128, 0).repeat_interleave(128, 1))  # fmt: skip
    yield "scaled_gemm e4m3", bf16, lambda: tt.scaled_gemm(*small, *scales), lambda: spread()[0] @ spread()[1].T, 1
    for dtype in (f32, bf16):
        groups = torch.randn(4, n, n).to(dtype)
        offsets = torch.tensor([0, n // 8, n // 2, n // 2, n], dtype=torch.int32)
        rows = x.to(dtype)
        ends = offsets.tolist()
        formula = lambda r=rows, g=groups: torch.cat([r[ends[i] : ends[i + 1]].float() @ g[i].float() for i in range(4)])
        yield f"grouped_gemm {NAMES[dtype]}", dtype, lambda r=rows, g=groups: tt.grouped_gemm(r, g, offsets=offsets), formula, 1
    for form in ("int4", "mxfp4", "ternary"):
        weights, factors, options, decoded = _quantised(form, n, n, FORMATS[form])
        yield (f"quantised_gemm {form}", bf16, lambda w=weights, s=factors, o=options: tt.quantised_gemm(narrow[0], w, s, **o),
               lambda d=decoded: narrow[0].float() @ d().T, 1)  # fmt: skip
    i8 = [torch.randint(-128, 128, (n, n), dtype=torch.int8) for _ in range(2)]
    yield "integer_gemm", f32, lambda: tt.integer_gemm(*i8), lambda: i8[0].double() @ i8[1].double().T, 1
    values, metadata = tt.compress_24(narrow[0])
    kept = narrow[0].float().view(n, -1, 4)
    first_largest = kept.abs().argsort(dim=-1, descending=True, stable=True)[..., :2]
    mask = torch.zeros_like(kept).scatter(2, first_largest, 1)
    yield "gemm_24 bf16", bf16, lambda: tt.gemm_24(values, metadata, narrow[1]), lambda: (kept * mask).flatten(1) @ narrow[1].float(), 1
    chosen = torch.rand(n // 128, n // 128, n // 64) < 0.5
    wide = lambda: chosen.repeat_interleave(128, 0).repeat_interleave(128, 1).repeat_interleave(64, 2)
    yield ("block_sparse_gemm f32", f32, lambda: tt.block_sparse_gemm(x, y, chosen), lambda: torch.einsum("mnk,mk,kn->mn", wide().float(), x, y),
           float(chosen.float().mean()))  # fmt: skip
    for dtype in (f32, bf16):
        image, filters = torch.randn(4, 28, 28, 64).to(dtype), torch.randn(128, 3, 3, 64).to(dtype)
        formula = lambda i=image, f=filters: F.conv2d(i.permute(0, 3, 1, 2).float(), f.permute(0, 3, 1, 2).float(), padding=1).permute(0, 2, 3, 1)
        yield (f"conv2d {NAMES[dtype]} 4 x 28 x 28 x 64 to 128, 3 x 3, beside gemm", dtype, lambda i=image, f=filters: tt.conv2d(i, f, padding=1),
               formula, 4 * 28 * 28 * 64 * 128 * 9 / n**3)  # fmt: skip


GROUPS = {
    "gemm": ("PyTorch", gemm),
    "attention": ("PyTorch's scaled_dot_product_attention", attention),
    "rows": ("a copy of as many bytes", rows),
    "linear": ("the same chunks in PyTorch, eagerly", linear),
    "sparse": ("attention, 8 heads, 1024 tokens, D = 128", sparse),
    "decode": ("reading as many bytes", decode),
    "nsa": ("causal attention", nsa),
    "gemv": ("reading as many bytes", gemv),
    "families": ("gemm of the same dtype, 1024", families),
}
