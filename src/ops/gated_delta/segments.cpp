#include "ops/gated_delta/segments.hpp"

#include "ops/linear/scan_pieces.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr const GpuScan& scan_costs = gpu_table.scan;
// Microseconds that a processor takes for the factors of a chunk of a head.
constexpr double factors_time = 4.4;

double pass_time(const BoundCall& call, const DeltaPass& c, std::int64_t parts, double step) {
  const auto heads = static_cast<double>(sequences_of(call) * call.dim("heads") * parts);
  const double blocks = heads * std::ceil(1. * c.columns() / c.block),
               chunks = std::ceil(1. * call.dim("tokens") / chunk_tokens_of_scan / parts);
  return chunks * step * std::ceil(blocks / planned_gpu_processors(call));
}

}  // namespace

std::int64_t segments_of(const BoundCall& call, const DeltaPass& pass) {
  constexpr std::int64_t most = 64;
  if (call.has("cu_seqlens")) return 1;
  const std::int64_t tokens = call.dim("tokens");
  Candidates<std::int64_t, 7> candidates{1};
  for (std::int64_t parts = 2; parts <= most; parts *= 2)
    if (tokens > 0 && tokens % (parts * chunk_tokens_of_scan) == 0) candidates.add(parts);
  DeltaPass both = pass;
  both.segment = true;
  const double own_step = pass.outputs ? scan_costs.step_with_outputs : scan_costs.step_alone;
  return best_of(candidates, [&](std::int64_t parts) {
    // A CPU has few processors, and the same number of steps on each.
    if (!call.on_gpu()) return static_cast<double>(parts);
    const double own = pass_time(call, pass, parts, own_step);
    if (parts == 1) return own;
    return own + pass_time(call, both, parts, scan_costs.step_alone) +
           static_cast<double>(parts) * scan_costs.segment_step + scan_costs.grids;
  });
}

std::int64_t stretches_of(const BoundCall& call, const DeltaPass& pass) {
  constexpr std::int64_t most = 8;
  if (call.has("cu_seqlens")) return 1;
  const std::int64_t tokens = call.dim("tokens"), processors = planned_gpu_processors(call);
  const std::int64_t heads = sequences_of(call) * call.dim("heads"),
                     blocks = heads * ((pass.columns() + pass.block - 1) / pass.block);
  if (blocks >= processors) return 1;
  Candidates<std::int64_t, 4> candidates{1};
  for (std::int64_t parts = 2; parts <= most; parts *= 2)
    if (tokens > 0 && tokens % (parts * chunk_tokens_of_scan) == 0) candidates.add(parts);
  return best_of(candidates, [&](std::int64_t count) {
    const auto n = static_cast<double>(count);
    if (!call.on_gpu()) return n;
    const double chunks = std::ceil(1. * tokens / chunk_tokens_of_scan / n),
                 all = chunks * static_cast<double>(heads) * factors_time,
                 own = chunks * scan_costs.step_with_outputs;
    const double alone = all / static_cast<double>(processors),
                 beside = all / static_cast<double>(processors - blocks);
    return alone + (n - 1) * std::max(own, beside) + own + n * scan_costs.grids;
  });
}

std::optional<TensorRef> divided(const TensorRef& tensor, std::int64_t segments) {
  TensorRef result = tensor;
  if (tensor.rank() < 2) return result;
  if (tensor.shape[0] != 1 && tensor.strides[0] != tensor.shape[1] * tensor.strides[1]) return std::nullopt;
  result.shape[0] *= segments, result.shape[1] /= segments;
  result.strides[0] = result.shape[1] * result.strides[1];
  return result;
}

using namespace lang;
using lang::Tensor;

Kernel segment_states_kernel(const DeltaPass& c) {
  return kernel(instance_name("segment_states", c), [&] {
    Dim batch("batch"), segments("segments"), heads("heads");
    const int features = scan_of(c).features();
    Tensor ends = input("ends", {batch, segments, heads, c.d_v + c.d, c.d}, f32);
    Tensor start = c.first ? input("initial_state", {batch, heads, c.d_v, c.d}, f32) : ends;
    Tensor starts = output("starts", {batch, segments, heads, c.d_v, c.d}, f32);
    Tensor end = c.last ? output("final_state", {batch, heads, c.d_v, c.d}, f32) : starts;
    // The pass inside segments rounds states to 16 bits before each product: tf32 has more.
    const lang::Precision precision = c.type.bits() == 16 ? lang::Precision::tf32 : lang::Precision::ieee;
    grid(ceildiv(c.d_v, c.block), heads, batch, [&](Index x, Index h, Index b) {
      Expr row = x * c.block;
      Fragment state({c.block, features}, f32, 0);
      if (c.first) copy(start.slice(b, h).at(row), state);
      // What becomes of the last segment's state matters only where it is wanted.
      const Expr passed = c.last ? Expr(segments) : segments - 1;
      pipelined(passed, {.stages = 1}, [&](Index segment) {
        Shared transition({features, features}, f32), before({c.block, features}, f32);
        Shared added({c.block, features}, f32);
        copy(ends.slice(b, segment, h).at(c.d_v), transition);
        copy(ends.slice(b, segment, h).at(row), added);
        copy(state, starts.slice(b, segment, h).at(row));
        copy(state, before);
        parallel(state, [&](Index i, Index j) { state(i, j) = added(i, j); });
        gemm(before, transition, state, {.precision = precision});
      });
      if (c.last)
        copy(state, end.slice(b, h).at(row));
      else
        copy(state, starts.slice(b, segments - 1, h).at(row));
    });
  });
}

}  // namespace tegula::ops
