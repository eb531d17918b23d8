#include "ops/linear/scan_segments.hpp"

#include <algorithm>

#include "ops/pieces/plan.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

std::optional<TensorRef> divided(const TensorRef& tensor, std::int64_t segments) {
  TensorRef result = tensor;
  if (tensor.rank() < 2) return result;
  if (tensor.shape[0] != 1 && tensor.strides[0] != tensor.shape[1] * tensor.strides[1]) return std::nullopt;
  result.shape[0] *= segments, result.shape[1] /= segments;
  result.strides[0] = result.shape[1] * result.strides[1];
  return result;
}

TensorRef as_sequences(const tegula::Tensor& tensor) {
  tegula::Shape shape = tensor.shape();
  shape[1] *= shape[0], shape.erase(shape.begin());
  return tensor.ref().reshape(shape);
}

namespace {

// The number of segments with the least time.
std::int64_t segments_of_scan(const BoundCall& call, const ScanKernel& scan, const ScanTensors& tensors) {
  // Microseconds: of a chunk with results and of one that only adds to the state, of a segment in the pass
  // over segments, and of two more grids.
  constexpr double with_results = 2.6, alone = 1.4, of_segment = 1.2, grids = 10;
  constexpr std::int64_t most = 64;
  if (call.has("cu_seqlens")) return 1;
  for (const TensorRef* tensor : {&tensors.q, &tensors.k, &tensors.v, &tensors.z, &tensors.out})
    if (!divided(*tensor, 1)) return 1;
  const std::int64_t tokens = call.dim("tokens"), heads = sequences_of(call) * call.dim("heads");
  Candidates<std::int64_t, 7> candidates{1};
  for (std::int64_t count = 2; count <= most; count *= 2)
    if (tokens > 0 && tokens % (count * chunk_tokens_of_scan) == 0) candidates.add(count);
  return best_of(candidates, [&](std::int64_t count) {
    const auto n = static_cast<double>(count);
    if (!call.on_gpu()) return n;
    const ScanKernel own = narrow(scan, heads * count, true);
    const double blocks = static_cast<double>(heads * count * ((own.d_v + own.block - 1) / own.block)),
                 waves = std::ceil(blocks / static_cast<double>(own.blocks_at_once())),
                 chunks = std::ceil(1. * tokens / chunk_tokens_of_scan / n) * waves;
    if (count == 1) return chunks * with_results;
    return chunks * (with_results + alone) + n * of_segment + grids;
  });
}

// Over whole sequences, or over segments of them by views of their tensors.
template <class View>
void launch_part(Launch& launch, const ScanKernel& scan, const ScanTensors& t, const View& view,
                 const TensorRef& start, const TensorRef& end) {
  launch(scan, scan_kernel,
         {{"q", view(t.q)},
          {"k", view(t.k)},
          {"v", view(t.v)},
          {"z", view(t.z)},
          {"sums", view(t.sums)},
          {"weights", view(t.weights)},
          {"scale", t.scale},
          {"out", view(t.out)},
          {"initial_state", start},
          {"final_state", end}});
}

void launch_segments(const BoundCall& call, Launch& launch, const ScanKernel& scan, const ScanTensors& t,
                     std::int64_t count) {
  const std::int64_t batch = sequences_of(call), heads = call.dim("heads");
  const tegula::Tensor ends = launch.scratch({batch, count, heads, scan.d, scan.d_v}, f32),
                       starts = launch.scratch(ends.shape(), f32),
                       fades = launch.scratch(
                           scan.gated ? tegula::Shape{batch, count, heads} : tegula::Shape{0}, f32);
  const auto own = [&](const TensorRef& tensor) { return *divided(tensor, count); };
  ScanKernel each = narrow(scan, batch * heads * count, true), alone = each;
  alone.alone = alone.last = true, alone.first = alone.skip = alone.gate = false;
  launch(alone, scan_states_kernel,
         {{"k", own(t.k)},
          {"v", own(t.v)},
          {"sums", own(t.sums)},
          {"weights", own(t.weights)},
          {"final_state", as_sequences(ends)},
          {"fades", scan.gated ? as_sequences(fades) : TensorRef()}});
  ScanKernel between;
  between.d = scan.d, between.d_v = scan.d_v, between.block = 16;
  between.gated = scan.gated, between.first = scan.first, between.last = scan.last;
  launch(between, scan_segments_kernel,
         {{"ends", ends},
          {"fades", fades},
          {"starts", starts},
          {"initial_state", t.initial_state},
          {"final_state", t.final_state}});
  each.first = true, each.last = false;
  launch_part(launch, each, t, own, as_sequences(starts), {});
}

}  // namespace

void launch_scan(const BoundCall& call, Launch& launch, const ScanKernel& scan, const ScanTensors& t) {
  const std::int64_t count = segments_of_scan(call, scan, t);
  if (count > 1) return launch_segments(call, launch, scan, t, count);
  const auto whole = [](const TensorRef& tensor) { return tensor; };
  launch_part(launch, narrow(scan, sequences_of(call) * call.dim("heads"), call.on_gpu()), t, whole,
              t.initial_state, t.final_state);
}

using namespace lang;
using lang::Tensor;

Kernel scan_segments_kernel(const ScanKernel& c) {
  return kernel(instance_name("scan_segments", c), [&] {
    Dim batch("batch"), segments("segments"), heads("heads");
    const Extents of_segments{batch, segments, heads, c.d, c.d_v}, of_sequences{batch, heads, c.d, c.d_v};
    Tensor ends = input("ends", of_segments, f32);
    Tensor fades = c.gated ? input("fades", {batch, segments, heads}, f32) : ends;
    Tensor start = c.first ? input("initial_state", of_sequences, f32) : ends;
    Tensor starts = output("starts", of_segments, f32);
    Tensor end = c.last ? output("final_state", of_sequences, f32) : starts;
    grid(ceildiv(c.d_v, c.block), heads, batch, [&](Index x, Index h, Index n) {
      Expr column = x * c.block;
      Fragment state({c.features(), c.block}, f32, 0);
      if (c.first) copy(start.slice(n, h).at(0, column), state);
      serial(segments, [&](Index segment) {
        copy(state, starts.slice(n, segment, h).at(0, column));
        Fragment more = load(ends.slice(n, segment, h).at(0, column), {c.features(), c.block});
        Expr fade = c.gated ? Expr(fades(n, segment, h)) : Expr(1.0f);
        parallel(state, [&](Index i, Index j) { state(i, j) = state(i, j) * fade + more(i, j); });
      });
      if (c.last) copy(state, end.slice(n, h).at(0, column));
    });
  });
}

}  // namespace tegula::ops
