// Attention over selected blocks whose kernel sums all branches.
#include <cmath>

#include "ops/nsa/table.hpp"
#include "ops/reference/reference.hpp"
#include "tegula/ops/nsa_combine.hpp"
#include "tegula/ops/nsa_gated_attention.hpp"

namespace tegula::ops {

namespace {

// The rows of a tensor such as out, in the form of the program.
TensorRef rows_of(const Bound<NsaGated>& c, const TensorRef& tensor) {
  const TensorRef rows = tensor.rank() == 4 ? as_bshd(tensor, c->layout) : tensor;
  return split_heads(rows, rows.rank() - 2, c.dim("group"));
}

// Where few tokens share a block and a pass over keys finishes rows of the result, the sum is a kernel of its
// own.
void run_apart(const Bound<NsaGated>& c, Launch& launch) {
  if (!launch.runs()) return;
  NsaSelectedOptions options = *c;
  options.out = options.lse = options.window_out = options.window_lse = {};
  const NsaSelectedResult fine = nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], options);
  NsaCombine sum{.out = c["out"], .target = c->target};
  if (c->window > 0) sum.window = fine.window_out;
  nsa_combine(c["compressed"], fine.out, c["gates"], sum);
}

void run(const Bound<NsaGated>& c, Launch& launch) {
  NsaCall call = nsa_call(c.call(), *c, c.on_gpu());
  if (call.kernel.divides()) return run_apart(c, launch);
  call.kernel.branches = c->window > 0 ? 3 : 2;
  call.kernel.gates = c.type("gates");
  TensorRef window;
  Tensor near;
  if (c->window > 0) {
    near = launch.scratch(c["out"].shape, c["out"].dtype);
    window = rows_of(c, near.ref());
    AttentionOptions options = window_options(*c);
    options.out = near;
    if (launch.runs()) attention(c["q"], c["k"], c["v"], options);
  }
  launch(call.kernel, nsa_kernel,
         {{"choice", call.choice},
          {"counts", call.counts},
          {"window", window},
          {"scale", call.scale},
          {"q_begin", call.q_begin},
          {"k_begin", call.k_begin},
          {"longest", call.longest}});
}

// The element with its last coordinate replaced.
double at_last(const TensorRef& tensor, Shape at, std::int64_t last) {
  at.back() = last;
  return tensor.get(at);
}

void formula(const Bound<NsaGated>& c, Exact& exact) {
  const NsaSelectedResult fine =
      reference::nsa_selected_attention(c["q"], c["k"], c["v"], c["block_indices"], *c, exact.steps());
  tegula::Tensor result = tegula::Tensor::zeros(fine.out.shape(), fine.out.dtype());
  const TensorRef gates = c["gates"], branches[] = {c["compressed"], fine.out, fine.window_out};
  const Shape& shape = result.shape();
  for (std::int64_t i = 0; i < result.nelements(); ++i) {
    Shape at(shape.size());
    std::int64_t rest = i;
    for (std::size_t n = shape.size(); n-- > 0; rest /= shape[n]) at[n] = rest % shape[n];
    double sum = 0;
    for (int branch = 0; branch < c.dim("branches"); ++branch)
      sum += branches[branch].get(at) / (1 + std::exp(-at_last(gates, at, branch)));
    result.set(at, sum);
  }
  exact.set("out", result);
}

double gated_operations(const Bound<NsaGated>& c) {
  return 2 * selected_pairs(c.call(), *c) * static_cast<double>(c.dim("d") + c.dim("d_v"));
}

}  // namespace

const OperatorSchema& nsa_gated_attention_schema() {
  using Op = NsaGated;
  static const OperatorSchema table =
      Schema<Op>("nsa_gated_attention",
                 "attention over selected blocks, and a window, summed with the compressed branch by gates")
          .with(add_heads<Op>)
          .with(add_block_indices<Op>)
          .in(&Op::compressed, "compressed", out_dims, same_as("q"), "attention over compressed entries")
          .ordered()
          .in(&Op::gates, "gates", token_dims("queries", query_heads, "branches"), floats,
              "logits: a branch counts by the sigmoid of its gate")
          .ordered()
          .with(add_selection<Op>)
          .require("gates", "branches == (window > 0 ? 3 : 2)",
                   "a gate for each branch, in the order compressed, selected, window",
                   "give two gates, or three with a window")
          .out(&Op::out, "out", out_dims, same_as("q"), "the sum of sigmoid(gate) * branch")
          .unit_stride()
          .ordered()
          .no_gradient(
              "gradients need the result of each branch: call nsa_selected_attention and nsa_combine")
          .source("Yuan et al. 2025, Native Sparse Attention: the gated sum of its branches")
          .flops(fmt::format("2*{}*(d + d_v)", most_pairs_of_selection))
          .counted(gated_operations)
          .examples({{"small",
                      "batch=1 queries=7 keys=7 kv_heads=1 group=2 d=8 d_v=4 selecting=1 entries=3 "
                      "block_size=2 branches=2"},
                     {"window_bhsd_bf16",
                      "batch=2 queries=70 keys=70 kv_heads=2 group=16 d=64 d_v=64 bf16 gates:f32 selecting=2 "
                      "entries=4 block_size=16 window=20 branches=3 layout=bhsd"},
                     {"packed_f16",
                      "sequences=3 queries=90 keys=90 kv_heads=2 group=3 d=16 d_v=24 f16 "
                      "selecting=6 entries=3 block_size=8 window=9 branches=3 cu_seqlens_q cu_seqlens_k"}})
          .measured({{"65536_bf16",
                      "batch=1 queries=65536 keys=65536 kv_heads=4 group=16 d=128 d_v=128 bf16 selecting=4 "
                      "entries=16 window=512 branches=3"}})
          .run(run, formula);
  return table;
}

}  // namespace tegula::ops
