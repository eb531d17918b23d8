"""The operators on a GPU: results of the CPU, streams of the caller, arrays of PyTorch and CuPy."""

import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
import tegula.torch  # noqa: E402
from cuda_operators import BLOCKS, NARROW, OPERATORS, TOKENS, WIDE, heads, lists  # noqa: E402
from torch_references import allowance, as_mask, causal_mask, nsa_mask, plain_attention  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
UNIT = {torch.float16: 2**-11, torch.bfloat16: 2**-8}  # half a unit in the last place of 1


def plain_choice(plain, q, k, v):
    def means(x):
        return torch.stack([rows.mean(1) for rows in x.detach().split(64, 1)], 2)

    scores = means(q).unflatten(1, (2, 2)).mean(2) @ means(k).transpose(2, 3)
    out, lse = plain(q, k, v, as_mask(scores.topk(2, -1).indices, TOKENS, TOKENS, 64, 64))
    return out[0], lse[0].transpose(0, 1)


def plain_drop_in(plain, q, k, v):
    (out, lse), (near, near_lse) = (
        plain(q, k, v, mask)
        for mask in (
            nsa_mask(torch.where(WIDE > 0, WIDE, -1), TOKENS, 64),
            causal_mask(TOKENS, TOKENS, left=64),
        )
    )
    return out.transpose(1, 2), lse, near.transpose(1, 2), near_lse


CAUSAL = causal_mask(TOKENS, TOKENS)
FORMULAS = {
    "attention": lambda plain, q, k, v: plain(q, k, v, CAUSAL),
    "sinks": lambda plain, q, k, v: plain(q, k, v, CAUSAL, sinks=v[0, 0, 0, :4]),
    "window": lambda plain, q, k, v: plain(q, k, v, causal_mask(TOKENS, TOKENS, left=31), softcap=10.0),
    "block_sparse": lambda plain, q, k, v: plain(q, k, v, as_mask(BLOCKS, TOKENS, TOKENS, 64, 64) & CAUSAL),
    "nsa_selected": lambda plain, q, k, v: (
        *plain(q, k, v, nsa_mask(NARROW, TOKENS, 16)),
        *plain(q, k, v, causal_mask(TOKENS, TOKENS, left=16)),
    ),
    "nsa_wide_blocks": lambda plain, q, k, v: plain(q, k, v, nsa_mask(WIDE, TOKENS, 64, diagonal=False)),
    "by_choice": plain_choice,
    "native_sparse_attend": plain_drop_in,
    "gemm": lambda _, q, k, v: (torch.nn.functional.silu(q[0, :, 0] @ k[0, :, 0].T + v[0, :, 0, 0]),),
}


def expect_within(actual, right, allowed):
    """Every element is as far from the exact one as its own sums allow."""
    ratio = ((actual.double().cpu() - right).abs() / allowed.clamp(min=1e-30)).max()
    assert ratio <= 1, f"{ratio:.3f} of what roundings explain"


def allowances(calls, inputs, unit):
    """Those of the results out of all calls, and of the gradients of the inputs, in which calls add up."""
    outs, sums = [], [unit * x.grad.abs() for x in inputs]
    for arguments, options, out, lse in calls:
        (of_out, *of_inputs), of_sinks = allowance(*arguments, out, lse, unit, **options)
        outs.append(of_out)
        sums = [one + other for one, other in zip(sums, of_inputs)]
        if of_sinks is not None:
            sums[2][0, 0, 0, :4] += of_sinks
    return outs, sums


def expect_close(actual, expected, dtype):
    assert actual.is_cuda
    torch.testing.assert_close(actual.cpu(), expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_results_and_gradients(name, dtype):
    """Against the formula in float64 and its automatic gradients."""
    inputs = heads(dtype)
    ours = [x.cuda().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    calls = []

    def plain(*arguments, **options):
        out, lse = plain_attention(*arguments, **options)
        out.retain_grad(), lse.retain_grad()
        calls.append((arguments, options, out, lse))
        return out, lse

    generator = torch.Generator().manual_seed(3)
    loss = exact_loss = 0
    results = list(zip(OPERATORS[name](*ours, *lists()), FORMULAS[name](plain, *exact)))
    for result, right in results:
        assert result.is_cuda
        torch.testing.assert_close(result.double().cpu(), right, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        weight = torch.randn(right.shape, generator=generator).to(dtype).double()
        finite = right.isfinite()
        exact_loss = exact_loss + (right[finite] * weight[finite]).sum()
        loss = loss + (result[finite.cuda()].double() * weight[finite].cuda()).sum()
    loss.backward()
    exact_loss.backward()
    if dtype == torch.float32 or not calls:
        for one, right in zip(ours, exact):
            tolerance = 8 * TOLERANCE[dtype]
            torch.testing.assert_close(one.grad.double().cpu(), right.grad, atol=tolerance, rtol=tolerance)
        return
    of_outs, of_gradients = allowances(calls, exact, UNIT[dtype])
    for (result, right), allowed in zip(results[::2], of_outs):
        if result.shape != allowed.shape:  # without a batch, or heads before tokens
            allowed = allowed[0] if result.dim() == 3 else allowed.transpose(1, 2)
        expect_within(result, right.detach(), allowed)
    for one, right, allowed in zip(ours, exact, of_gradients):
        expect_within(one.grad, right.grad, allowed)


def test_choice_of_blocks_and_products():
    q, k, _ = heads()
    scores = tegula.block_scores(q.cuda(), k.cuda(), q_block_size=32, k_block_size=32)
    expect_close(scores, tegula.block_scores(q, k, q_block_size=32, k_block_size=32), torch.float32)
    chosen = tegula.topk_blocks(scores, 3)
    assert chosen.is_cuda and torch.equal(chosen.cpu(), tegula.topk_blocks(scores.cpu(), 3))
    a, b = q[0, :, 0], k[0, :, 0]
    expect_close(tegula.gemm(a.cuda(), b.cuda(), transpose_b=True), a @ b.T, torch.float32)


@pytest.mark.skipif(not hasattr(torch, "float8_e4m3fn"), reason="PyTorch before 2.1 has no such dtypes")
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("transpose_b", [True, False])
def test_products_of_8_bits(dtype, transpose_b):
    """Along k, as the tensor cores take them, and otherwise.

    A step of Hopper's tensor cores adds 32 products to a sum. All are cut to 13 bits after the point of the largest
    (https://arxiv.org/abs/2411.10958 calls the format FP22); after 128 products the sum goes on in float32.
    """
    generator = torch.Generator().manual_seed(2)
    a, b = (torch.randn(rows, 256, generator=generator).to(getattr(torch, dtype)) for rows in (200, 96))
    products = (a.double()[:, None] * b.double()).unflatten(-1, (2, 4, 32)) / 16
    steps = products.sum(-1)
    largest = torch.maximum(products.abs().amax(-1), 1.01 * (steps.cumsum(-1) - steps).abs())
    cut = (33 * 2 ** (largest.log2().floor() - 13)).sum((2, 3))
    expected = steps.sum((2, 3))
    in_float32 = 256 * 2**-23 * products.abs().sum((2, 3, 4))
    given = b if transpose_b else b.T.contiguous()
    for out_dtype, unit in ((torch.bfloat16, 2**-8), (torch.float32, 2**-24)):
        out = tegula.torch.gemm(a.cuda(), given.cuda(), transpose_b=transpose_b, scale=1 / 16, out_dtype=out_dtype)
        assert out.is_cuda and out.dtype == out_dtype
        expect_within(out, expected, cut + in_float32 + unit * expected.abs())


def test_current_stream():
    """The call waits for what the caller's stream has queued, and only there."""
    q, k, v = (x.cuda() for x in heads())
    expected = tegula.attention(q, k, v)[0]
    late = torch.zeros_like(q)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(q)
        out, _ = tegula.attention(late, k, v)
    stream.synchronize()
    assert torch.equal(out, expected)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("name", ["attention", "by_choice", "nsa_selected"])
def test_compile(name, mode):
    """By Inductor; reduce-overhead also takes the step into a graph of CUDA."""

    indices = lists()

    def step(q, k, v):
        return OPERATORS[name](q * 2, k, v, *indices)[0].float().square().sum()

    inputs = [[x.cuda().requires_grad_() for x in heads(torch.bfloat16)] for _ in range(2)]
    step(*inputs[0]).backward()
    compiled = torch.compile(step, fullgraph=True, mode=mode)
    for _ in range(3):
        for x in inputs[1]:
            x.grad = None
        compiled(*inputs[1]).backward()
    for one, other in zip(*inputs):
        torch.testing.assert_close(other.grad, one.grad, atol=2e-2, rtol=2e-2)


def test_autocast():
    q, k, v = (x.cuda().requires_grad_() for x in heads())
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out, _ = tegula.torch.attention(q, k, v, causal=True)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32 and bool(q.grad.isfinite().all())


def test_cupy():
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    inputs = heads()
    q, k, v = (cupy.from_dlpack(x.cuda()) for x in inputs)
    with cupy.cuda.Stream(non_blocking=True):
        out, lse = tegula.attention(q * 1, k, v)
        out, lse = out * 1, lse * 1
    cupy.cuda.Device().synchronize()
    assert isinstance(out, cupy.ndarray)
    expected = tegula.attention(*inputs)
    for actual, right in zip((out, lse), expected):
        expect_close(torch.from_dlpack(actual), right, torch.float32)


def test_broken_promises_are_raised():
    q, k, v = (x[0].cuda() for x in heads())
    ends = torch.tensor([0, TOKENS], dtype=torch.int32).cuda()
    lengths = {"cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 1, "max_seqlen_k": TOKENS}
    tegula.attention(q, k, v, **lengths)
    with pytest.raises(RuntimeError, match="max_seqlen_q"):
        tegula.synchronize()
    tegula.synchronize()


def test_arrays_of_two_devices_are_refused():
    q, k, v = heads()
    with pytest.raises(ValueError, match="attention, argument 'k' is on cpu, and 'q' on cuda:0"):
        tegula.attention(q.cuda(), k, v)
