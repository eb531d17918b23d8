#include "ops/gated_delta/formed_rule.hpp"
#include "ops/gated_delta/short_rule.hpp"
#include "ops/linear/chunk_notes.hpp"
#include "ops/linear/unit_rows.hpp"
#include "ops/schema/beside.hpp"

namespace tegula::ops {

namespace {

// The gradients of a call, grid by grid.
class RuleBackward {
 public:
  RuleBackward(const RuleCall& call, Launch& launcher) : c(call), launch(launcher) {}
  void run() {
    f.normalize();
    if (const auto rows = tile_of_short_rule(c.call(), "dfinal_state"))
      differentiate_short(*rows);
    else
      differentiate_long();
    if (unit) differentiate_norms();
  }

 private:
  void differentiate_short(int rows) {
    ShortRuleKernel kernel{scan_of(f.pass), c.type("beta")};
    kernel.scan.gated = c.has("g"), kernel.scan.grouped = c.dim("group") > 1;
    kernel.scan.of_tile = rows, kernel.scan.result = unit ? f32 : f.pass.type;
    kernel.threads = threads_of_short_rule(sequences_of(c.call()) * c.dim("key_heads"));
    note_tile_of_short(c.call(), rows, launch);
    launch(kernel, short_rule_gradients_kernel,
           {{"q", f.q},
            {"k", f.k},
            {"v", f.v},
            {"dout", dout},
            {"beta", f.beta},
            {"g", f.g},
            {"scale", scale},
            {"dq", unit ? unit_dq.ref() : dq},
            {"dk", unit ? unit_dk.ref() : dk},
            {"dv", token_view(c.call(), "dv")},
            {"dbeta", token_view(c.call(), "dbeta")},
            {"dg", token_view(c.call(), "dg")}});
  }

  void differentiate_long() {
    f.make_factors(), f.make_kept();
    dstates = f.make_states(), solved = f.make_rows(f.pass.d_v);
    f.pass.keep = true, f.pass.first = c.has("initial_state");
    const std::int64_t number = segments_of(c.call(), f.pass);
    note_passes(c.call(), f.pass, number, launch);
    note_unfilled_chunks(c.call(), 0, launch);
    if (number > 1)
      run_by_segments(number);
    else
      run_whole();
  }

  void run_whole() {
    f.form_factors();
    Beside states(launch);
    states.run([&] { f.launch_pass(f.pass, {}, {}, f.turned("initial_state"), {}); });
    differentiate_pass(f.turned("dfinal_state"), f.turned("dinitial_state"));
    states.join();
    differentiate_chunks();
  }

  // Gradients of segments are joined as states are, by the same maps.
  void run_by_segments(std::int64_t number) {
    f.form_factors();
    const SegmentsOfCall segments = f.make_segments(number, dout);
    const Tensor dstarts = f.make_states_of_segments(number), dends = f.make_states_of_segments(number);
    Beside gradients(launch);
    gradients.run([&] { differentiate_alone(segments, dstarts); });
    f.form_maps(segments);
    gradients.run([&] {
      join_gradients(segments, dstarts, dends);
      differentiate_segments(segments, dends);
    });
    f.form_starts(segments, {});
    f.run_segments(segments, {});
    gradients.join();
    differentiate_chunks();
  }

  void launch_gradients(const DeltaPass& own, const std::function<TensorRef(const TensorRef&)>& part,
                        const TensorRef& dend, const TensorRef& dstart) {
    launch(own, delta_pass_gradients_kernel,
           {{"q", part(f.q)},
            {"k", part(f.k)},
            {"dout", part(dout)},
            {"inverse", part(f.inverse)},
            {"scores", part(f.scores)},
            {"vectors", part(f.vectors)},
            {"dfinal_state", dend},
            {"solved", part(solved)},
            {"dstates", part(dstates)},
            {"dinitial_state", dstart}});
  }
  void differentiate_pass(const TensorRef& dend, const TensorRef& dstart) {
    DeltaPass own = f.pass;
    own.first = dstart.rank() > 0, own.last = dend.rank() > 0;
    launch_gradients(
        own, [&](const TensorRef& tensor) { return tensor; }, dend, dstart);
  }
  // Of segments that nothing follows.
  void differentiate_alone(const SegmentsOfCall& segments, const Tensor& dstarts) {
    DeltaPass own = f.pass;
    own.keep = own.last = false, own.first = true, own.divided = segments.found;
    launch_gradients(
        own, [&](const TensorRef& tensor) { return segments.own(tensor); }, {}, segments.state(dstarts));
  }
  void differentiate_segments(const SegmentsOfCall& segments, const Tensor& dends) {
    DeltaPass own = f.pass;
    own.first = false, own.last = true, own.divided = segments.found;
    launch_gradients(own, [&](const TensorRef& tensor) { return segments.own(tensor); },
                     segments.state(dends), {});
  }
  void join_gradients(const SegmentsOfCall& segments, const Tensor& dstarts, const Tensor& dends) {
    DeltaPass all = f.pass;
    all.block = rows_of_segments, all.last = c.has("dfinal_state");
    launch(all, segment_gradients_kernel,
           {{"dstarts", dstarts},
            {"dends", dends},
            {"map", segments.map},
            {"map_rest", segments.remainder},
            {"dfinal_state", f.turned("dfinal_state")},
            {"dinitial_state", f.turned("dinitial_state")}});
  }

  void differentiate_chunks() {
    DeltaChunkGradients kernel{f.pass.type, c.type("beta"), unit ? f32 : f.pass.type, f.pass.d, f.pass.d_v};
    kernel.block = f.pass.block, kernel.gated = c.has("g"), kernel.grouped = c.dim("group") > 1;
    kernel.packed = f.pass.packed;
    launch(kernel, delta_chunk_gradients_kernel,
           {{"q", f.q},
            {"k", f.k},
            {"v", f.v},
            {"dout", dout},
            {"written", f.written},
            {"solved", solved},
            {"states", f.states},
            {"dstates", dstates},
            {"vectors", f.vectors},
            {"scale", scale},
            {"dq", unit ? unit_dq.ref() : dq},
            {"dk", unit ? unit_dk.ref() : dk},
            {"dv", token_view(c.call(), "dv")},
            {"dbeta", token_view(c.call(), "dbeta")},
            {"dg", token_view(c.call(), "dg")}});
  }

  void differentiate_norms() {
    const UnitRowsKernel rows{f.pass.type, f.pass.d};
    launch(rows, unit_rows_gradient_kernel, {{"x", token_view(c.call(), "q")}, {"dy", unit_dq}, {"dx", dq}});
    launch(rows, unit_rows_gradient_kernel, {{"x", token_view(c.call(), "k")}, {"dy", unit_dk}, {"dx", dk}});
  }

  const RuleCall& c;
  Launch& launch;
  FormedRule f{c, launch};
  const double scale = c.real("scale");
  const bool unit = c->qk_l2norm;
  const TensorRef dout = token_view(c.call(), "dout"), dq = token_view(c.call(), "dq"),
                  dk = token_view(c.call(), "dk");
  Tensor dstates = {}, solved = {};
  const Tensor unit_dq = launch.scratch(unit ? f.shape("key_heads", {f.pass.d}) : Shape{0}, f32),
               unit_dk = launch.scratch(unit_dq.shape(), f32);
};

}  // namespace

void differentiate_rule(const RuleCall& c, Launch& launch) { RuleBackward(c, launch).run(); }

}  // namespace tegula::ops
