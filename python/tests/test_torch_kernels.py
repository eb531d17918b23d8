"""Kernels of Python on tensors of PyTorch, and as its operators."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import tegula
import tegula.torch
from tegula.lang import *  # noqa: F403

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
import lessons
import programs


def operands():
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(-4, 5, (50, 33), generator=generator).bfloat16()
    b = torch.randint(-4, 5, (70, 33), generator=generator).bfloat16()
    return a, b


def backward(saved, grad):
    grad = (grad * (saved.C > 0)).bfloat16()
    return grad @ saved.B, grad.T @ saved.A


def test_tensors():
    a, b = operands()
    c = lessons.gemm_relu(32, 32, 16)(a, b)
    assert c.dtype == torch.float32
    torch.testing.assert_close(c, torch.relu(a.float() @ b.float().T))
    out = torch.empty_like(c)
    assert lessons.gemm_relu(32, 32, 16)(a, b, out=out) is out
    torch.testing.assert_close(out, c)
    with pytest.raises(TypeError, match="custom_op"):
        lessons.gemm_relu(32, 32, 16)(a.requires_grad_(), b)


def test_operator():
    op = tegula.torch.custom_op(lessons.gemm_relu(32, 32, 16), name="tegula_tests::gemm_relu", backward=backward)
    leaves = [x.requires_grad_() for x in operands()]
    others = [x.detach().clone().requires_grad_() for x in leaves]
    c, expected = op(*leaves), torch.relu(others[0].float() @ others[1].float().T)
    torch.testing.assert_close(c, expected)
    weights = torch.randint(-2, 3, c.shape).float()
    (c * weights).sum().backward(), (expected * weights).sum().backward()
    for leaf, other in zip(leaves, others):
        torch.testing.assert_close(leaf.grad, other.grad)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(op, tuple(leaves), test_utils=tests)


def test_operator_without_elements():
    op = tegula.torch.custom_op(lessons.gemm_relu(32, 32, 16), name="tegula_tests::gemm_fake")
    with torch._subclasses.FakeTensorMode():
        c = op(torch.empty(5, 8, dtype=torch.bfloat16), torch.empty(7, 8, dtype=torch.bfloat16))
    assert c.shape == (5, 7) and c.dtype == torch.float32
    traced = torch.fx.experimental.proxy_tensor.make_fx(op, tracing_mode="symbolic")(*operands())
    a, b = operands()
    torch.testing.assert_close(traced(a[:9], b), op(a[:9], b))


@tegula.kernel
def scaled_rows():
    M, N, S = Dim("M"), Dim("N"), Dim("S")
    X, Y, Z = input("X", (M, N), f32), output("Y", (M, N), f32), output("Z", (M + 1, S), f32, zero=True)
    factor = scalar("factor", f32)
    with grid(M, ceildiv(N, 32)) as (row, block):
        with parallel(32) as i:
            Y[row, block * 32 + i] = X[row, block * 32 + i] * factor


def test_several_outputs_scalars_and_dims():
    op = tegula.torch.custom_op(
        scaled_rows(), name="tegula_tests::scaled_rows", save=["X"],
        backward=lambda saved, grad, _: {"X": grad * saved.factor},
    )  # fmt: skip
    x = torch.randn(3, 40, requires_grad=True)
    y, z = op(x, 2.0, 5)
    torch.testing.assert_close(y, 2 * x)
    assert z.shape == (4, 5)
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 2.0))


def test_changed_inputs():
    op = tegula.torch.custom_op(programs.sums(), name="tegula_tests::sums")
    x, ends, total = torch.ones(3, 8, dtype=torch.float16), torch.tensor([0, 1, 2, 3]).int(), torch.zeros(1)
    torch.testing.assert_close(op(x, ends, total, 1.0), torch.full((3,), 8.0))
    assert total.item() == 24
    with pytest.raises(ValueError, match="changes total"):
        tegula.torch.custom_op(programs.sums(), name="tegula_tests::sums", backward=backward)
    with pytest.raises(ValueError, match="save has 'D'"):
        tegula.torch.custom_op(lessons.gemm_relu(32, 32, 16), name="tegula_tests::d", backward=backward, save=["D"])
