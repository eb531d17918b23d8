#include "ops/linear/scan_segments.hpp"

#include <algorithm>

#include "ops/linear/chunk_notes.hpp"
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

// How the work of a scan is divided: segments of each sequence, and columns of values of a block.
struct Division {
  std::int64_t segments;
  int block;
};

// The work of a scan on a GPU, by what blocks do at once.
class ScanTime {
 public:
  ScanTime(const BoundCall& call, const ScanKernel& kernel)
      : scan(wide(kernel, true)),
        heads(sequences_of(call) * call.dim("heads")),
        chunks(std::ceil(static_cast<double>(call.dim("tokens")) / chunk_tokens_of_scan /
                         static_cast<double>(call.has("cu_seqlens") ? sequences_of(call) : 1))) {}

  // Microseconds.
  double of(const Division& d) const {
    const auto n = static_cast<double>(d.segments);
    const double steps = std::ceil(chunks / n) * of_steps(d.block, heads * d.segments * blocks_of(d.block));
    return start() + (d.segments == 1 ? steps : steps * (1 + alone) + n * of_segment + grids);
  }
  // The same if chunks did not wait for each other.
  double of_products() const {
    const std::int64_t most = scan.blocks_at_once();
    return chunks * static_cast<double>(heads * blocks_of(scan.block)) / static_cast<double>(most) *
           of_chunk(scan, most);
  }

 private:
  std::int64_t blocks_of(int block) const { return (scan.d_v + block - 1) / block; }
  // Of a chunk of each block, in waves.
  double of_steps(int block, std::int64_t blocks) const {
    ScanKernel own = scan;
    own.block = block;
    const std::int64_t most = own.blocks_at_once(), waves = blocks / most, others = blocks % most;
    return static_cast<double>(waves) * of_chunk(own, most) + (others > 0 ? of_chunk(own, others) : 0);
  }
  // Of a chunk with results: what waits for each other, what the columns take that a processor has, columns
  // of which no power of two are copied in smaller pieces, results of a block that the last column cuts,
  // which are stored one by one, and registers that are kept in memory.
  static double of_chunk(const ScanKernel& own, std::int64_t blocks) {
    constexpr double chain = 0.06, of_many_threads = 2.7, of_pieces = 0.65, of_cut = 1.7, feature = 0.0054;
    constexpr double of_spills = 0.7;
    constexpr double column = 0.0093, weighted_column = 0.0114, second_chain = 0.23, second_column = 0.0162;
    double time = (own.threads() > 0 ? chain + feature * own.features() : of_many_threads) +
                  (own.weighted ? column + weighted_column : column) * own.block;
    if (blocks > gpu_processors && own.threads() > 0) time += second_chain + second_column * own.block;
    if (blocks > gpu_processors && own.would_spill()) time += of_spills;
    if ((own.block & (own.block - 1)) != 0) time += of_pieces;
    return own.d_v % own.block == 0 ? time : time + of_cut;
  }
  // Of a call: the start of its grids, of which one forms weights.
  double start() const { return scan.weighted ? 11.5 : 9; }
  // The share of a chunk that only adds to the state, a segment of the pass over segments, two more grids.
  static constexpr double alone = 0.33, of_segment = 0.24, grids = 13.3;

  const ScanKernel scan;
  std::int64_t heads;
  double chunks;  // of a sequence, on the mean
};

// The division with the least time. A CPU has few processors, and blocks of all columns.
Division division_of(const BoundCall& call, const ScanKernel& scan) {
  constexpr int step = 16;
  const ScanTime time(call, scan);
  const std::int64_t tokens =
      call.dim("tokens") / (call.has("cu_seqlens") ? std::max<std::int64_t>(sequences_of(call), 1) : 1);
  const int all = wide(scan, call.on_gpu()).block, least = call.on_gpu() ? step : all;
  Candidates<Division, 48> candidates;
  for (int block = all; block >= least; block -= step)
    for (const std::int64_t count : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64})
      if (count == 1 || tokens > (count - 1) * chunk_tokens_of_scan) candidates.add({count, block});
  return best_of(candidates, [&](const Division& d) {
    return call.on_gpu() ? time.of(d) : static_cast<double>(d.segments);
  });
}

// With states of which warp groups multiply all rows, where there are more than those of one product.
ScanKernel with_filled_features(ScanKernel c, bool on_gpu) {
  constexpr int of_product = 64;
  c.filled = on_gpu && c.type.bits() == 16 && c.d > of_product && c.d % of_product != 0;
  return c;
}

// The kernel of blocks of a division.
ScanKernel divided_scan(const BoundCall& call, ScanKernel scan, const Division& d) {
  scan.block = d.block;
  scan.filled = scan.filled && d.block < ScanKernel::many_columns;
  scan.deep = call.on_gpu() &&
              sequences_of(call) * call.dim("heads") * d.segments * ((scan.d_v + d.block - 1) / d.block) <=
                  gpu_processors;
  return scan;
}

// Runs a program of a scan, which has some of these.
void launch_part(Launch& launch, const ScanKernel& scan, lang::Kernel (*program)(const ScanKernel&),
                 const ScanTensors& t, const TensorRef& start, const TensorRef& end,
                 const TensorRef& fades = {}) {
  launch(scan, program,
         {{"q", t.q},
          {"k", t.k},
          {"v", t.v},
          {"z", t.z},
          {"sums", t.sums},
          {"weights", t.weights},
          {"scale", t.scale},
          {"out", t.out},
          {"initial_state", start},
          {"final_state", end},
          {"fades", fades}});
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

  SegmentKernels(const BoundCall& call, const ScanKernel& scan, const Division& d)
      : each(divided_scan(call, scan, d)) {
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
                     const Division& d) {
  const SegmentStates own(call, launch, scan, d.segments);
  const tegula::Tensor fades = fades_of_segments(call, launch, scan, d.segments);
  const SegmentKernels kernels(call, scan, d);
  launch_part(launch, kernels.alone, scan_states_kernel, t, {}, own.ends, fades);
  own.pass(launch, scan, fades, t.initial_state, t.final_state);
  launch_part(launch, kernels.each, scan_kernel, t, own.starts, {});
}

// The tokens of the longest packed sequences that may have tiles: of those without states.
int most_of_tile(const ScanKernel& scan) { return scan.first || scan.last ? 0 : chunk_tokens_of_scan; }

// Where processors wait for most of the time.
void note_chain(const BoundCall& call, const ScanKernel& scan, const Division& d, Launch& launch) {
  constexpr double most = 3;
  const ScanTime time(call, scan);
  if (!call.on_gpu() || time.of(d) < most * time.of_products()) return;
  note_waiting_chunks(call, d.segments, launch);
}

}  // namespace

void launch_scan(const BoundCall& call, Launch& launch, const ScanKernel& given, const ScanTensors& t) {
  if (given.of_tile) {
    note_tile_of_short(call, given.rows(), launch);
    return launch_part(launch, with_all_columns(given), scan_short_kernel, t, {}, {});
  }
  const ScanKernel scan = with_filled_features(given, call.on_gpu());
  const Division d = division_of(call, scan);
  note_chain(call, scan, d, launch);
  note_unfilled_chunks(call, most_of_tile(scan), launch);
  if (d.segments > 1) return launch_segments(call, launch, scan, t, d);
  launch_part(launch, divided_scan(call, scan, d), scan_kernel, t, t.initial_state, t.final_state);
}

namespace {

void launch_states_of(Launch& launch, const ScanKernel& scan, const StateTensors& t, const TensorRef& start,
                      const TensorRef& end, const TensorRef& fades = {}) {
  launch(scan, scan_states_kernel,
         {{"k", t.k},
          {"v", t.v},
          {"sums", t.sums},
          {"initial_state", start},
          {"states", t.states},
          {"final_state", end},
          {"fades", fades}});
}
void launch_state_gradients(Launch& launch, const ScanKernel& scan, const StateTensors& t,
                            const TensorRef& behind, const TensorRef& before) {
  launch(scan, scan_state_gradients_kernel,
         {{"q", t.q},
          {"k", t.k},
          {"dout", t.dout},
          {"sums", t.sums},
          {"scale", t.scale},
          {"dfinal_state", behind},
          {"dstates", t.dstates},
          {"dv", t.dv},
          {"dinitial_state", before}});
}

void launch_divided_states(const BoundCall& call, Launch& launch, ScanKernel scan, const StateTensors& t,
                           const Division& d) {
  const tegula::Tensor fades = fades_of_segments(call, launch, scan, d.segments);
  const SegmentKernels kernels(call, scan, d);
  // There is a gradient of the last state where it is given, and one of the first where that is.
  const bool given = scan.last;
  scan.last = false;
  const SegmentStates own(call, launch, scan, d.segments), back(call, launch, scan, d.segments);
  launch_states_of(launch, kernels.alone, t, {}, own.ends, fades);
  own.pass(launch, scan, fades, t.initial_state, {});
  launch_states_of(launch, kernels.each, t, own.starts, {});
  ScanKernel alone = kernels.alone, each = kernels.each;
  alone.first = each.last = true, alone.last = each.first = false;
  launch_state_gradients(launch, alone, t, {}, back.ends);
  ScanKernel backwards = scan;
  backwards.reverse = true, backwards.last = scan.first, backwards.first = given;
  back.pass(launch, backwards, fades, t.dfinal_state, t.dinitial_state);
  launch_state_gradients(launch, each, t, back.starts, {});
}

}  // namespace

void launch_states(const BoundCall& call, Launch& launch, const ScanKernel& scan, const StateTensors& t) {
  const Division d = division_of(call, scan);
  note_chain(call, scan, d, launch);
  note_unfilled_chunks(call, most_of_tile(scan), launch);
  if (d.segments > 1) return launch_divided_states(call, launch, scan, t, d);
  const ScanKernel own = divided_scan(call, scan, d);
  ScanKernel forwards = own;
  forwards.last = false;
  launch_states_of(launch, forwards, t, t.initial_state, {});
  launch_state_gradients(launch, own, t, t.dfinal_state, t.dinitial_state);
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
