"""Loads and launches the target texts through the CUDA driver; tensors are torch's."""
import ctypes
import math
import os

import torch

from build import OUT, VARIANTS

torch.zeros(1, device="cuda")  # makes torch's context current for the calls below
cuda = ctypes.CDLL("libcuda.so.1")
SMS = torch.cuda.get_device_properties(0).multi_processor_count
SHARED_LIMIT, CARVEOUT = 8, 9  # CU_FUNC_ATTRIBUTE_*


def check(rc, what):
    if rc != 0:
        raise RuntimeError("CUDA driver error %d: %s" % (rc, what))


def tensor_map(tensor, dims, strides, box):
    """bf16, 128-byte swizzle, out-of-bounds zero; strides in bytes, without the innermost. Returns (buffer, address)."""
    rank = len(dims)
    buffer = ctypes.create_string_buffer(128 + 64)
    address = (ctypes.addressof(buffer) + 63) // 64 * 64
    check(cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(address), 9, rank, ctypes.c_void_p(tensor.data_ptr()), (ctypes.c_uint64 * rank)(*dims),
        (ctypes.c_uint64 * (rank - 1))(*strides), (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank),
        0, 3, 2, 0), "tensor map %s %s" % (dims, box))
    return buffer, address


def matrix_map(matrix, box_rows):
    """[rows, columns] row-major; boxes of 64 columns"""
    rows, columns = matrix.shape
    return tensor_map(matrix, (columns, rows), (columns * 2,), (64, box_rows))


def heads_map(tensor, box_rows, box_columns):
    """[batch, sequence, heads, D] as (64, sequence, heads * D / 64, batch)"""
    b, s, h, d = tensor.shape
    return tensor_map(tensor, (64, s, h * d // 64, b), (h * d * 2, 128, s * h * d * 2), (64, box_rows, box_columns, 1))


def packed_map(tensor, pack):
    """[tokens, heads, D] as (64, heads, tokens, D / 64): 64 rows are (token, head) pairs of `pack` heads"""
    t, h, d = tensor.shape
    return tensor_map(tensor, (64, h, t, d // 64), (d * 2, h * d * 2, 128), (64, pack, 64 // pack, d // 64))


class Function:
    """One __global__ of a cubin."""

    def __init__(self, variant, symbol, threads, shared=0):
        self.defines, self.threads, self.shared = VARIANTS[variant][1], threads, shared
        self.module, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        check(cuda.cuModuleLoad(ctypes.byref(self.module), os.path.join(OUT, variant + ".cubin").encode()), variant)
        check(cuda.cuModuleGetFunction(ctypes.byref(self.handle), self.module, symbol.encode()), symbol)
        if shared:
            check(cuda.cuFuncSetAttribute(self.handle, SHARED_LIMIT, shared), "shared memory")
            check(cuda.cuFuncSetAttribute(self.handle, CARVEOUT, 100), "carveout")

    def prepare(self, grid, maps, params, tensors):
        """Returns a launch without arguments, so that a timed call costs one driver call. Keeps the tensors alive."""
        assert all(t.is_contiguous() for t in tensors)
        addresses = [address for _, address in maps] + [ctypes.addressof(params)]
        args = (ctypes.c_void_p * len(addresses))(*addresses)

        def launch(keep=(maps, params, tensors)):
            check(cuda.cuLaunchKernel(self.handle, *grid, self.threads, 1, 1, self.shared,
                                      ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), args, None), "launch")
        return launch


def structure(name, fields):
    kinds = {"i": ctypes.c_int, "f": ctypes.c_float, "p": ctypes.c_void_p}
    return type(name, (ctypes.Structure,), {"_fields_": [(f, kinds[k]) for k, names in fields for f in names.split()]})


def ceil_div(a, b):
    return -(-a // b)


# ---------------------------------------------------------------------------------------------------- gemm
GemmParams = structure("GemmParams", [("i", "m_pairs n_tiles tiles k_steps group")])


class Gemm:
    """c = a b; a [M, K], b [N, K] (nt) or [K, N] (nn)"""

    def __init__(self, variant, group=8):
        d = VARIANTS[variant][1]
        self.bn, self.n_major, self.group = d["BN"], d["B_N_MAJOR"], group
        stages = d.get("STAGES", 4)
        stores = 3 if self.bn == 192 else 2
        shared = stages * (128 + self.bn) * 128 + 2 * stores * 8192 + 16 * stages
        self.f = Function(variant, "gemm", 384, shared)

    def bind(self, a, b, c):
        (m, k), n = a.shape, c.shape[1]
        if self.n_major:
            map_b = matrix_map(b, 64 if self.bn % 128 == 0 else 32)
        else:
            map_b = matrix_map(b, self.bn // 2)
        p = GemmParams(ceil_div(m, 256), ceil_div(n, self.bn), 0, ceil_div(k, 64), self.group)
        p.tiles = p.m_pairs * p.n_tiles
        grid = 2 * min(SMS // 2, p.tiles)
        return self.f.prepare((grid, 1, 1), [matrix_map(a, 128), map_b, matrix_map(c, 64)], p, (a, b, c))


# ---------------------------------------------------------------------------------------------------- forward
ForwardParams = structure("ForwardParams", [
    ("i", "s_q s_k heads group batch m_tiles tiles section"), ("f", "scale scale_log2"), ("p", "counter lse")])


class Forward:
    def __init__(self, variant):
        d = VARIANTS[variant][1]
        self.d, self.causal = d["D"], d["CAUSAL"]
        self.wgs = 2 if self.d == 128 else 3
        q, kv = 64 * self.d * 2, 128 * self.d * 2
        shared = 2 * self.wgs * q + 4 * kv + 8 * (2 * self.wgs + 8) + 4 * self.wgs
        self.f = Function(variant, "attention_forward", 128 * (self.wgs + 1), shared)
        self.counter = torch.zeros(2, dtype=torch.int32, device="cuda")

    def bind(self, q, k, v, o, lse):
        (b, s, h, d), (sk, hk) = q.shape, k.shape[1:3]
        m = ceil_div(s, 64 * self.wgs)
        section = min(max(1, (32 << 20) // (sk * d * 4)) * (h // hk), b * h)
        p = ForwardParams(s, sk, h, h // hk, b, m, m * b * h, section, d ** -0.5, d ** -0.5 * math.log2(math.e),
                          self.counter.data_ptr(), lse.data_ptr())
        maps = [heads_map(q, 64, d // 64), heads_map(k, 128, d // 64), heads_map(v, 128, d // 64),
                heads_map(o, 64, d // 64)]
        return self.f.prepare((min(SMS, p.tiles), 1, 1), maps, p, (q, k, v, o, lse, self.counter))


# ---------------------------------------------------------------------------------------------------- block-sparse forward
SparseParams = structure("SparseParams", [
    ("i", "group m_tiles tiles max_index pack"), ("f", "scale_log2"), ("p", "counter index count")])


class Sparse:
    """q, o [tokens, heads, 128]; k, v [1, s_k, kv heads, 128]; index [kv heads, tiles, max], count [kv heads, tiles]"""

    def __init__(self, variant):
        self.rows = VARIANTS[variant][1]["ROWS"]
        wgs, bn = self.rows // 64, self.rows
        q, kv = 64 * 256, bn * 256
        shared = 2 * wgs * q + 4 * kv + 8 * (2 * wgs + 8) + 4 * wgs
        self.f = Function(variant, "block_sparse_forward", 128 * (wgs + 1), shared)
        self.counter = torch.zeros(2, dtype=torch.int32, device="cuda")

    def bind(self, q, k, v, o, index, count, pack):
        (t, h, d), hk = q.shape, k.shape[2]
        m = ceil_div(t * pack, self.rows)
        packs = h // pack
        p = SparseParams(packs // hk, m, m * packs, index.shape[2], pack, d ** -0.5 * math.log2(math.e),
                         self.counter.data_ptr(), index.data_ptr(), count.data_ptr())
        maps = [packed_map(q, pack), heads_map(k, 64, 1), heads_map(v, 64, 1), packed_map(o, pack)]
        return self.f.prepare((min(SMS * (128 // self.rows), p.tiles), 1, 1), maps, p,
                              (q, k, v, o, index, count, self.counter))


# ---------------------------------------------------------------------------------------------------- backward
BackwardParams = structure("BackwardParams", [
    ("i", "s_q s_k heads group batch m_blocks n_blocks tiles section"), ("f", "scale scale_log2"),
    ("p", "counter turn dq rows")])
RowParams = structure("RowParams", [
    ("i", "s_q heads m_blocks"), ("f", "scale"), ("p", "o d_o lse rows dq turn dq_out")])


class Backward:
    def __init__(self, variant, section=0):
        d = VARIANTS[variant][1]
        self.d, self.bm, self.causal, self.ordered = d["D"], d["BM"], d["CAUSAL"], d["ORDERED"]
        # heads in flight: more of them shorten the chain of turns, fewer keep their rows in the L2 cache
        self.section = section or (16 if self.causal and self.ordered else 8)
        bm, row = self.bm, self.d * 2
        shared = 2 * 128 * row + 2 * 2 * bm * row + 2 * bm * 256 + bm * row * 2 + 2 * bm * 8 + 8 * 14
        shared = (shared + 15) // 16 * 16 + 16
        self.main = Function(variant, "backward", 384, shared)
        self.before = Function(variant, "prepare", 256)
        self.after = Function(variant, "finish", 256)
        self.counter = torch.zeros(2, dtype=torch.int32, device="cuda")

    def bind(self, q, k, v, o, lse, d_o, dq, dk, dv):
        (b, s, h, d), (sk, hk) = q.shape, k.shape[1:3]
        bm, mb, nb = self.bm, ceil_div(s, self.bm), ceil_div(sk, 128)
        rows = torch.empty(b * h, mb, 2, bm, device="cuda")
        scratch = torch.full((b * h, mb, bm * d), float("nan"), device="cuda")
        turn = torch.empty(b * h, mb, 2, dtype=torch.int32, device="cuda")
        scale = d ** -0.5
        p = BackwardParams(s, sk, h, h // hk, b, mb, nb, b * hk * nb, min(self.section, b * hk), scale,
                           scale * math.log2(math.e), self.counter.data_ptr(), turn.data_ptr(), scratch.data_ptr(),
                           rows.data_ptr())
        r = RowParams(s, h, mb, scale, o.data_ptr(), d_o.data_ptr(), lse.data_ptr(), rows.data_ptr(),
                      scratch.data_ptr(), turn.data_ptr(), dq.data_ptr())
        maps = [heads_map(q, bm, d // 64), heads_map(k, 128, d // 64), heads_map(v, 128, d // 64), heads_map(d_o, bm, d // 64),
                heads_map(dk, 64, 1), heads_map(dv, 64, 1)]
        tensors = (self.counter, rows, scratch, turn, q, k, v, o, lse, d_o, dq, dk, dv)
        launches = [self.before.prepare((mb, b * h, 1), [], r, tensors),
                    self.main.prepare((min(SMS, p.tiles), 1, 1), maps, p, tensors),
                    self.after.prepare((mb, b * h, 1), [], r, tensors)]

        def launch():
            for f in launches:
                f()
        launch.parts = launches
        return launch
