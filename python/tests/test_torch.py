"""The operators on tensors of PyTorch: kinds of results, and gradients against float64."""

import numpy as np
import pytest
import tegula

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import tegula.torch  # noqa: E402
from torch_references import (  # noqa: E402
    as_mask,
    causal_mask,
    check_gradients,
    choice,
    heads,
    nsa_mask,
    plain_attention,
    plain_selected,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_functions(dtype):
    q, k, v = heads(dtype=dtype)
    out, lse = tegula.attention(q, k, v, causal=True)
    assert type(out) is torch.Tensor and out.dtype == dtype and lse.dtype == torch.float32
    expected_out, expected_lse = plain_attention(q.double(), k.double(), v.double(), causal_mask(21, 21))
    tolerance = 2e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(out.double(), expected_out, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(lse.double(), expected_lse, atol=tolerance, rtol=tolerance)
    product = tegula.gemm(q[0, :, 0], k[0, :, 0], transpose_b=True, out_dtype=torch.float32)
    assert product.dtype == torch.float32
    torch.testing.assert_close(product, q[0, :, 0].float() @ k[0, :, 0].float().T, atol=1e-4, rtol=1e-4)
    scores = tegula.block_scores(q, k, q_block_size=8, k_block_size=8)
    chosen = tegula.topk_blocks(scores, 2)
    assert type(scores) is torch.Tensor and chosen.dtype == torch.int32 and chosen.shape == (1, 2, 3, 2)


def test_lost_gradients_are_refused():
    q, k, v = heads()
    with pytest.raises(TypeError, match="tegula.torch"):
        tegula.attention(q.requires_grad_(), k, v)


def test_gradients_of_attention():
    sinks = torch.tensor([0.1, -1.0, 2.0, 0.5])
    check_gradients(
        lambda q, k, v, s: tegula.torch.attention(q, k, v, causal=True, left=9, softcap=5.0, sinks=s),
        lambda q, k, v, s: plain_attention(q, k, v, causal_mask(21, 21, left=9), 5.0, s),
        [*heads(), sinks],
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sinks_of_16_bits(dtype):
    """They are read as they are: results are those of the same numbers in float32."""
    q, k, v = heads()
    given = torch.tensor([0.1, -1.0, 2.0, 0.5]).to(dtype)
    ours, same = given.clone().requires_grad_(), given.float().requires_grad_()
    results = [tegula.torch.attention(q, k, v, causal=True, sinks=sinks) for sinks in (ours, same)]
    for one, other in zip(*results):
        torch.testing.assert_close(one, other)
    for out, lse in results:
        (out.sum() + lse.sum()).backward()
    torch.testing.assert_close(ours.grad, same.grad.to(dtype))


def test_gradients_of_block_sparse_attention():
    indices = choice(3, 3, 2)
    indices[0, 0, 1] = -1  # a row that sees nothing
    mask = as_mask(indices, 21, 21, 8, 8) & causal_mask(21, 21)
    check_gradients(
        lambda q, k, v: tegula.torch.block_sparse_attn(q, k, v, 8, 8, indices, causal=True),
        lambda q, k, v: plain_attention(q, k, v, mask),
        heads(),
    )


def test_arrays_without_a_batch():
    """The form of MagiAttention: packed tokens, a list for every head of keys, lse by tokens."""
    indices = choice(3, 3, 2)
    mask = as_mask(indices, 21, 21, 8, 8)

    def plain(q, k, v):
        out, lse = plain_attention(q[None], k[None], v[None], mask)
        return out[0], lse[0].transpose(0, 1)

    check_gradients(
        lambda q, k, v: tegula.torch.block_sparse_attn(
            q=q, k=k, v=v, q_block_size=8, k_block_size=8, topk_indices=indices[0].int()
        ),
        plain,
        [x[0] for x in heads()],
    )


@pytest.mark.parametrize("per_kv_head", [True, False])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_gradients_of_block_scores(layout, per_kv_head):
    def means(x, size):
        return torch.stack([rows.mean(2) for rows in x.split(size, 2)], 2)

    def plain(q, k):
        q, k = (x.transpose(1, 2) if layout == "bshd" else x for x in (q, k))
        group = q.shape[1] // k.shape[1]
        rows, columns = means(q, 8), means(k, 4)
        if per_kv_head:
            rows = rows.unflatten(1, (-1, group)).mean(2)
        else:
            columns = columns.repeat_interleave(group, 1)
        scores = rows @ columns.transpose(2, 3) * q.shape[-1] ** -0.5
        last = torch.tensor([7, 15, 20]) + k.shape[2] - q.shape[2]
        return (scores.masked_fill(torch.arange(scores.shape[3]) * 4 > last[:, None], -torch.inf),)

    inputs = [x if layout == "bshd" else x.transpose(1, 2).contiguous() for x in heads(keys=25)[:2]]
    check_gradients(
        lambda q, k: (tegula.torch.block_scores(q, k, q_block_size=8, k_block_size=4, layout=layout, causal=True, per_kv_head=per_kv_head),),
        plain,
        inputs,
    )


def test_gradients_of_selected_attention():
    indices = choice(21, 6, 3)
    mask = nsa_mask(indices, 21, 4)

    def function(q, k, v):
        return tegula.torch.nsa_selected_attention(
            q, k, v, indices.transpose(1, 2), block_size=4, diagonal=True, window=5
        )

    def plain(q, k, v):
        return plain_attention(q, k, v, mask) + plain_attention(q, k, v, causal_mask(21, 21, left=4))

    check_gradients(function, plain, heads())


def test_repeated_blocks_count_as_often_as_they_are_named():
    indices = choice(21, 6, 3)
    indices[..., 1] = indices[..., 0]
    named = (indices[..., None] == torch.arange(21) // 4).sum(3)
    times = (named * causal_mask(21, 21)).double().repeat_interleave(2, 1)

    def plain(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        scores = q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 + times.clamp(min=1).log()
        scores = scores.masked_fill(times == 0, -torch.inf)
        lse = torch.logsumexp(scores, -1)
        weights = torch.exp(scores - lse[..., None].masked_fill(lse[..., None] == -torch.inf, 0))
        return (weights @ v).transpose(1, 2), lse

    check_gradients(
        lambda q, k, v: tegula.torch.nsa_selected_attention(
            q, k, v, indices.transpose(1, 2), block_size=4, repeats=True
        )[:2],
        plain,
        heads(),
    )


def test_gradient_of_the_selector():
    """A factor of 1 for every entry: no result depends on it, its gradient is that of the scores it multiplies."""
    indices = choice(21, 6, 3)
    mask = nsa_mask(indices, 21, 4)
    key_block = torch.arange(21) // 4

    def plain(q, k, v, factors):
        named = (indices[..., None] == key_block).double()  # [batch, heads, tokens, entries, keys]
        of_keys = (named * factors[..., None]).sum(3) + (1 - named.sum(3))
        return plain_attention(q, k, v, mask, factors=of_keys.repeat_interleave(2, 1))

    def function(q, k, v, factors):
        return tegula.torch.nsa_selected_attention(
            q, k, v, indices.transpose(1, 2), sel_scale=factors.transpose(1, 2), block_size=4, diagonal=True
        )[:2]

    check_gradients(function, plain, [*heads(), torch.ones(indices.shape)])


def test_gradients_of_packed_block_sparse_attention():
    bounds = torch.tensor([0, 8, 21], dtype=torch.int32)
    indices = choice(4, 4, 2)[0].expand(2, 2, 4, 2).clone()  # 4 rows, of which the first sequence has 2
    second = torch.arange(21) >= 8
    place = torch.where(second, torch.arange(21) - 8, torch.arange(21))
    rows = indices[second.long()].permute(0, 2, 1, 3)[torch.arange(21), place // 4].transpose(0, 1)
    named = (rows[..., None] == (place // 4)).any(2) & (second[:, None] == second[None, :])
    mask = (named & causal_mask(21, 21)).repeat_interleave(2, 0)[None]

    def function(q, k, v):
        out, lse = tegula.torch.block_sparse_attn(
            q[0], k[0], v[0], 4, 4, indices, causal=True, cu_seqlens_q=bounds, cu_seqlens_k=bounds, max_seqlen_q=13
        )
        return out[None], lse[None]

    check_gradients(function, lambda q, k, v: plain_attention(q, k, v, mask), heads())


def test_gradients_of_packed_sequences():
    bounds = torch.tensor([0, 8, 21], dtype=torch.int32)
    indices = choice(21, 6, 3)
    second = torch.arange(21) >= 8
    first, place = torch.where(second, 8, 0), torch.where(second, torch.arange(21) - 8, torch.arange(21))
    # Blocks are numbered from the beginning of each sequence.
    named = (indices[..., None] == (place // 4)) & (first[:, None] == first[None, :])[None, None, :, None, :]
    mask = (named.any(3) & causal_mask(21, 21)).repeat_interleave(2, 1)

    def function(q, k, v):
        out, lse = tegula.torch.nsa_selected_attention(
            q[0], k[0], v[0], indices[0].transpose(0, 1), block_size=4, cu_seqlens_q=bounds, cu_seqlens_k=bounds
        )[:2]
        return out[None], lse[None]

    check_gradients(function, lambda q, k, v: plain_attention(q, k, v, mask), heads())


def selections():
    """Of 21 tokens: any of 6 blocks, the last of which has one key, and few, which are named several times."""
    generator = torch.Generator().manual_seed(4)
    few = torch.randint(0, 2, (1, 2, 21, 3), generator=generator)
    return {
        "any": choice(21, 6, 3),
        "repeated": few,
        "of every head": few.repeat(1, 2, 1, 1).flip(1),
        "none": few[..., :0],
    }


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", selections())
def test_native_sparse_attend(name, own):
    """With the semantics of its model: what is named twice counts twice, and is seen whole."""
    indices = selections()[name]
    counts = torch.rand(indices.shape, generator=torch.Generator().manual_seed(4)) < 0.7
    inputs = [*(x.transpose(1, 2) for x in heads()), torch.ones(indices.shape)]

    def function(q, k, v, sel_scale):
        (out, window_out), (lse, window_lse) = tegula.torch.native_sparse_attend(
            q, k, v, 4, indices, counts, sel_scale, own, return_lse=True, return_sliding_window_out=True
        )
        return out, lse, window_out, window_lse

    def plain(q, k, v, sel_scale):
        out, lse = plain_selected(q, k, v, 4, indices, counts, sel_scale, own)
        window_out, window_lse = plain_attention(
            *(x.transpose(1, 2) for x in (q, k, v)), causal_mask(21, 21, left=4)
        )
        return out, lse, window_out.transpose(1, 2), window_lse

    check_gradients(function, plain, inputs)
    with torch.no_grad():
        out = tegula.torch.native_sparse_attend(*inputs[:3], 4, indices, counts, include_block_causal=own)
    torch.testing.assert_close(out, function(*inputs)[0], atol=1e-5, rtol=1e-5)


def test_native_sparse_attend_of_distinct_earlier_blocks():
    """In one pass, if the selection promises to be as the model's."""
    indices = torch.arange(21)[:, None] // 4 - torch.arange(1, 4)
    indices = indices.expand(1, 2, 21, 3)

    def function(q, k, v):
        return tegula.torch.native_sparse_attend(
            q, k, v, 4, indices, indices >= 0, return_lse=True, distinct_earlier_blocks=True
        )

    def plain(q, k, v):
        return plain_selected(q, k, v, 4, indices.clamp(min=0), indices >= 0)

    check_gradients(function, plain, [x.transpose(1, 2) for x in heads()])


def test_gradients_of_gradients_are_refused():
    q, k, v = (x.requires_grad_() for x in heads())
    out, _ = tegula.torch.attention(q, k, v)
    (dq,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="attention_backward has no gradient"):
        dq.sum().backward()


class _WithoutGradient(torch.autograd.Function):
    """Passes its argument on, and no gradient back."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return None


@pytest.mark.parametrize("name", ["softmax", "rms_norm", "silu_and_mul", "attention"])
def test_results_without_gradient(name):
    x = (heads()[0] if name == "attention" else torch.randn(3, 32)).requires_grad_()
    results = tegula.torch.attention(x, x, x) if name == "attention" else getattr(tegula.torch, name)(x)
    for result in results if isinstance(results, tuple) else (results,):
        _WithoutGradient.apply(result).sum().backward(retain_graph=True)
    assert x.grad is None or not x.grad.any()


def test_autocast():
    q, k, v = (x.requires_grad_() for x in heads())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, _ = tegula.torch.attention(q, k, v, causal=True)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32 and bool(np.isfinite(q.grad.numpy()).all())


def test_what_cannot_be_read_is_refused():
    """In one line, without the traces that PyTorch adds to some of its own."""
    q, k, v = heads()
    for x in (q.to(torch.complex64), torch.zeros(2, 2).to_sparse()):
        with pytest.raises((TypeError, ValueError), match="'q': ") as error:
            tegula.attention(x, k, v)
        assert "\n" not in str(error.value)
    indices = torch.zeros(1, 2, 21, 3, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"fmask: expected bool \[1, 2, 21, 3\]"):
        tegula.torch.native_sparse_attend(*(x.transpose(1, 2) for x in (q, k, v)), 4, indices, indices[..., :2] > 0)
    with pytest.raises(ValueError, match=r"sel_scale: expected \[1, 2, 21, 3\]"):
        tegula.torch.native_sparse_attend(
            *(x.transpose(1, 2) for x in (q, k, v)), 4, indices, indices > 0, torch.ones(1, 2, 21, 1)
        )


def test_arrays_of_other_libraries_are_refused():
    q, k, v = heads()
    with pytest.raises(TypeError, match="tegula.torch.attention: expected tensors of PyTorch, given ndarray"):
        tegula.torch.attention(q.numpy(), k, v)
    with pytest.raises(TypeError, match="expected tensors of PyTorch"):
        tegula.torch.block_sparse_attn(q, k.numpy(), v, 8, 8)
    with pytest.raises(ValueError, match="layout"):
        tegula.torch.block_sparse_attn(q[0], k[0], v[0], 8, 8, torch.zeros(2, 3, 1, dtype=torch.int32), layout="bhsd")


def test_results_are_ordinary_tensors():
    """As PyTorch makes its own: contiguous, of the mode that is on, with a storage that can be resized."""
    q, k, v = (x.transpose(1, 2) for x in heads())
    parameter = torch.nn.Parameter(q)
    for call in (tegula.attention, tegula.torch.attention):
        for x in (q, parameter.detach()):
            for result in call(x, k, v, layout="bhsd"):
                assert type(result) is torch.Tensor and result.is_contiguous() and not result.requires_grad
                assert result.is_leaf and result.storage_offset() == 0
                result.resize_(2 * result.numel())
    out, _ = tegula.torch.attention(parameter, k, v, layout="bhsd")
    assert type(out) is torch.Tensor and out.grad_fn is not None
    if hasattr(torch, "inference_mode"):
        with torch.inference_mode():
            assert all(x.is_inference() for x in tegula.torch.attention(q, k, v, layout="bhsd"))
