#include "ops/gated_delta/formed_rule.hpp"

#include "ops/gated_delta/factors.hpp"
#include "ops/linear/chunk_notes.hpp"
#include "ops/linear/chunk_owners.hpp"
#include "ops/linear/unit_rows.hpp"
#include "ops/pieces/plan.hpp"
#include "ops/schema/beside.hpp"

namespace tegula::ops {

FormedRule::FormedRule(const RuleCall& call, Launch& launches)
    : c(call),
      launch(launches),
      q(token_view(c.call(), "q")),
      k(token_view(c.call(), "k")),
      v(token_view(c.call(), "v")),
      beta(token_view(c.call(), "beta")),
      g(token_view(c.call(), "g")) {
  pass.type = c.type("q");
  pass.d = c.small_dim("d"), pass.d_v = c.small_dim("d_v");
  pass.packed = c.has("cu_seqlens");
  pass.block = wide(scan_of(pass), c.on_gpu()).block;
}

Shape FormedRule::shape(const char* heads, Shape remainder) const {
  Shape result{pass.packed ? 1 : c.dim("batch"), c.dim("tokens"), c.dim(heads)};
  result.insert(result.end(), remainder.begin(), remainder.end());
  return result;
}

void FormedRule::normalize() {
  if (!c->qk_l2norm) return;
  for (TensorRef* x : {&q, &k}) {
    owners.push_back(make("key_heads", {pass.d}, pass.type));
    launch(UnitRowsKernel{pass.type, pass.d}, unit_rows_kernel, {{"x", *x}, {"y", owners.back()}});
    *x = owners.back();
  }
}

void FormedRule::make_factors() {
  constexpr int rows = chunk_tokens_of_scan;
  vectors = launch.scratch(chunk_shape(c.call(), {c.dim("heads"), DeltaVector::count, rows}), f32);
  inverse = make_rows(rows), scores = make_rows(rows);
  share_chunk_owners(c.call(), launch);
}

void FormedRule::form_factors(const Stretch& stretch) {
  const DeltaKernel kernel{pass.type, c.type("beta"), pass.d, c.has("g"), pass.packed};
  launch(kernel, delta_factors_kernel,
         {{"q", stretch.of(q)},
          {"k", stretch.of(k)},
          {"beta", stretch.of(beta)},
          {"g", stretch.of(g)},
          {"scale", c.real("scale")},
          {"inverse", stretch.of(inverse)},
          {"scores", stretch.of(scores)},
          {"vectors", stretch.of(vectors)}});
}

void FormedRule::run_with_results() {
  const TensorRef out = token_view(c.call(), "out"),
                  final_state = c->output_final_state ? turned("final_state") : TensorRef();
  pass.outputs = true, pass.first = c.has("initial_state"), pass.last = c->output_final_state;
  const std::int64_t number = segments_of(c.call(), pass),
                     count = number > 1 ? 1 : stretches_of(c.call(), pass);
  note_passes(c.call(), pass, number, launch);
  note_unfilled_chunks(c.call(), pass.first || pass.last ? 0 : chunk_tokens_of_scan / 2, launch);
  make_factors();
  if (count > 1) return run_by_stretches(count, out, final_state);
  form_factors();
  if (number == 1) return launch_pass(pass, {}, out, turned("initial_state"), final_state);
  const SegmentsOfCall own = make_segments(number, out);
  form_maps(own);
  form_starts(own, final_state);
  run_segments(own, out);
}

bool FormedRule::divides(std::int64_t segments, const TensorRef& other) const {
  const auto lies_divided = [](const TensorRef& tensor) { return divided(tensor, 1).has_value(); };
  return !pass.packed && c.dim("tokens") % (segments * chunk_tokens_of_scan) == 0 && lies_divided(q) &&
         lies_divided(k) && lies_divided(v) && lies_divided(other);
}

DeltaPass FormedRule::of_few(DeltaPass own, std::int64_t segments) const {
  const std::int64_t heads = sequences_of(c.call()) * c.dim("heads") * segments,
                     blocks = heads * ((own.columns() + own.block - 1) / own.block);
  own.deep = own.keep && c.on_gpu() && blocks <= planned_gpu_processors(c.call());
  return own;
}

namespace {

// Over whole sequences or parts of them, by views of their tensors.
template <class View>
void launch_over(const FormedRule& rule, const DeltaPass& pass, const View& view, const TensorRef& out,
                 const TensorRef& start, const TensorRef& end) {
  rule.launch(pass, delta_pass_kernel,
              {{"q", view(rule.q)},
               {"k", view(rule.k)},
               {"v", view(rule.v)},
               {"vectors", view(rule.vectors)},
               {"inverse", view(rule.inverse)},
               {"scores", view(rule.scores)},
               {"initial_state", start},
               {"out", view(out)},
               {"states", view(rule.states)},
               {"written", view(rule.written)},
               {"final_state", end}});
}

}  // namespace

void FormedRule::launch_pass(const DeltaPass& own, const Stretch& stretch, const TensorRef& out,
                             const TensorRef& start, const TensorRef& end) {
  const auto view = [&](const TensorRef& tensor) { return stretch.of(tensor); };
  launch_over(*this, of_few(own, 1), view, out, start, end);
}

void FormedRule::run_by_stretches(std::int64_t count, const TensorRef& out, const TensorRef& final_state) {
  // A stretch begins with one and leaves the other to the next.
  const Tensor between[] = {make_between(), make_between()};
  Beside passes(launch);
  for (std::int64_t i = 0; i < count; ++i) {
    const Stretch stretch{i, count};
    const bool is_last = i == count - 1;
    form_factors(stretch);
    DeltaPass own = pass;
    own.first = i > 0 || pass.first, own.last = !is_last || pass.last;
    passes.run([&] {
      launch_pass(own, stretch, out, i > 0 ? between[(i - 1) % 2].ref() : turned("initial_state"),
                  is_last ? final_state : between[i % 2].ref());
    });
  }
}

SegmentsOfCall FormedRule::make_segments(std::int64_t number, const TensorRef& other) const {
  const Shape maps{sequences_of(c.call()), number, c.dim("heads"), pass.d, pass.d};
  const Tensor map = launch.scratch(maps, pass.splits_maps() ? bf16 : f32);
  return {number,
          !divides(number, other),
          make_states_of_segments(number),
          make_states_of_segments(number),
          map,
          pass.splits_maps() ? launch.scratch(maps, bf16) : map};
}

void FormedRule::form_maps(const SegmentsOfCall& segments) {
  DeltaPass segment{pass.type, pass.d, pass.d_v, pass.block};
  segment.packed = pass.packed, segment.divided = segments.found;
  segment.segment = segment.last = true;
  launch(segment, delta_pass_kernel,
         {{"k", segments.own(k)},
          {"v", segments.own(v)},
          {"vectors", segments.own(vectors)},
          {"inverse", segments.own(inverse)},
          {"final_state", segments.state(segments.ends)},
          {"map", segments.state(segments.map)},
          {"map_rest", segments.state(segments.remainder)}});
}

void FormedRule::form_starts(const SegmentsOfCall& segments, const TensorRef& final_state) {
  DeltaPass all = pass;
  all.block = rows_of_segments;
  launch(all, segment_states_kernel,
         {{"ends", segments.ends},
          {"starts", segments.starts},
          {"map", segments.map},
          {"map_rest", segments.remainder},
          {"initial_state", turned("initial_state")},
          {"final_state", final_state}});
}

void FormedRule::run_segments(const SegmentsOfCall& segments, const TensorRef& out) {
  DeltaPass own = pass;
  own.first = true, own.last = false, own.divided = segments.found;
  const auto view = [&](const TensorRef& tensor) { return segments.own(tensor); };
  launch_over(*this, of_few(own, segments.number), view, out, segments.state(segments.starts), {});
}

}  // namespace tegula::ops
