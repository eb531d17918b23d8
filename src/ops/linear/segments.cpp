#include "ops/linear/segments.hpp"

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr const GpuScan& scan_costs = gpu_table.scan;

double pass_time(const BoundCall& call, const ScanKernel& c, std::int64_t parts, const ScanPass& cost) {
  const auto heads = static_cast<double>(sequences_of(call) * call.dim("heads") * parts);
  const double blocks = heads * std::ceil(1. * c.d_v / cost.block),
               chunks = std::ceil(call.dim("tokens") / 64. / parts);
  return chunks * cost.step * std::ceil(blocks / (cost.blocks_of_processor * planned_gpu_processors(call)));
}

// Whether to choose the columns for which tensor cores take the least time; f32 programs have less space.
bool has_choice(const BoundCall& call, const ScanKernel& c) {
  return call.on_gpu() && c.type.bits() == 16 && c.features() <= 128 && c.d_v >= 128;
}

}  // namespace

std::int64_t segments_of(const BoundCall& call, const ScanKernel& chain) {
  constexpr std::int64_t most = 64;
  if (call.has("cu_seqlens")) return 1;
  const std::int64_t tokens = call.dim("tokens");
  Candidates<std::int64_t, 7> candidates{1};
  for (std::int64_t parts = 2; parts <= most; parts *= 2)
    if (tokens > 0 && tokens % (parts * chain.rows()) == 0) candidates.add(parts);
  ScanKernel both = chain;
  both.d_v += both.d;
  return best_of(candidates, [&](std::int64_t parts) {
    // A CPU has few processors, and the same number of steps on each.
    if (!has_choice(call, chain)) return static_cast<double>(parts);
    if (parts == 1) {
      const ScanPass whole{chain.block, 1, scan_costs.deep_step};
      return pass_time(call, chain, 1, whole);
    }
    double own = never;
    for (const ScanPass& cost : scan_costs.passes) own = std::min(own, pass_time(call, both, parts, cost));
    return own + pass_time(call, chain, parts, scan_costs.passes[0]) +
           static_cast<double>(parts) * scan_costs.segment_step + scan_costs.grids;
  });
}

ScanKernel of_segments(const BoundCall& call, const ScanKernel& c, std::int64_t parts) {
  ScanKernel result = wide(c);
  if (!has_choice(call, c)) return result;
  result.block =
      best_of(scan_costs.passes, [&](const ScanPass& cost) { return pass_time(call, c, parts, cost); }).block;
  return result;
}

std::optional<TensorRef> divided(const TensorRef& tensor, std::int64_t segments) {
  TensorRef result = tensor;
  if (tensor.rank() == 0) return result;
  if (tensor.shape[0] != 1 && tensor.strides[0] != tensor.shape[1] * tensor.strides[1]) return std::nullopt;
  result.shape[0] *= segments, result.shape[1] /= segments;
  result.strides[0] = result.shape[1] * result.strides[1];
  return result;
}

using namespace lang;
using lang::Tensor;

Kernel segment_states_kernel(const ScanKernel& c) {
  return kernel(instance_name("segment_states", c), [&] {
    Dim batch("batch"), segments("segments"), heads("heads");
    Tensor ends = input("ends", {batch, segments, heads, c.d, c.d_v + c.d}, f32);
    Tensor start = c.first ? input("initial_state", {batch, heads, c.d, c.d_v}, f32) : ends;
    Tensor starts = output("starts", {batch, segments, heads, c.d, c.d_v}, f32);
    Tensor end = c.last ? output("final_state", {batch, heads, c.d, c.d_v}, f32) : starts;
    // States pass from segment to segment in f32, and so they are multiplied.
    const lang::Precision precision = c.type.bits() == 16 ? lang::Precision::tf32x3 : lang::Precision::ieee;
    grid(ceildiv(c.d_v, c.block), heads, batch, [&](Index x, Index h, Index b) {
      Expr column = x * c.block;
      Fragment state({c.features(), c.block}, f32, 0);
      if (c.first) copy(start.slice(b, h).at(0, column), state);
      pipelined(segments, {.stages = 1}, [&](Index segment) {
        Shared transition({c.features(), c.features()}, f32), before({c.features(), c.block}, f32);
        Shared added({c.features(), c.block}, f32);
        copy(ends.slice(b, segment, h).at(0, c.d_v), transition);
        copy(ends.slice(b, segment, h).at(0, column), added);
        copy(state, starts.slice(b, segment, h).at(0, column));
        copy(state, before);
        parallel(state, [&](Index i, Index j) { state(i, j) = added(i, j); });
        gemm(transition, before, state, {.precision = precision});
      });
      if (c.last) copy(state, end.slice(b, h).at(0, column));
    });
  });
}

}  // namespace tegula::ops
