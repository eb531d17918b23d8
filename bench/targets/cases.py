"""Checks and timed cases of the target texts.

A timed case is {label, flops, runs: {name: callable}, outputs: {name: tensors}, rival or samples}: every run owns
its outputs, so that a launch that wrote nothing cannot pass for the one before it.
"""
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import driver

BF16 = torch.bfloat16


def randn(*shape, amplitude=1.0):
    return torch.randn(*shape, device="cuda").mul_(amplitude).to(BF16)


class Poisoned:
    """A NaN-filled output with a guard zone after it."""

    def __init__(self, *shape, dtype=BF16):
        self.count = math.prod(shape)
        self.buffer = torch.empty(self.count + 8192, device="cuda", dtype=dtype)
        self.out = self.buffer[:self.count].view(*shape)
        self.fill()

    def fill(self):
        self.buffer.fill_(float("nan"))

    def intact(self):
        return bool(torch.isnan(self.buffer[self.count:]).all())


def error(out, ref):
    return ((out.float() - ref.float()).norm() / ref.float().norm().clamp_min(1e-30)).item()


class Checker:
    """Collects the worst error of a variant; a NaN, a damaged guard or differing bits fail it."""

    def __init__(self, name, limit):
        self.name, self.limit, self.worst, self.faults, self.count = name, limit, 0.0, [], 0

    def add(self, what, poisoned, ref, limit=None):
        e = error(poisoned.out, ref)
        self.count += 1
        if not e < (limit or self.limit) or not poisoned.intact():
            bad = (~((poisoned.out.float() - ref.float()).abs() < 0.05)).nonzero()
            self.faults.append("%s: error %.3g, guard %s, first bad %s of %d" % (
                what, e, poisoned.intact(), bad[:3].tolist(), len(bad)))
        else:
            self.worst = max(self.worst, e)

    def same(self, what, a, b):
        if not torch.equal(a, b):
            self.faults.append("%s: repeated runs differ in %d elements" % (what, (a != b).sum().item()))

    def report(self):
        for fault in self.faults[:4]:
            print("  " + fault)
        print("check %-28s %s  %d outputs, worst error %.2e" % (
            self.name, "FAILED" if self.faults else "ok", self.count, self.worst), flush=True)
        return {"name": self.name, "ok": not self.faults, "outputs": self.count, "worst": self.worst,
                "faults": self.faults}


# ---------------------------------------------------------------------------------------------------- gemm
def check_gemm(variant):
    kernel, c = driver.Gemm(variant), Checker(variant, 3e-3)
    for m, n, k in [(256, 256, 64), (128, 256, 8), (8, 8, 8), (1, 1000, 72), (1000, 1000, 1000), (300, 520, 4096),
                    (4096, 5096, 1096), (2056, 3080, 200), (4096, 4096, 4096)]:
        a, bt = randn(m, k), randn(n, k)
        b = bt.t().contiguous() if kernel.n_major else bt
        out = Poisoned(m, n)
        ref = a.float() @ bt.float().t()
        launch, first = kernel.bind(a, b, out.out), None
        for _ in range(4):
            out.fill()
            launch()
            torch.cuda.synchronize()
            c.add((m, n, k), out, ref)
            first = out.out.clone() if first is None else first
            c.same((m, n, k), first, out.out)
    return c.report()


def time_gemm(variants, sizes):
    for major in (0, 1):
        for m, n, k in sizes:
            a, b = randn(m, k), randn(*((k, n) if major else (n, k)))
            right, cublas, outputs = b if major else b.t(), torch.empty(m, n, device="cuda", dtype=BF16), {}
            runs = {"cuBLAS": lambda a=a, right=right, cublas=cublas: torch.mm(a, right, out=cublas)}
            for v, group in variants:
                kernel = driver.Gemm(v, group)
                if kernel.n_major == major:
                    label = v + ("" if group == 8 else "/%d" % group)
                    outputs[label] = [torch.empty_like(cublas)]
                    runs[label] = kernel.bind(a, b, *outputs[label])
            yield {"label": "gemm %s %dx%dx%d" % ("nn" if major else "nt", m, n, k), "flops": 2 * m * n * k, "runs": runs,
                   "outputs": outputs, "rival": lambda cublas=cublas: [cublas]}


# ---------------------------------------------------------------------------------------------------- attention references
def scores(q, k, causal):
    s = q.float().transpose(1, 2) @ k.float().permute(0, 2, 3, 1) * q.shape[-1] ** -0.5
    if causal:
        sq, sk = s.shape[-2:]
        s = s.masked_fill(~torch.ones(sq, sk, device="cuda", dtype=torch.bool).tril(sk - sq), -math.inf)
    return s


def widen(x, heads):
    return x.repeat_interleave(heads // x.shape[2], 2)


def reference_forward(q, k, v, causal):
    s = scores(q, widen(k, q.shape[2]), causal)
    o = (s.softmax(-1) @ widen(v, q.shape[2]).float().transpose(1, 2)).transpose(1, 2)
    return o, s.logsumexp(-1)


def reference_backward(q, k, v, d_o, causal):
    q, k, v = [x.double().requires_grad_() for x in (q, k, v)]
    h = q.shape[2]
    s = q.transpose(1, 2) @ widen(k, h).permute(0, 2, 3, 1) * q.shape[-1] ** -0.5
    if causal:
        sq, sk = s.shape[-2:]
        s = s.masked_fill(~torch.ones(sq, sk, device="cuda", dtype=torch.bool).tril(sk - sq), -math.inf)
    o = (s.softmax(-1) @ widen(v, h).transpose(1, 2)).transpose(1, 2)
    grads = torch.autograd.grad(o, (q, k, v), d_o.double())
    return o.detach(), s.detach().logsumexp(-1), [g.detach() for g in grads]


def rounded_backward(q, k, v, d_o, o, causal):
    """The same gradients in fp64 but for P, dS and o rounded to bf16: the error no bf16 kernel can avoid"""
    h, g, scale = q.shape[2], q.shape[2] // k.shape[2], q.shape[-1] ** -0.5
    low = lambda x: x.to(BF16).double()
    qt, kt, vt, dt = [x.double().transpose(1, 2) for x in (q, widen(k, h), widen(v, h), d_o)]
    s = qt @ kt.transpose(-1, -2) * scale
    if causal:
        sq, sk = s.shape[-2:]
        s = s.masked_fill(~torch.ones(sq, sk, device="cuda", dtype=torch.bool).tril(sk - sq), -math.inf)
    p = s.softmax(-1)
    delta = (low(o) * d_o.double()).sum(-1).transpose(1, 2)[..., None]
    ds = low(p * (dt @ vt.transpose(-1, -2) - delta))
    dq, dk, dv = ds @ kt * scale, ds.transpose(-1, -2) @ qt * scale, low(p).transpose(-1, -2) @ dt
    fold = lambda x: x.unflatten(1, (-1, g)).sum(2).transpose(1, 2).to(BF16)
    return [dq.transpose(1, 2).to(BF16), fold(dk), fold(dv)]


def row_lse(q, k, causal):
    """lse of full-size inputs, one head at a time"""
    b, s, h, _ = q.shape
    out = torch.empty(b, h, s, device="cuda")
    for i in range(b):
        for j in range(h):
            kj = j * k.shape[2] // h
            out[i, j] = scores(q[i:i + 1, :, j:j + 1], k[i:i + 1, :, kj:kj + 1], causal).logsumexp(-1)[0, 0]
    return out


SHAPES = [(1, 128, 128, 1, 1), (1, 64, 640, 1, 1), (2, 512, 512, 3, 3), (1, 1000, 1000, 4, 2), (2, 77, 77, 2, 1),
          (1, 1, 300, 2, 2), (3, 200, 711, 8, 2), (1, 333, 333, 16, 16), (2, 1024, 1024, 16, 16), (1, 2001, 2001, 12, 4)]


def check_forward(variant):
    kernel, c = driver.Forward(variant), Checker(variant, 4e-3)
    for b, s, sk, h, hk in SHAPES:
        for amplitude in (1.0, 4.0):
            q, k, v = randn(b, s, h, kernel.d, amplitude=amplitude), randn(b, sk, hk, kernel.d, amplitude=amplitude), \
                randn(b, sk, hk, kernel.d)
            o, lse = Poisoned(b, s, h, kernel.d), Poisoned(b, h, s, dtype=torch.float32)
            ref, ref_lse = reference_forward(q, k, v, kernel.causal)
            launch, first = kernel.bind(q, k, v, o.out, lse.out), None
            for _ in range(3):
                o.fill()
                lse.fill()
                launch()
                torch.cuda.synchronize()
                c.add((b, s, sk, h, hk, amplitude), o, ref)
                c.add(("lse", b, s, sk, h, hk, amplitude), lse, ref_lse)
                first = o.out.clone() if first is None else first
                c.same((b, s, sk, h, hk), first, o.out)
    return c.report()


def time_forward(variants, sizes, tokens=16384):
    for d in (128, 64):
        for causal in (0, 1):
            for s in sizes:
                b, h = tokens // s, 2048 // d
                q, k, v = [randn(b, s, h, d) for _ in range(3)]
                outputs = {}
                qt, kt, vt = [x.transpose(1, 2) for x in (q, k, v)]
                last = []

                def cudnn(qt=qt, kt=kt, vt=vt, causal=causal, last=last):
                    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                        last[:] = [F.scaled_dot_product_attention(qt, kt, vt, is_causal=bool(causal))]
                runs = {"cuDNN": cudnn}
                for name in variants:
                    kernel = driver.Forward(name)
                    if (kernel.d, kernel.causal) == (d, causal):
                        outputs[name] = [torch.empty_like(q)]
                        runs[name] = kernel.bind(q, k, v, *outputs[name], torch.empty(b, h, s, device="cuda"))
                yield {"label": "forward D=%d %s S=%d" % (d, "causal" if causal else "full", s),
                       "flops": 4 * b * h * s * s * d / (1 + causal), "runs": runs,
                       "outputs": outputs, "rival": lambda last=last: [last[0].transpose(1, 2)]}


# ---------------------------------------------------------------------------------------------------- block-sparse forward
def sparse_lists(kv_heads, tiles, blocks, low, high):
    """low..high distinct key blocks for every (kv head, tile)"""
    index = torch.rand(kv_heads, tiles, blocks, device="cuda").topk(high, dim=-1).indices.int().contiguous()
    return index, torch.randint(low, high + 1, (kv_heads, tiles), device="cuda", dtype=torch.int32)


def reference_sparse(q, k, v, index, count, rows, pack):
    (t, h, d), (sk, hk) = q.shape, k.shape[1:3]
    blocks = driver.ceil_div(sk, 64)
    keep = torch.zeros(hk, index.shape[1], blocks, dtype=torch.bool, device="cuda")
    for j in range(index.shape[2]):
        at = index[:, :, j:j + 1].long()
        keep.scatter_(2, at, keep.gather(2, at) | (j < count)[..., None])
    keep = keep.repeat_interleave(64, 2)[:, :, :sk].repeat_interleave(rows // pack, 1)[:, :t]
    s = torch.einsum("thd,shd->hts", q.float(), widen(k, h)[0].float()) * d ** -0.5
    s = s.masked_fill(~keep.repeat_interleave(h // hk, 0), -math.inf)
    return torch.einsum("hts,shd->thd", s.softmax(-1), widen(v, h)[0].float())


def check_sparse(variant):
    kernel, c = driver.Sparse(variant), Checker(variant, 4e-3)
    for t, s, h, hk, pack, low, high in [(256, 1024, 8, 1, 8, 4, 4), (300, 1000, 16, 2, 8, 1, 9), (500, 640, 4, 1, 4, 3, 3),
                                         (1000, 2048, 16, 2, 8, 1, 32), (500, 777, 6, 3, 1, 1, 12),
                                         (2048, 2048, 64, 8, 8, 16, 16)]:
        q, k, v, out = randn(t, h, 128), randn(1, s, hk, 128), randn(1, s, hk, 128), Poisoned(t, h, 128)
        index, count = sparse_lists(hk, driver.ceil_div(t * pack, kernel.rows), s // 64, low, high)
        ref = reference_sparse(q, k, v, index, count, kernel.rows, pack)
        launch, first = kernel.bind(q, k, v, out.out, index, count, pack), None
        for _ in range(3):
            out.fill()
            launch()
            torch.cuda.synchronize()
            c.add((t, s, h, hk, pack, low, high), out, ref)
            first = out.out.clone() if first is None else first
            c.same((t, s, h, hk, pack), first, out.out)
    return c.report()


def time_sparse(variants, s):
    h, hk, picked = 64, 8, 32
    q, k, v = randn(s, h, 128), randn(1, s, hk, 128), randn(1, s, hk, 128)
    runs, outputs, samples = {}, {}, {}
    for name in variants:
        kernel = driver.Sparse(name)
        for pack in (8, 1) if kernel.rows == 128 else (8,):
            index, count = sparse_lists(hk, s * pack // kernel.rows, s // 64, picked, picked)
            label = "%s, %d tokens x %d heads" % (name, kernel.rows // pack, pack)
            outputs[label] = [torch.empty_like(q)]
            runs[label] = kernel.bind(q, k, v, *outputs[label], index, count, pack)
            samples[label] = sparse_sample(q, k, v, index, kernel.rows // pack)
    yield {"label": "block-sparse S=%d, 64/8 heads, 32 blocks of 64" % s, "flops": 4 * 128 * h * s * 64 * picked,
           "runs": runs, "outputs": outputs, "samples": samples}


def sparse_sample(q, k, v, index, tokens, tiles=24):
    """(rows, heads, fp32 reference) of random tiles: full-size scores do not fit"""
    (s, h, d), hk, parts = q.shape, k.shape[2], []
    for tile in torch.randperm(s // tokens)[:tiles].tolist():
        head = int(torch.randint(h, (1,)))
        rows = torch.arange(tile * tokens, (tile + 1) * tokens, device="cuda")
        keys = (index[head * hk // h, tile].long()[:, None] * 64 + torch.arange(64, device="cuda")).flatten()
        kh, vh = [x[0, keys, head * hk // h].float() for x in (k, v)]
        parts.append((rows, head, (q[rows, head].float() @ kh.t() * d ** -0.5).softmax(-1) @ vh))
    return parts


# ---------------------------------------------------------------------------------------------------- backward
def check_backward(variant, repeats=20):
    kernel, c = driver.Backward(variant), Checker(variant, 6e-3)
    for b, s, sk, h, hk in SHAPES:
        for amplitude in (1.0, 2.0):
            d = kernel.d
            q, k, v = randn(b, s, h, d, amplitude=amplitude), randn(b, sk, hk, d, amplitude=amplitude), randn(b, sk, hk, d)
            d_o = randn(b, s, h, d)
            o, lse, refs = reference_backward(q, k, v, d_o, kernel.causal)
            outs = [Poisoned(*x.shape) for x in (q, k, v)]
            floors = [error(x, r) for x, r in zip(rounded_backward(q, k, v, d_o, o, kernel.causal), refs)]
            # of one query nothing averages: the worst case of rounding P, dS and the result, 2^-9 each
            limits = [f + 3 * 2 ** -9 if s == 1 else max(4e-3, 2 * f) for f in floors]
            launch = kernel.bind(q, k, v, o.to(BF16).contiguous(), lse.float().contiguous(), d_o, *[x.out for x in outs])
            first = None
            for i in range(repeats if amplitude == 1.0 else 2):
                for x in outs:
                    x.fill()
                launch()
                torch.cuda.synchronize()
                for name, x, ref, limit in zip(("dq", "dk", "dv"), outs, refs, limits):
                    # one key: gradients of scores vanish, what is left is rounding
                    if i < 3 and not (name != "dv" and sk == 1):
                        c.add((name, b, s, sk, h, hk, amplitude), x, ref, limit)
                first = [x.out.clone() for x in outs] if first is None else first
                for name, x, y in zip(("dq", "dk", "dv"), outs, first):
                    if name != "dq" or kernel.ordered:
                        c.same((name, b, s, sk, h, hk), y, x.out)
            if c.faults and c.count < 20:
                return c.report()
    return c.report()


def time_backward(variants, sizes, tokens=16384):
    wanted = sorted({(k["D"], k["CAUSAL"]) for k in (driver.VARIANTS[name][1] for name, _ in variants)})
    for d, causal in wanted:
        for s in sizes:
            b, h = tokens // s, 2048 // d
            q, k, v, d_o = [randn(b, s, h, d) for _ in range(4)]
            qt, kt, vt = [x.transpose(1, 2).requires_grad_() for x in (q, k, v)]
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                ot = F.scaled_dot_product_attention(qt, kt, vt, is_causal=bool(causal))
            o, lse, last = ot.detach().transpose(1, 2).contiguous(), row_lse(q, k, causal), []

            def cudnn(ot=ot, qt=qt, kt=kt, vt=vt, d_o=d_o, last=last):
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    last[:] = torch.autograd.grad(ot, (qt, kt, vt), d_o.transpose(1, 2), retain_graph=True)
            runs, outputs = {"cuDNN": cudnn}, {}
            for name, section in variants:
                kernel = driver.Backward(name, section)
                if (kernel.d, kernel.causal) == (d, causal):
                    label = name + ("/%d" % section if section else "")
                    outputs[label] = [torch.empty_like(q) for _ in range(3)]
                    runs[label] = kernel.bind(q, k, v, o, lse, d_o, *outputs[label])
            yield {"label": "backward D=%d %s S=%d" % (d, "causal" if causal else "full", s),
                   "flops": 10 * b * h * s * s * d / (1 + causal), "runs": runs,
                   "outputs": outputs, "rival": lambda last=last: [x.transpose(1, 2) for x in last]}
