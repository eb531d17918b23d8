"""The kinds of tensors that PyTorch hands over: as inputs, as outputs, and as the gradients of results."""

import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs_operators = pytest.mark.skipif(
    not hasattr(torch.library, "custom_op"), reason="PyTorch before 2.4 has no such operators"
)
import tegula.torch  # noqa: E402
from torch_references import choice, heads  # noqa: E402


def turned(x):
    return x.permute(*reversed(range(x.dim())))


# Tensors with the elements of x, or some of them instead of others, by their strides and flags.
KINDS = {
    "dense": lambda x: x.clone(),
    "one element": lambda x: x.flatten()[0].expand(x.shape),
    "one row": lambda x: x.select(-2, 0).unsqueeze(-2).expand(x.shape) if x.dim() > 1 else x,
    "one column": lambda x: x[..., :1].expand(x.shape),
    "dimensions reversed": lambda x: turned(turned(x).contiguous()),
    "last dimensions swapped": lambda x: x.mT.contiguous().mT if x.dim() > 1 else x,
    "rows of a wider tensor": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "every second column": lambda x: torch.stack([x, x], -1)[..., 0],
    "negative bit": lambda x: torch._neg_view(-x),
    "imaginary part of a conjugate": lambda x: torch.complex(x, -x).conj().imag,
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape),
}
NEGATIVE = ("negative bit", "imaginary part of a conjugate")


def dense(x):
    return x.resolve_neg().clone(memory_format=torch.contiguous_format) + 0


def numbers(*shape, seed=7):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


BLOCKS, OF_TOKENS = choice(3, 3, 2).int(), choice(21, 6, 3).int().transpose(1, 2)
LENGTHS = torch.tensor([0, 8, 21], dtype=torch.int32)
# How they are called with the tensors after them, which are differentiable.
OPERATORS = {
    "attention": (
        lambda q, k, v, s: tegula.torch.attention(q, k, v, causal=True, left=9, softcap=5.0, sinks=s),
        (*heads(), torch.tensor([0.1, -1.0, 2.0, 0.5])),
    ),
    "attention, heads first": (
        lambda q, k, v: tegula.torch.attention(q, k, v, causal=True, layout="bhsd"),
        [x.transpose(1, 2).contiguous() for x in heads()],
    ),
    "attention, packed": (
        lambda q, k, v: tegula.torch.attention(q, k, v, causal=True, cu_seqlens_q=LENGTHS, cu_seqlens_k=LENGTHS),
        [x[0] for x in heads()],
    ),
    "block_sparse_attn": (
        lambda q, k, v: tegula.torch.block_sparse_attn(q, k, v, 8, 8, BLOCKS, causal=True),
        heads(),
    ),
    "block_sparse_attn, no batch": (
        lambda q, k, v: tegula.torch.block_sparse_attn(q, k, v, 8, 8, BLOCKS[0]),
        [x[0] for x in heads()],
    ),
    "nsa_selected_attention": (
        lambda q, k, v, f: tegula.torch.nsa_selected_attention(
            q, k, v, OF_TOKENS, sel_scale=f, block_size=4, diagonal=True, window=5
        ),
        (*heads(), torch.ones(OF_TOKENS.shape)),
    ),
    "block_scores": (lambda q, k: (tegula.torch.block_scores(q, k, q_block_size=8, k_block_size=4, causal=True),), heads(keys=25)[:2]),
    "gemm": (lambda a, b: (tegula.torch.gemm(a, b),), (numbers(4, 5), numbers(5, 6))),
    "gemm, transposed": (
        lambda a, b, c: (tegula.torch.gemm(a, b, transpose_a=True, transpose_b=True, bias=c),),
        (numbers(5, 4), numbers(6, 5), numbers(6)),
    ),
    "gemm, batches": (
        lambda a, b, c: (tegula.torch.gemm(a, b, bias=c, activation="silu", scale=1.75),),
        (numbers(3, 10, 7), numbers(7, 9), numbers(9)),
    ),
}


def leaves(name):
    return [x.clone().requires_grad_() for x in OPERATORS[name][1]]


def gradients_of(results, inputs, gradients=None, **options):
    found = torch.autograd.grad(results, inputs, gradients, allow_unused=True, **options)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found)]


def close(actual, expected):
    for one, other in zip(actual, expected):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_results(name, kind):
    """Of one result after the other, and of all of them: as from the same numbers in a dense tensor."""
    call, _ = OPERATORS[name]
    inputs = leaves(name)
    results = call(*inputs)
    given = [KINDS[kind](numbers(*x.shape, seed=i)) for i, x in enumerate(results)]
    for which in [range(len(results)), *([i] for i in range(len(results)))]:
        actual, expected = (
            gradients_of([results[i] for i in which], inputs, gradients, retain_graph=True)
            for gradients in ([given[i] for i in which], [dense(given[i]) for i in which])
        )
        close(actual, expected)


def sum_of(results):
    return sum(x.masked_fill(x == -torch.inf, 0).sum() if x.dim() == 4 and len(results) == 1 else x.sum()
               for x in results)  # fmt: skip


@needs_operators
@pytest.mark.parametrize("way", ["plain", "checkpoint", "func.grad", "aot_eager"])
@pytest.mark.parametrize("name", OPERATORS)
def test_sums_of_results(name, way):
    """The gradients of a sum are one element with strides of 0, however the backward pass is arranged."""
    call, _ = OPERATORS[name]
    inputs, others = leaves(name), leaves(name)

    def loss(*tensors):
        return sum_of(call(*tensors))

    weighted = sum_of([x * torch.ones_like(x) for x in call(*others)])  # which makes them dense
    expected = gradients_of(weighted, others)
    if way == "func.grad":
        close(torch.func.grad(loss, tuple(range(len(inputs))))(*(x.detach() for x in inputs)), expected)
        return
    if way == "checkpoint":
        total = torch.utils.checkpoint.checkpoint(loss, *inputs, use_reentrant=False)
    elif way == "aot_eager":
        torch._dynamo.reset()
        total = torch.compile(loss, backend="aot_eager", fullgraph=True)(*inputs)
    else:
        total = loss(*inputs)
    close(gradients_of(total, inputs), expected)


def is_refused(name, x):
    """Features that are not contiguous are the library's to refuse; elements of gemm may run along columns."""
    if x.is_neg() or x.dim() < 2 or x.stride(-1) == 1:
        return False
    return not (name.startswith("gemm") and x.stride(-2) == 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_inputs(name, kind):
    """Results and gradients as of the same numbers in a dense tensor, or a refusal that says what to do."""
    call, tensors = OPERATORS[name]
    for at, x in enumerate(tensors):
        given = KINDS[kind](x)
        if name == "nsa_selected_attention" and at == 3:
            continue  # the factors, which nobody reads
        actual = [x.clone() for x in tensors[:at]] + [given] + [x.clone() for x in tensors[at + 1 :]]
        if is_refused(name, given):
            with pytest.raises(ValueError, match="pass a contiguous copy"):
                call(*actual)
            continue
        same = [dense(x).requires_grad_() for x in actual]
        expected = call(*same)
        close(call(*actual), expected)
        for i, one in enumerate(actual):
            actual[i] = one.requires_grad_() if i != at else one.detach().requires_grad_()
        close(*(gradients_of(sum_of(call(*inputs)), inputs) for inputs in (actual, same)))


@pytest.mark.parametrize("kind", NEGATIVE)
def test_the_negative_bit_is_read(kind):
    """Also by the functions of tegula itself, in all arguments."""
    q, k, v = heads()
    out, lse = tegula.attention(q, k, v)
    dout = numbers(*out.shape)
    dlse = numbers(*lse.shape)
    close(tegula.attention(*(KINDS[kind](x) for x in (q, k, v))), (out, lse))
    given = (dout, q, k, v, out, lse)
    gradients = tegula.attention_backward(*(KINDS[kind](x) for x in given), dlse=KINDS[kind](dlse))
    close(gradients[:3], tegula.attention_backward(*given, dlse=dlse)[:3])
    a, b = numbers(4, 5), numbers(5, 6)
    close([tegula.gemm(KINDS[kind](a), KINDS[kind](b))], [a @ b])
    scores = tegula.block_scores(KINDS[kind](q), KINDS[kind](k), q_block_size=8, k_block_size=8)
    close([scores], [tegula.block_scores(q, k, q_block_size=8, k_block_size=8)])
    assert torch.equal(tegula.topk_blocks(KINDS[kind](scores), 2), tegula.topk_blocks(scores, 2))


@pytest.mark.parametrize("kind", [*NEGATIVE, "zeros without memory"])
def test_outputs_without_their_elements_are_refused(kind):
    q, k, v = heads()
    with pytest.raises(ValueError, match="'out': the memory of the tensor does not contain its elements"):
        tegula.attention(q, k, v, out=KINDS[kind](torch.empty_like(q)))


def test_tensors_without_elements_along_a_dimension():
    q, k, v = heads()
    for queries, keys in ((0, 21), (21, 0), (0, 0)):
        inputs = [x[:, :n].clone().requires_grad_() for x, n in ((q, queries), (k, keys), (v, keys))]
        out, lse = tegula.torch.attention(*inputs)
        assert out.shape == (1, queries, 4, 16) and not out.any() and bool((lse == -torch.inf).all())
        gradients = torch.autograd.grad(out.sum(), inputs)
        assert all(x.shape == y.shape and not x.any() for x, y in zip(gradients, inputs))
    for m, inner, n in ((0, 5, 6), (4, 0, 6), (4, 5, 0)):
        inputs = [torch.ones(shape, requires_grad=True) for shape in ((m, inner), (inner, n))]
        product = tegula.torch.gemm(*inputs)
        assert product.shape == (m, n) and float(product.detach().sum()) == m * inner * n
        assert [x.shape for x in torch.autograd.grad(product.sum(), inputs)] == [x.shape for x in inputs]


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
@pytest.mark.parametrize("name", ["complex", "conjugate", "strided nested", "jagged nested"])
def test_what_is_no_plain_number_is_refused(name):
    if "jagged" in name and not hasattr(torch, "jagged"):
        pytest.skip("this PyTorch has none")
    rows = [numbers(5, 2, 16), numbers(3, 2, 16)]
    text = "nested tensors are not supported; pass packed sequences"
    given = {
        "complex": lambda: torch.complex(*[numbers(1, 8, 2, 16)] * 2),
        "conjugate": lambda: torch.complex(*[numbers(1, 8, 2, 16)] * 2).conj(),
        "strided nested": lambda: torch.nested.nested_tensor(rows),
        "jagged nested": lambda: torch.nested.nested_tensor(rows, layout=torch.jagged),
    }[name]()
    for function in (tegula.attention, tegula.torch.attention):
        with pytest.raises((TypeError, ValueError), match=text if "nested" in name else "'q': .*(complex|conjugate)"):
            function(given, given, given)


@pytest.mark.parametrize("shape, dtype", [((1, 21, 2), torch.float32), ((3,), torch.float32), (None, torch.int32)])
def test_factors_of_another_shape_are_refused(shape, dtype):
    factors = torch.ones(OF_TOKENS.shape if shape is None else shape, dtype=dtype)
    with pytest.raises(ValueError, match="argument 'sel_scale': expected "):
        tegula.torch.nsa_selected_attention(*heads(), OF_TOKENS, sel_scale=factors, block_size=4)
