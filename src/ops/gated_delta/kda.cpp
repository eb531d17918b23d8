#include "tegula/ops/kda.hpp"

#include "ops/gated_delta/delta_table.hpp"
#include "ops/gated_delta/kda_kernel.hpp"
#include "ops/linear/recurrent.hpp"
#include "ops/linear/unit_rows.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using Call = Bound<Kda>;

// q and k as programs take them, and what every instance of a call has.
struct Prepared {
  const Call& c;
  Launch& launch;
  TensorRef q, k;
  std::vector<Tensor> owners = {};
  KdaKernel kernel = {};

  Prepared(const Call& call, Launch& launches)
      : c(call), launch(launches), q(token_view(c.call(), "q")), k(token_view(c.call(), "k")) {
    kernel.type = kernel.result = c.type("q"), kernel.beta = c.type("beta");
    kernel.d = c.small_dim("d"), kernel.d_v = c.small_dim("d_v");
    kernel.packed = c.has("cu_seqlens");
    kernel.block = narrow(columns(), sequences_of(c.call()) * c.dim("heads")).block;
    if (!c->qk_l2norm) return;
    for (TensorRef* x : {&q, &k}) {
      owners.push_back(make("key_heads", {kernel.d}, kernel.type));
      launch(UnitRowsKernel{kernel.type, kernel.d}, unit_rows_kernel, {{"x", *x}, {"y", owners.back()}});
      *x = owners.back();
    }
  }
  ScanKernel columns() const { return {.type = kernel.type, .d = kernel.d, .d_v = kernel.d_v}; }
  Tensor make(const char* heads, Shape rest, DType type) const {
    Shape shape{c.has("cu_seqlens") ? 1 : c.dim("batch"), c.dim("tokens"), c.dim(heads)};
    shape.insert(shape.end(), rest.begin(), rest.end());
    return launch.scratch(shape, type);
  }
  // Of every chunk.
  Tensor make_states() const {
    return launch.scratch(chunk_shape(c.call(), {c.dim("heads"), kernel.d, kernel.d_v}, kernel.rows),
                          kernel.type);
  }
  TensorRef view(const char* tensor) const { return token_view(c.call(), tensor); }
};

void run_tokens(const Call& c, Launch& launch) {
  const DType type = c.type("q");
  RecurrentKernel kernel{.type = type, .result = type, .d = c.small_dim("d"), .d_v = c.small_dim("d_v")};
  kernel.g = f32, kernel.beta = c.type("beta"), kernel.unit = c->qk_l2norm, kernel.by_feature = true;
  kernel.first = c.has("initial_state"), kernel.last = c->output_final_state;
  kernel.packed = c.has("cu_seqlens");
  launch(kernel, recurrent_kernel,
         {{"q", token_view(c.call(), "q")},
          {"k", token_view(c.call(), "k")},
          {"v", token_view(c.call(), "v")},
          {"g", token_view(c.call(), "g")},
          {"beta", token_view(c.call(), "beta")},
          {"scale", c.real("scale")},
          {"out", token_view(c.call(), "out")}});
}

void run(const Call& c, Launch& launch) {
  if (c.dim("longest") <= most_recurrent_tokens) return run_tokens(c, launch);
  Prepared own(c, launch);
  KdaKernel kernel = own.kernel;
  kernel.first = c.has("initial_state"), kernel.last = c->output_final_state;
  launch(kernel, kda_kernel,
         {{"q", own.q},
          {"k", own.k},
          {"v", own.view("v")},
          {"g", own.view("g")},
          {"beta", own.view("beta")},
          {"scale", c.real("scale")},
          {"out", own.view("out")}});
}

void run_backward(const Call& c, Launch& launch) {
  Prepared own(c, launch);
  const Tensor states = own.make_states(), dstates = own.make_states(),
               written = own.make("heads", {own.kernel.d_v}, own.kernel.type),
               dright = own.make("heads", {own.kernel.d_v}, own.kernel.type);
  const TensorRef v = own.view("v"), g = own.view("g"), beta = own.view("beta"), dout = own.view("dout");
  const double scale = c.real("scale");
  KdaKernel forwards = own.kernel, backwards = own.kernel, chunks = own.kernel;
  forwards.keep = true, forwards.first = backwards.first = c.has("initial_state");
  launch(forwards, kda_kernel,
         {{"q", own.q},
          {"k", own.k},
          {"v", v},
          {"g", g},
          {"beta", beta},
          {"states", states},
          {"written", written}});
  backwards.last = c.has("dfinal_state");
  launch(backwards, kda_state_gradients_kernel,
         {{"q", own.q},
          {"k", own.k},
          {"g", g},
          {"beta", beta},
          {"dout", dout},
          {"scale", scale},
          {"dstates", dstates},
          {"dright", dright},
          {"dv", own.view("dv")}});
  const bool unit = c->qk_l2norm;
  const Tensor unit_dq = unit ? own.make("key_heads", {chunks.d}, f32) : launch.scratch({0}, f32),
               unit_dk = launch.scratch(unit_dq.shape(), f32);
  chunks.block = wide(own.columns()).block, chunks.grouped = c.dim("group") > 1;
  chunks.result = unit ? f32 : chunks.type;
  launch(chunks, kda_gradients_kernel,
         {{"q", own.q},
          {"k", own.k},
          {"v", v},
          {"g", g},
          {"beta", beta},
          {"dout", dout},
          {"states", states},
          {"written", written},
          {"dstates", dstates},
          {"dright", dright},
          {"scale", scale},
          {"dq", unit ? unit_dq.ref() : own.view("dq")},
          {"dk", unit ? unit_dk.ref() : own.view("dk")},
          {"dg", own.view("dg")},
          {"dbeta", own.view("dbeta")}});
  if (!unit) return;
  const UnitRowsKernel rows{chunks.type, chunks.d};
  launch(rows, unit_rows_gradient_kernel, {{"x", own.view("q")}, {"dy", unit_dq}, {"dx", own.view("dq")}});
  launch(rows, unit_rows_gradient_kernel, {{"x", own.view("k")}, {"dy", unit_dk}, {"dx", own.view("dk")}});
}

template <class E>
void formula(const Call& c, E& exact) {
  delta_formula(c, exact, true);
}

Tensor gates_of_example(const Shape& shape, DType type, std::uint64_t seed, const DimsOfExample&) {
  return Tensor::random_uniform(shape, type, seed, -0.4, 0);
}

}  // namespace

const OperatorSchema& kda_schema() {
  using Op = Kda;
  static const OperatorSchema table =
      Schema<Op>("kda", "the gated delta rule with a decay for each feature")
          .with(add_delta_inputs<Op>)
          .in(&Op::g, "g", token_list("key_heads*group d"), is(f32), "logarithms of decays, -5 to 0")
          .values(gates_of_example)
          .in(&Op::beta, "beta", token_list("key_heads*group"), floats, "how much is replaced, 0 to 1")
          .values(shares_of_example)
          .with(add_delta_rest<Op>)
          .require("q", "1 <= d & d <= 256", "1 to 256 features", "split the heads")
          .source("Kimi Team 2025, Kimi Linear: An Expressive, Efficient Attention Architecture")
          .gradient("kda_backward")
          .flops("6*batch*tokens*key_heads*group*d*d_v")
          .examples({{"ragged",
                      "batch=2 tokens=20 key_heads=1 group=2 d=10 d_v=9 initial_state "
                      "output_final_state"},
                     {"l2norm_bf16",
                      "batch=1 tokens=70 key_heads=1 group=1 d=32 d_v=20 bf16 beta:bf16 "
                      "qk_l2norm initial_state output_final_state"},
                     {"packed_f16",
                      "tokens=60 sequences=3 cu_seqlens key_heads=1 group=2 d=16 d_v=16 f16 "
                      "initial_state output_final_state"},
                     {"one_token",
                      "batch=2 tokens=1 key_heads=1 group=2 d=20 d_v=40 qk_l2norm "
                      "initial_state output_final_state"}})
          .measured({{"64x128_1x8k_bf16", "batch=1 tokens=8192 key_heads=64 group=1 d=128 d_v=128 bf16"},
                     {"one_token_128_bf16",
                      "batch=128 tokens=1 key_heads=32 group=1 d=128 d_v=128 bf16 "
                      "qk_l2norm initial_state output_final_state"}})
          .run(run, formula<Exact>);
  return table;
}

const OperatorSchema& kda_backward_schema() {
  return gradient_table<run_backward, formula<Traced>>(kda_schema(), "22*batch*tokens*key_heads*group*d*d_v",
                                                       "q");
}

KdaGradients kda_backward(const TensorRef& dout, const TensorRef& q, const TensorRef& k, const TensorRef& v,
                          const TensorRef& g, const TensorRef& beta, Kda options,
                          const TensorRef& dfinal_state) {
  Gradient<Kda> op{options};
  op.given[1] = dfinal_state;
  return results_of<KdaGradients>(kda_backward_schema(), op, {dout, q, k, v, g, beta});
}

}  // namespace tegula::ops
