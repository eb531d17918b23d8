"""The rows of products: gemm beside PyTorch's, a vector beside a read of memory, and the families of gemm beside gemm."""

from typing import Iterator

import tegula.torch as tt
import torch
import torch.nn.functional as F
from cpu_row import BYTES, NAMES, Row, against, read_of


def gemm() -> Iterator[Row]:
    for dtype, aim in ((torch.float32, 0.95), (torch.bfloat16, 0.9)):
        for n in (512, 1024, 2048):
            a, b = (torch.randn(n, n).to(dtype) for _ in range(2))
            call = lambda a=a, b=b: tt.gemm(a, b)
            yield Row(f"{NAMES[dtype]} {n}", call, lambda a=a, b=b: a @ b,
                      against(call, lambda a=a, b=b: a.float() @ b.float()), aim,
                      tolerance=1e-4 if dtype == torch.float32 else 1e-2)  # fmt: skip


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
