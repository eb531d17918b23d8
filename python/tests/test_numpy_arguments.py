"""What operators take as arrays and options from Python, and how they refuse the rest."""

import functools

import numpy as np
import pytest
import tegula
from arrays import BLOCKS, expect_close, heads, random, refused


class Foreign:
    """An array of a library that knows DLPack alone, as of before version 1.0."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_foreign_arrays():
    a, b = random((4, 5)), random((5, 6))
    result = tegula.gemm(Foreign(a), Foreign(b), target="interpreter")
    expect_close(np.from_dlpack(result), a.astype(float) @ b)
    expect_close(tegula.gemm(a, Foreign(b), target="interpreter"), a.astype(float) @ b)


def test_errors():
    q, k, v = heads()
    refused(lambda: tegula.attention([1, 2], k, v), TypeError, "'q'", "__dlpack__", "list")
    refused(lambda: tegula.attention(q, k[..., :8], v), ValueError, "k")
    refused(lambda: tegula.attention(q, k, v.astype(np.float16)), ValueError, "'v'", "f16", "f32")
    refused(lambda: tegula.attention(q[..., ::2], k[..., ::2], v), ValueError, "'q'", "contiguous copy")
    refused(lambda: tegula.attention(q.astype(complex), k, v), (TypeError, ValueError))
    refused(lambda: tegula.attention(q, k, v, layout="sbhd"), ValueError, "'layout'", "bshd, bhsd")
    refused(lambda: tegula.attention(q, k, v, target="abacus"), ValueError, "target", "'interpreter'")
    refused(lambda: tegula.attention(q, k, v, scale=-1.0), ValueError, "scale")
    refused(lambda: tegula.attention(q, k, v, causal="yes"), TypeError, "attention, argument 'causal': expected bool, given str")
    refused(lambda: tegula.attention(q, k, v, scale="a"), TypeError, "'scale': expected float, given str")
    refused(lambda: tegula.attention(q, k, v, left=2.5), TypeError, "'left': expected int, given float")
    refused(lambda: tegula.attention(q, k, v, layout=None), TypeError, "'layout': expected str, given None")
    refused(lambda: tegula.attention(q, k, None), TypeError, "'v': expected an array", "None")
    refused(lambda: tegula.block_scores(q, k, q_block_size="a", k_block_size=16), TypeError, "'q_block_size': expected int, given str")
    refused(lambda: tegula.block_scores(q, k, q_block_size=2**40, k_block_size=16), TypeError, "'q_block_size'", "32 bits, given 1099511627776")
    refused(lambda: tegula.topk_blocks(q, 1.5), TypeError, "'count': expected int, given float")
    refused(lambda: tegula.attention(q[0], k, v), ValueError, "q")
    refused(lambda: tegula.attention(q, k, v, target=3), TypeError, "'target': expected str, given int")
    ends = np.array([0, 37], np.int32)
    packed = lambda: tegula.attention(q, k, v, cu_seqlens_q=ends, cu_seqlens_k=ends)  # noqa: E731
    refused(packed, ValueError, "'q'", "rank 3", "with cu_seqlens_q")
    sparse = functools.partial(tegula.block_sparse_attention, q, k, v, **BLOCKS)
    refused(sparse, ValueError, "block_sparse_attention", "indices or mask")
    wide = np.zeros((2, 2, 3, 3), np.int64)
    refused(lambda: sparse(indices=wide), ValueError, "'indices'", "dtype i32", "given i64")
    refused(lambda: tegula.block_scores(q, k, q_block_size=0, k_block_size=16), ValueError, "'q_block_size'")
    wrong = np.full((2, 2, 3, 3), 7, np.int32)
    refused(lambda: sparse(indices=wrong, check_indices=True), ValueError, "indices", "7")
    tokens = np.full((2, 37, 2, 3), 7, np.int32)
    refused(lambda: tegula.nsa_selected_attention(q, k, v, tokens, check_indices=True), ValueError, "indices", "7")
    refused(lambda: tegula.gemm(q[0, 0], q[0, 0], activation="cube"), ValueError, "none, relu")
    refused(lambda: tegula.gemm(q[0, 0], q[0, 0], out_dtype="int8"), ValueError, "out_dtype")
    refused(lambda: tegula.gemm(q[0, 0], q[0, 0], transpose_b=True, sum_dtype="float16"), ValueError, "'sum_dtype'", "matrices of f16")
    refused(lambda: tegula.topk_blocks(np.zeros((1, 1, 1, 1), np.float32), -1), ValueError, "count")
    out = np.empty_like(q)
    out.flags.writeable = False
    refused(lambda: tegula.attention(q, k, v, out=out), ValueError, "out", "read-only")
    refused(lambda: tegula.attention(q, k, v, out=np.empty((3, 3), np.float32)), ValueError, "out")


def raising(error):
    def method(*args, **kwargs):
        raise error

    return method


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("member", ["__dlpack__", "__dlpack_device__", "__index__", "__float__"])
def test_errors_that_are_no_answers_pass_through(member, error):
    """Of code that an argument brings along, also where another export would be tried next."""
    q, k, v = heads()
    if member.startswith("__dlpack"):
        hostile = type("Hostile", (Foreign,), {member: raising(error), "__array_interface__": {}})(q)
        call = lambda: tegula.attention(hostile, k, v)  # noqa: E731
    else:
        hostile = type("Hostile", (), {member: raising(error)})()
        option = "left" if member == "__index__" else "scale"
        call = lambda: tegula.attention(q, k, v, **{option: hostile})  # noqa: E731
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("device", ["cpu", 1, None, (), (1,), ("cpu", 0), (2**70, 0), (1.5, 0), [1, 0, 0]])
def test_devices_that_are_none(device):
    q, k, v = heads()
    hostile = type("Hostile", (Foreign,), {"__dlpack_device__": lambda self: device})(q)
    refused(lambda: tegula.attention(hostile, k, v), TypeError, "'q': __dlpack_device__ returns", repr(device))


@pytest.mark.parametrize("interface", [{"typestr": "<f4", "data": ("here", False), "shape": (1,)},
                                       {"typestr": "<f4", "data": (0, False), "shape": ("a",)}])  # fmt: skip
def test_descriptions_that_are_none(interface):
    hostile = type("Hostile", (), {"__array_interface__": interface, "__dlpack__": raising(BufferError)})()
    hostile.__class__.__dlpack_device__ = lambda self: (1, 0)
    refused(lambda: tegula.attention(hostile, *heads()[1:]), TypeError, "'q': its __array_interface__")


def test_arguments_of_the_edge():
    q, k, v = heads()
    refused(lambda: tegula.attention(q, k, v, layout="bshd\0x"), ValueError, "layout", "given 'bshd\\0x'")
    refused(lambda: tegula.topk_blocks(random((1, 1, 2, 3)), 2**63 - 1), ValueError, "'count'", "there are 3, given 92")
    nobody = q[:, :, :0]
    for per_kv_head in (True, False):
        try:
            assert tegula.block_scores(nobody, k, per_kv_head=per_kv_head).size == 0
        except ValueError as error:
            assert "heads" in str(error) and "'out'" not in str(error)
    refused(lambda: tegula.attention(q, k, v[:, :, :, :16], out=q), ValueError, "'out': expected its own memory, not that of q")
    with pytest.raises(ValueError) as error:
        tegula.attention(q, k, v, out=q)
    assert str(error.value).endswith("pass another tensor") and "may_alias" not in str(error.value)


NAMES_OF_OTHERS = {"is_causal": "causal", "softmax_scale": "scale", "dropout_p": "no dropout", "attn_mask": "mask",
                   "window_size": "left and right", "enable_gqa": "fewer heads"}  # fmt: skip


@pytest.mark.parametrize("name", NAMES_OF_OTHERS)
def test_options_of_other_libraries_get_a_hint(name):
    q, k, v = heads()
    for function, arguments in (
        ("attention", (q, k, v)),
        ("block_sparse_attention", (q, k, v)),
        ("nsa_selected_attention", (q, k, v, None)),
    ):
        unknown = f"tegula.{function}() got an unexpected keyword argument '{name}'; "
        refused(lambda: getattr(tegula, function)(*arguments, **{name: 0}), TypeError, unknown, NAMES_OF_OTHERS[name])
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'$"):
        tegula.attention(q, k, v, colour=1)
