"""The operators of tables in PyTorch: fake tensors, gradients, transforms and tracers, for every example."""

import contextlib
import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import tegula
from tables import calls, example, is_written, on_the_interpreter  # noqa: F401
from tegula import _tegula
from tegula._arrays import as_kind_of
from tegula._printing import torch_options
from tegula._tables import Dims, evaluate, names_of, tables

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
needs_operators = pytest.mark.skipif(
    not hasattr(torch.library, "custom_op"), reason="PyTorch before 2.4 has no such operators"
)
import tegula.torch  # noqa: E402
from tegula.torch import _composed, _folding, _functions  # noqa: E402

CALLS = {name: (table, text) for table, name, text in calls()}
every_call = pytest.mark.parametrize("name", CALLS)
DIFFERENTIABLE = {
    name: (table, text)
    for name, (table, text) in CALLS.items()
    if table.name in _functions.functions
    and _functions.operator_of(table).has_backward
    and not {"e4m3", "e5m2"} & set(text.split())
    and (not table.option("keep_branches") or "keep_branches" in text.split())  # what the gradient needs
}


# The first example of every function.
FUNCTIONS = {table.name: (table, table.examples[0][1]) for table in tables.values() if table.name in _functions.functions}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def torch_example(table, text):
    return example(table, text, as_torch)


def options_of(table, call):
    """Those of the operator, which has also what its gradient has besides."""
    return [*call.options, *(o.default for o in torch_options(table, tables)[len(call.options) :])]


def as_torch(array):
    return as_kind_of(torch.empty(0), array).clone()


def wide(text):
    """The example with tensors of float32, whose gradients have small errors."""
    return " ".join(word.partition(":")[0] for word in text.split() if word not in ("f16", "bf16", "f32"))


def computable(x):
    """PyTorch does not compute in 8 bits."""
    return x.float() if x.is_floating_point() and x.itemsize == 1 else x


def where_written(table, tensors, options):
    """Of every result, which elements the operator writes: what a formula leaves open holds anything."""
    exact = _tegula.formula(table.number, *tensors, *options)
    return [torch.from_numpy(is_written(np.from_dlpack(exact[x.name]))) for x in table.outputs if x.name in exact]


def several(result):
    return tuple(x for x in (result if isinstance(result, tuple) else (result,)) if x is not None)


def of_library(table):
    return getattr(torch.ops.tegula, table.name).default


@needs_operators
@every_call
def test_operators_are_well_formed(name):
    """Schemas, fake tensors and their dynamic shapes, and gradients, as torch.compile needs them."""
    table, text = CALLS[name]
    call = torch_example(table, text)
    if name in DIFFERENTIABLE:
        for x in call.tensors:
            if x is not None and x.is_floating_point():
                x.requires_grad_()
    in_8_bits = any(x is not None and x.itemsize == 1 and x.is_floating_point() for x in call.tensors)
    # The other checks compute with their arguments, which PyTorch does not do in 8 bits, or compare all elements.
    plain = [x if x is None else x.detach() for x in call.tensors]
    is_whole = all(x.all() for x in where_written(table, plain, call.options))
    checks = {"test_utils": ["test_faketensor"]} if in_8_bits or not is_whole else {}
    torch.library.opcheck(of_library(table), (*call.tensors, *options_of(table, call)), **checks)


@every_call
def test_tensors_without_elements_have_the_shapes_of_real_ones(name):
    table, text = CALLS[name]
    if not hasattr(torch.library, "custom_op"):
        pytest.skip("PyTorch before 2.4 has no such operators")
    call = torch_example(table, text)
    options = options_of(table, call)
    real = _functions.operator_of(table)(tuple(call.tensors), *options)
    fake = _functions.operator_of(table)(
        tuple(None if x is None else x.to("meta") for x in call.tensors), *options
    )
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (real, fake))):
        if one is None:
            assert other is None or other.numel() == 0
        else:
            assert other.is_meta and one.shape == other.shape and one.dtype == other.dtype


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_finite_differences(name):
    table, text = DIFFERENTIABLE[name]
    call = torch_example(table, wide(text))
    function = _functions.functions[table.name]
    leaves = {
        x.name: tensor.requires_grad_()
        for x, tensor in zip(table.inputs, call.tensors)
        if tensor is not None and tensor.is_floating_point()
    }
    generator = torch.Generator().manual_seed(3)
    results = [x for x in several(function(**call.keywords)) if x.is_floating_point()]
    weights = [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in results]

    def loss(**changed):
        exact = table_formula(table, {**call.keywords, **changed}, call.options)
        return sum(float((x * w)[x.isfinite()].sum()) for x, w in zip(exact, weights))

    torch.autograd.backward(results, [w.to(x.dtype) for x, w in zip(results, weights)])
    gradient = tables.get(table.gradient)
    for key, leaf in leaves.items():
        if gradient and gradient.option(f"{key}_gradient"):
            continue  # results do not depend on it: its gradient is that of a factor
        along = torch.randn(leaf.shape, generator=generator, dtype=torch.float64)
        step = 1e-4
        there, back = (leaf.detach().double() + sign * step * along for sign in (1, -1))
        slope = (loss(**{key: there}) - loss(**{key: back})) / (2 * step)
        got = float((leaf.grad.double() * along).sum())
        assert abs(got - slope) <= 1e-3 * (1 + float((leaf.grad.double() * along).abs().sum())), key


def table_formula(table, given, options):
    tensors = [given.get(x.name) for x in table.inputs]
    wide_tensors = [x if x is None or not x.is_floating_point() else x.detach().float() for x in tensors]
    exact = _tegula.formula(table.number, *wide_tensors, *options)
    results = [as_torch(exact[x.name]) for x in table.outputs if x.name in exact]
    return [x for x in results if x.is_floating_point()]


def entries_like(x):
    """Three tensors of values in the same range, as decays need it; integers, which may mean places in others, stay as they are."""
    if not x.is_floating_point():
        return [x, x, x]
    return [x, (0.5 * computable(x)).to(x.dtype), computable(x).flip(tuple(range(x.dim()))).to(x.dtype)]


@pytest.mark.parametrize("name", [x for x in {**DIFFERENTIABLE, **FUNCTIONS} if not tables[x.split()[0]].written])
def test_vmap_is_a_call_for_every_entry(name):
    table, text = {**DIFFERENTIABLE, **FUNCTIONS}[name]
    call = torch_example(table, wide(text))
    given = [(x.name, tensor) for x, tensor in zip(table.inputs, call.tensors) if tensor is not None]
    options = {o.name: value for o, value in zip(table.options, call.options)}
    function = _functions.functions[table.name]

    def by_order(*tensors):
        return several(function(**dict(zip((key for key, _ in given), tensors)), **options))

    for mapped in ([True] * len(given), *([i == j for i in range(len(given))] for j in range(len(given)))):
        stacked = [torch.stack(entries_like(x), dim=x.dim()) if on else x for (_, x), on in zip(given, mapped)]
        dims = tuple(x.dim() - 1 if on else None for x, on in zip(stacked, mapped))
        got = torch.vmap(by_order, in_dims=dims)(*stacked)
        each = [[x.select(-1, i).contiguous() if on else x for x, on in zip(stacked, mapped)] for i in range(3)]
        named = [dict(zip((key for key, _ in given), tensors)) for tensors in each]
        written = [where_written(table, [x.get(t.name) for t in table.inputs], call.options) for x in named]
        for one, others, masks in zip(got, zip(*(by_order(*tensors) for tensors in each)), zip(*written)):
            both = (computable(x).masked_fill(~torch.stack(masks), 0) for x in (one, torch.stack(others)))
            torch.testing.assert_close(*both, atol=1e-4, rtol=1e-4)


@needs_operators
@pytest.mark.parametrize("table", [t for t in tables.values() if t.name in _functions.functions], ids=lambda t: t.name)
def test_compile_with_dynamic_shapes(table):
    """One graph for extents of every size above 1, which PyTorch takes for a constant, as it takes dims that are equal
    by chance for one, unless it is told not to."""
    function = _functions.functions[table.name]
    torch._dynamo.reset()
    config = torch.fx.experimental._config
    told = config.patch(use_duck_shape=False) if hasattr(config, "use_duck_shape") else contextlib.nullcontext()
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def step(given):
        """Written tensors are copies: the steps begin with the same ones, to which some operators add."""
        keywords = {name: x.clone() if name in table.written else x for name, x in given.items()}
        results = several(function(**keywords))
        return [computable(x) * 1 for x in (*results, *(keywords[name] for name in table.written if name in keywords))]

    compiled = torch.compile(step, backend=count, fullgraph=True, dynamic=True)
    words = wide(table.examples[0][1]).split()
    for factor in (2, 3, 4):
        keywords = torch_example(table, scaled(table, " ".join(words), factor)).keywords
        expected_results = step(keywords)
        with told:
            results = compiled(keywords)
        for got, expected in zip(results, expected_results):
            torch.testing.assert_close(got, expected)
    assert len(graphs) == 1


def scaled(table, text, factor):
    """The example with larger extents, as the rules of the table allow: those that follow from others are computed,
    and those that a rule bounds, such as a width of at most 8, stay."""
    words = dict(word.partition("=")[::2] for word in text.split())
    larger = {
        name: ",".join(str(int(extent) * factor) for extent in value.split(","))
        for name, value in words.items()
        if name == "..." or name in table.dims
    }
    for rule in [rule for *_, condition in table.rules for rule in rules_in(condition)]:
        call = torch_example(table, spelled({**words, **larger}))
        shapes = [None if x is None else x.shape for x in call.tensors]
        values = Dims(table, shapes, call.options).values
        if evaluate(rule, values):
            continue
        if rule[0] == "==" and rule[1] in larger:
            larger[rule[1]] = evaluate(rule[2], values)
        else:
            for name in names_of(rule) & set(larger):
                del larger[name]
    return spelled({**words, **larger})


def rules_in(condition):
    """Conditions that must all hold."""
    if condition is not None and condition[0] == "&":
        return [rule for each in condition[1:] for rule in rules_in(each)]
    return [] if condition is None else [condition]


def spelled(words):
    return " ".join(f"{name}={value}" if value != "" else name for name, value in words.items())


@pytest.mark.parametrize("name", _functions.functions)
def test_signatures_are_those_of_the_operators(name):
    parameters = set(inspect.signature(_functions.functions[name]).parameters)
    own = set(inspect.signature(getattr(tegula, name)).parameters)
    assert own - parameters == {x.name for x in tables[name].outputs} | {"target"}
    assert name in tegula.torch.__all__


def test_gradients_that_are_composed_are_documented():
    assert set(_composed.composed) == {table.name for table in tables.values() if table.composed}
    assert "Gradients of a, b, bias, row_scale, column_scale and residual are composed" in tegula.torch.gemm.__doc__
    assert "Gradients of x and weight are those of ``tegula.rms_norm_backward``" in tegula.torch.rms_norm.__doc__


def test_second_derivatives_and_forward_mode_are_refused():
    x = torch.randn(3, 5, requires_grad=True)
    (gradient,) = torch.autograd.grad(tegula.torch.rms_norm(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="rms_norm_backward has no gradient; second derivatives are not computed"):
        gradient.sum().backward()
    with pytest.raises(NotImplementedError, match="forward-mode"):
        torch.func.jvp(tegula.torch.rms_norm, (x.detach(),), (x.detach(),))
    with pytest.raises(TypeError, match="has no gradients"):
        tegula.rms_norm(x)


@pytest.mark.parametrize("name", [x for x in FUNCTIONS if not tables[x].written])
def test_autocast_takes_tensors_in_its_dtype(name):
    """Those that must be given, and what has their dtype: factors and the like keep theirs. Tables that do not have the
    dtype are left alone."""
    table, text = FUNCTIONS[name]
    keywords = torch_example(table, wide(text)).keywords
    cast = {x.name for x in table.inputs if not x.optional and "bfloat16" in x.dtypes}
    cast |= {x.name for x in table.inputs if x.like in cast}
    function = _functions.functions[name]
    expected = function(**{key: x.bfloat16() if key in cast else x for key, x in keywords.items()})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = function(**keywords)
    for one, other in zip(several(got), several(expected)):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@needs_operators
@every_function
def test_operations_are_counted_and_recorded(name):
    """By the table's amount of work, for PyTorch's counter; and under the operator's name, for its profiler."""
    counter = pytest.importorskip("torch.utils.flop_counter", reason="PyTorch before 2.1 counts none")
    table, text = FUNCTIONS[name]
    call = torch_example(table, text)
    with counter.FlopCounterMode(display=False) as counted, torch.profiler.profile() as profile:
        _functions.functions[name](**call.keywords)
    shapes = [None if x is None else x.shape for x in call.tensors]
    expected = evaluate(table.flops, Dims(table, shapes, call.options).values) if table.flops is not None else 0
    assert counted.get_total_flops() == expected
    assert f"tegula::{name}" in {event.key for event in profile.key_averages()}


@needs_operators
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_jit_trace_records_the_operators():
    x = torch.randn(3, 5)
    traced = torch.jit.trace(lambda x: 2 * tegula.torch.rms_norm(x), (x,))
    assert "tegula::rms_norm" in {node.kind() for node in traced.inlined_graph.nodes()}
    torch.testing.assert_close(traced(x + 1), 2 * tegula.rms_norm(x + 1))


def calls_of_vmap(name, tensors, in_dims):
    """How often the rule of torch.vmap calls an operator for three entries, after the results have been compared.
    Inputs after those that are named are not given."""
    table, calls = tables[name], []
    others = (None,) * (len(table.inputs) - len(tensors))
    tensors, in_dims = (*tensors, *others), (*in_dims, *others)
    operator = _functions.operator_of(table)
    options = [option.default for option in table.options]

    def whole(tensors, *options):
        calls.append(1)
        return operator(tensors, *options)

    rule = _folding.make_folding_vmap(SimpleNamespace(tensors=len(table.inputs), whole=whole), table)
    got, _ = rule(SimpleNamespace(batch_size=3), in_dims, *tensors, *options)
    entries = [[x if dim is None else x.select(dim, i) for x, dim in zip(tensors, in_dims)] for i in range(3)]
    torch.testing.assert_close(got, torch.stack([operator(tuple(each), *options) for each in entries]))
    return len(calls)


def test_vmap_makes_one_larger_call():
    """Of rows, of products with and without a batch; not of a weight, which has no batch."""
    x, a, b = torch.randn(3, 4, 6), torch.randn(3, 2, 4, 5), torch.randn(3, 5, 7)
    assert calls_of_vmap("rms_norm", (x, None), (0, None)) == 1
    assert calls_of_vmap("rms_norm", (x, x[0, 0]), (0, None)) == 1
    assert calls_of_vmap("rms_norm", (x, torch.randn(3, 6)), (0, 0)) == 3
    for one in (a, a[:, 0], a[:, :1], a[:, :0]):
        assert calls_of_vmap("gemm", (one, b[0]), (0, None)) == 1
        assert calls_of_vmap("gemm", (one, b), (0, 0)) == 1
        assert calls_of_vmap("gemm", (one[0], b), (None, 0)) == 1
    q = a[:, :, :, None]
    assert calls_of_vmap("block_scores", (q, q[0]), (0, None)) == 1
