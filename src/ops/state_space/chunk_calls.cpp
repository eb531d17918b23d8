#include "ops/state_space/chunk_calls.hpp"

#include "ops/state_space/chunks.hpp"
#include "ops/state_space/steps.hpp"

namespace tegula::ops {

namespace {

template <class Op>
ScanKernel chunk_kernel(const Bound<Op>& c) {
  ScanKernel scan;
  scan.type = scan.result = c.type("x");
  scan.d = c.small_dim("n"), scan.d_v = c.small_dim("p");
  scan.gated = true, scan.packed = c.has("cu_seqlens");
  return wide(scan, c.on_gpu());
}

void launch_chunk_scan(const Bound<SsdChunkScan>& c, Launch& launch, const Steps& steps, bool gate,
                       const TensorRef& out) {
  ScanKernel scan = chunk_kernel(c);
  scan.weighted = true, scan.skip = c.has("D"), scan.gate = gate;
  launch(scan, chunk_scan_kernel,
         {{"q", token_view(c.call(), "C")},
          {"k", token_view(c.call(), "B")},
          {"v", token_view(c.call(), "x")},
          {"sums", steps.sums},
          {"weights", steps.weights},
          {"starts", token_view(c.call(), "starts")},
          {"z", token_view(c.call(), "z")},
          {"out", out}});
}

// Values times their steps, and what the gradients of those and of sums of gates give.
template <class Op>
struct StepsBackward {
  const Bound<Op>& c;
  Launch& launch;
  StepProductsKernel products;
  const Steps steps = form_steps(c.call(), launch, c->dt_softplus, products.gate);
  const Shape columns = shape_of_heads(c.call(), {c.dim("p")});
  const Tensor v = launch.scratch(columns, c.type("x")), dv = launch.scratch(columns, c.type("x")),
               skips = launch.scratch(products.gate ? shape_of_heads(c.call()) : Shape{0}, f32),
               dsums = launch.scratch(shape_of_heads(c.call()), f32);

  void differentiate(const TensorRef& dy) {
    differentiate_steps(c.call(), launch, products, {steps.steps, dv, dy, skips, dsums});
  }
};

template <class Op>
StepProductsKernel step_products(const Bound<Op>& c) {
  StepProductsKernel products{c.type("x"), c.type("dt"), c.small_dim("p")};
  products.bias = c.has("dt_bias"), products.softplus = c->dt_softplus;
  return products;
}

using PassingCall = Bound<SsdStatePassing>;

StatePassingKernel plan_of_passing(const PassingCall& c) {
  return {c.small_dim("p"), c.small_dim("n"), c.has("initial_state"), c.has("cu_chunks")};
}

TensorRef chunk_view(const PassingCall& c, const char* tensor) {
  return c.has(tensor) ? with_batch(c.formed(tensor), c.has("cu_chunks")) : TensorRef();
}

void launch_passing(const PassingCall& c, Launch& launch, const TensorRef& starts, const TensorRef& last) {
  launch(plan_of_passing(c), state_passing_kernel,
         {{"states", chunk_view(c, "states")},
          {"decays", chunk_view(c, "decays")},
          {"starts", starts},
          {"final_state", last}});
}

}  // namespace

void run_chunk_states(const Bound<SsdChunkState>& c, Launch& launch) {
  const Steps steps = form_weights(c.call(), launch, c->dt_softplus);
  ScanKernel scan = chunk_kernel(c);
  scan.weighted = true;
  launch(scan, chunk_states_kernel,
         {{"k", token_view(c.call(), "B")},
          {"v", token_view(c.call(), "x")},
          {"sums", steps.sums},
          {"weights", steps.weights},
          {"states", token_view(c.call(), "states")},
          {"decays", token_view(c.call(), "decays")}});
}

void run_chunk_scan(const Bound<SsdChunkScan>& c, Launch& launch) {
  launch_chunk_scan(c, launch, form_weights(c.call(), launch, c->dt_softplus), c.has("z"),
                    token_view(c.call(), "out"));
}

void run_chunk_states_backward(const Bound<SsdChunkState>& c, Launch& launch) {
  StepsBackward<SsdChunkState> own{c, launch, step_products(c)};
  own.products.states = true;
  launch(own.products, step_values_kernel,
         {{"x", token_view(c.call(), "x")}, {"steps", own.steps.steps}, {"v", own.v}});
  launch(chunk_kernel(c), chunk_state_gradients_kernel,
         {{"k", token_view(c.call(), "B")},
          {"v", own.v},
          {"sums", own.steps.sums},
          {"dstates", token_view(c.call(), "dstates")},
          {"ddecays", token_view(c.call(), "ddecays")},
          {"dk", token_view(c.call(), "dB")},
          {"dv", own.dv},
          {"dsums", own.dsums}});
  own.differentiate({});
}

void run_chunk_scan_backward(const Bound<SsdChunkScan>& c, Launch& launch) {
  const bool gate = c.has("z");
  StepProductsKernel products = step_products(c);
  products.skip = c.has("D"), products.gate = gate;
  StepsBackward<SsdChunkScan> own{c, launch, products};
  const Shape of_gate = gate ? own.columns : Shape{0};
  const Tensor y = launch.scratch(of_gate, c.type("x")), own_dy = launch.scratch(of_gate, c.type("x"));
  const TensorRef dout = token_view(c.call(), "dout"), dy = gate ? own_dy.ref() : dout;
  if (gate) launch_chunk_scan(c, launch, own.steps, false, y);
  launch(own.products, step_values_kernel,
         {{"x", token_view(c.call(), "x")},
          {"steps", own.steps.steps},
          {"z", token_view(c.call(), "z")},
          {"dout", dout},
          {"y", y},
          {"v", own.v},
          {"dy", own_dy},
          {"dz", token_view(c.call(), "dz")},
          {"skips", own.skips}});
  launch(chunk_kernel(c), chunk_scan_gradients_kernel,
         {{"q", token_view(c.call(), "C")},
          {"k", token_view(c.call(), "B")},
          {"v", own.v},
          {"dy", dy},
          {"sums", own.steps.sums},
          {"starts", token_view(c.call(), "starts")},
          {"dq", token_view(c.call(), "dC")},
          {"dk", token_view(c.call(), "dB")},
          {"dv", own.dv},
          {"dsums", own.dsums},
          {"dstarts", token_view(c.call(), "dstarts")}});
  own.differentiate(dy);
}

void run_passing(const PassingCall& c, Launch& launch) {
  launch_passing(c, launch, chunk_view(c, "starts"), c.formed("final_state"));
}

void run_passing_backward(const PassingCall& c, Launch& launch) {
  const StatePassingKernel kernel = plan_of_passing(c);
  const TensorRef dstarts = chunk_view(c, "dstarts"), dlast = c.formed("dfinal_state");
  const Tensor starts = launch.scratch(dstarts.shape, f32), last = launch.scratch(dlast.shape, f32),
               of_blocks = launch.scratch(
                   {dstarts.shape[0], dstarts.shape[1], dstarts.shape[2], kernel.blocks()}, f32);
  launch_passing(c, launch, starts, last);
  launch(kernel, state_passing_gradients_kernel,
         {{"starts", starts},
          {"decays", chunk_view(c, "decays")},
          {"dstarts", dstarts},
          {"dfinal_state", dlast},
          {"dstates", chunk_view(c, "dstates")},
          {"parts", of_blocks}});
  launch(kernel, decay_sums_kernel, {{"parts", of_blocks}, {"ddecays", chunk_view(c, "ddecays")}});
}

}  // namespace tegula::ops
