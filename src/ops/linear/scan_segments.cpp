#include "ops/linear/scan_segments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ops/linear/scan_short.hpp"
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

// The work of a scan on a GPU, by what blocks do at once.
class ScanTime {
 public:
  ScanTime(const BoundCall& call, const ScanKernel& kernel)
      : scan(kernel),
        heads(sequences_of(call) * call.dim("heads")),
        chunks(std::ceil(static_cast<double>(call.dim("tokens")) / chunk_tokens_of_scan /
                         static_cast<double>(call.has("cu_seqlens") ? sequences_of(call) : 1))) {}

  // Microseconds, in so many segments.
  double of(std::int64_t count) const {
    const ScanKernel own = narrow(scan, heads * count, true);
    const double blocks = blocks_of(own, count), n = static_cast<double>(count),
                 waves = std::ceil(blocks / static_cast<double>(own.blocks_at_once())),
                 steps = std::ceil(chunks / n) * waves, step = of_chunk(own, blocks);
    if (count == 1) return steps * step;
    return steps * step * (1 + alone) + n * of_segment + grids;
  }
  // The same if chunks did not wait for each other.
  double of_products() const {
    const ScanKernel own = wide(scan, true);
    const auto most = static_cast<double>(own.blocks_at_once());
    return chunks * blocks_of(own, 1) / most * of_chunk(own, most);
  }

 private:
  double blocks_of(const ScanKernel& own, std::int64_t count) const {
    return static_cast<double>(heads * count * ((own.d_v + own.block - 1) / own.block));
  }
  // Of a chunk with results: what waits for each other, and what the columns take that a processor has.
  static double of_chunk(const ScanKernel& own, double blocks) {
    constexpr double chain = 0.85, of_many_features = 2.6, of_weights = 2;
    constexpr double column = 0.0085, column_of_two = 0.026;
    return (own.threads() > 0 ? chain : of_many_features) + (own.weighted ? of_weights : 0) +
           own.block * (blocks > gpu_processors && own.threads() > 0 ? column_of_two : column);
  }
  // The share of a chunk that only adds to the state, a segment of the pass over segments, two more grids.
  static constexpr double alone = 0.54, of_segment = 0.35, grids = 8;

  const ScanKernel& scan;
  std::int64_t heads;
  double chunks;  // of a sequence, on the mean
};

// The number of segments with the least time.
std::int64_t segments_of_scan(const BoundCall& call, const ScanKernel& scan) {
  constexpr std::int64_t most = 64;
  const ScanTime time(call, scan);
  const std::int64_t tokens =
      call.dim("tokens") / (call.has("cu_seqlens") ? std::max<std::int64_t>(sequences_of(call), 1) : 1);
  Candidates<std::int64_t, 12> candidates{1};
  for (std::int64_t count = 2; count <= most;
       count = count % 3 == 0 ? count / 3 * 4 : std::max<std::int64_t>(count / 2 * 3, 3))
    if (tokens > (count - 1) * chunk_tokens_of_scan) candidates.add(count);
  return best_of(candidates, [&](std::int64_t count) {
    return call.on_gpu() ? time.of(count) : static_cast<double>(count);
  });
}

void launch_part(Launch& launch, const ScanKernel& scan, const ScanTensors& t, const TensorRef& start,
                 const TensorRef& end) {
  launch(scan, scan.of_tile ? scan_short_kernel : scan_kernel,
         {{"q", t.q},
          {"k", t.k},
          {"v", t.v},
          {"z", t.z},
          {"sums", t.sums},
          {"weights", t.weights},
          {"scale", t.scale},
          {"out", t.out},
          {"initial_state", start},
          {"final_state", end}});
}

// What segments add to states, how much one fades in them, and the states that they begin with.
struct SegmentStates {
  tegula::Tensor ends, starts;

  SegmentStates(const BoundCall& call, Launch& launch, const ScanKernel& scan, std::int64_t count)
      : ends(launch.scratch({sequences_of(call), count, call.dim("heads"), scan.d, scan.d_v}, f32)),
        starts(launch.scratch(ends.shape(), f32)) {}

  void pass(Launch& launch, const ScanKernel& scan, const tegula::Tensor& fades, const TensorRef& before,
            const TensorRef& behind) const {
    ScanKernel between;
    between.d = scan.d, between.d_v = scan.d_v, between.reverse = scan.reverse;
    between.gated = scan.gated, between.first = scan.first, between.last = scan.last;
    launch(between, scan_segments_kernel,
           {{"ends", ends},
            {"fades", fades},
            {"starts", starts},
            {"initial_state", before},
            {"final_state", behind}});
  }
};

// Kernels of segments: of what one adds, and of one that begins with its own state.
struct SegmentKernels {
  ScanKernel alone, each;

  SegmentKernels(const BoundCall& call, const ScanKernel& scan, std::int64_t count)
      : each(narrow(scan, sequences_of(call) * call.dim("heads") * count, true)) {
    each.divided = each.first = true, each.last = false;
    alone = each;
    alone.alone = alone.last = true, alone.first = alone.skip = alone.gate = false;
  }
};

tegula::Tensor fades_of_segments(const BoundCall& call, Launch& launch, const ScanKernel& scan,
                                 std::int64_t count) {
  return launch.scratch(
      scan.gated ? tegula::Shape{sequences_of(call), count, call.dim("heads")} : tegula::Shape{0}, f32);
}

void launch_segments(const BoundCall& call, Launch& launch, const ScanKernel& scan, const ScanTensors& t,
                     std::int64_t count) {
  const SegmentStates own(call, launch, scan, count);
  const tegula::Tensor fades = fades_of_segments(call, launch, scan, count);
  const SegmentKernels kernels(call, scan, count);
  launch(kernels.alone, scan_states_kernel,
         {{"k", t.k},
          {"v", t.v},
          {"sums", t.sums},
          {"weights", t.weights},
          {"final_state", own.ends},
          {"fades", fades}});
  own.pass(launch, scan, fades, t.initial_state, t.final_state);
  launch_part(launch, kernels.each, t, own.starts, {});
}

// Where processors wait for most of the time.
void note_chain(const BoundCall& call, const ScanKernel& scan, std::int64_t count, Launch& launch) {
  constexpr double most = 3;
  const ScanTime time(call, scan);
  if (!call.on_gpu() || time.of(count) < most * time.of_products()) return;
  launch.note([&] {
    return fmt::format(
        "plan: chunks of {} tokens wait for the state of the one before, in {} segment{} of each sequence, "
        "and "
        "{} heads of all sequences are too few to keep the processors busy",
        chunk_tokens_of_scan, count, count == 1 ? "" : "s", sequences_of(call) * call.dim("heads"));
  });
}

// Where rows of a tile are without tokens.
void note_short_sequences(const BoundCall& call, const ScanKernel& scan, Launch& launch) {
  const std::int64_t tokens = call.dim("longest");
  if (tokens >= scan.rows()) return;
  launch.note([&] {
    return fmt::format("plan: sequences of {} tokens have a tile of {} rows each", tokens, scan.rows());
  });
}

}  // namespace

void launch_scan(const BoundCall& call, Launch& launch, const ScanKernel& scan, const ScanTensors& t) {
  if (scan.of_tile) {
    note_short_sequences(call, scan, launch);
    return launch_part(launch, with_all_columns(scan), t, {}, {});
  }
  const std::int64_t count = segments_of_scan(call, scan);
  note_chain(call, scan, count, launch);
  if (count > 1) return launch_segments(call, launch, scan, t, count);
  launch_part(launch, narrow(scan, sequences_of(call) * call.dim("heads"), call.on_gpu()), t, t.initial_state,
              t.final_state);
}

namespace {

void launch_divided_states(const BoundCall& call, Launch& launch, ScanKernel scan, const StateTensors& t,
                           std::int64_t count) {
  const tegula::Tensor fades = fades_of_segments(call, launch, scan, count);
  const SegmentKernels kernels(call, scan, count);
  // There is a gradient of the last state where it is given, and one of the first where that is.
  const bool given = scan.last;
  scan.last = false;
  const SegmentStates own(call, launch, scan, count), back(call, launch, scan, count);
  launch(kernels.alone, scan_states_kernel,
         {{"k", t.k}, {"v", t.v}, {"sums", t.sums}, {"final_state", own.ends}, {"fades", fades}});
  own.pass(launch, scan, fades, t.initial_state, {});
  launch(kernels.each, scan_states_kernel,
         {{"k", t.k}, {"v", t.v}, {"sums", t.sums}, {"initial_state", own.starts}, {"states", t.states}});
  ScanKernel alone = kernels.alone, each = kernels.each;
  alone.first = each.last = true, alone.last = each.first = false;
  const auto gradients = [&](const ScanKernel& kernel, const TensorRef& behind, const TensorRef& before) {
    launch(kernel, scan_state_gradients_kernel,
           {{"q", t.q},
            {"k", t.k},
            {"dout", t.dout},
            {"sums", t.sums},
            {"scale", t.scale},
            {"dfinal_state", behind},
            {"dstates", t.dstates},
            {"dv", t.dv},
            {"dinitial_state", before}});
  };
  gradients(alone, {}, back.ends);
  ScanKernel backwards = scan;
  backwards.reverse = true, backwards.last = scan.first, backwards.first = given;
  back.pass(launch, backwards, fades, t.dfinal_state, t.dinitial_state);
  gradients(each, back.starts, {});
}

}  // namespace

void launch_states(const BoundCall& call, Launch& launch, const ScanKernel& scan, const StateTensors& t) {
  const std::int64_t count = segments_of_scan(call, scan);
  note_chain(call, scan, count, launch);
  if (count > 1) return launch_divided_states(call, launch, scan, t, count);
  const std::int64_t heads = sequences_of(call) * call.dim("heads");
  ScanKernel forwards = scan;
  forwards.last = false;
  launch(
      narrow(forwards, heads, call.on_gpu()), scan_states_kernel,
      {{"k", t.k}, {"v", t.v}, {"sums", t.sums}, {"initial_state", t.initial_state}, {"states", t.states}});
  launch(narrow(scan, heads, call.on_gpu()), scan_state_gradients_kernel,
         {{"q", t.q},
          {"k", t.k},
          {"dout", t.dout},
          {"sums", t.sums},
          {"scale", t.scale},
          {"dfinal_state", t.dfinal_state},
          {"dstates", t.dstates},
          {"dv", t.dv},
          {"dinitial_state", t.dinitial_state}});
}

using namespace lang;
using lang::Tensor;

Kernel scan_segments_kernel(const ScanKernel& c) {
  // Of a state, which no other element of it needs.
  constexpr int rows = 16, columns = 64, stages = 4;
  return kernel(instance_name("scan_segments", c), [&] {
    Dim batch("batch"), segments("segments"), heads("heads");
    const Extents of_segments{batch, segments, heads, c.d, c.d_v}, of_sequences{batch, heads, c.d, c.d_v};
    Tensor ends = input("ends", of_segments, f32);
    Tensor fades = c.gated ? input("fades", {batch, segments, heads}, f32) : ends;
    Tensor start = c.first ? input("initial_state", of_sequences, f32) : ends;
    Tensor starts = output("starts", of_segments, f32);
    Tensor end = c.last ? output("final_state", of_sequences, f32) : starts;
    const int across = (c.d_v + columns - 1) / columns;
    grid(ceildiv(c.d, rows) * across, heads, batch, [&](Index x, Index h, Index n) {
      Expr row = x / across * rows, column = x % across * columns;
      Fragment state({rows, columns}, f32, 0);
      if (c.first) copy(start.slice(n, h).at(row, column), state);
      pipelined(segments, {.stages = stages}, [&](Index step) {
        Expr segment = c.reverse ? segments - 1 - step : Expr(step);
        Shared more({rows, columns}, f32), fade({1}, f32);
        copy(ends.slice(n, segment, h).at(row, column), more);
        if (c.gated) copy(fades.slice(n, all, h).at(segment), fade);
        copy(state, starts.slice(n, segment, h).at(row, column));
        Expr share = c.gated ? Expr(fade(0)) : Expr(1.0f);
        parallel(state, [&](Index i, Index j) { state(i, j) = state(i, j) * share + more(i, j); });
      });
      if (c.last) copy(state, end.slice(n, h).at(row, column));
    });
  });
}

}  // namespace tegula::ops
