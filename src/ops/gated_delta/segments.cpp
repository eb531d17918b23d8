#include "ops/gated_delta/segments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/linear/chunk_notes.hpp"
#include "ops/linear/scan_pieces.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr const GpuScan& scan_costs = gpu_table.scan;
// Microseconds that a processor takes for the factors of a chunk of a head.
constexpr double factors_time = 4.4;

// What the estimates of a call's passes ask: chunks of the longest sequence and of all, with heads.
struct ChunksOfCall {
  double longest, all;

  explicit ChunksOfCall(const BoundCall& call) {
    // Lengths of packed sequences are on the device: the longest of some is taken to have so many times the
    // tokens of the mean.
    constexpr double of_mean = 2.5;
    const auto in_chunks = [](double tokens) { return std::ceil(tokens / chunk_tokens_of_scan); };
    const auto sequences = static_cast<double>(std::max<std::int64_t>(sequences_of(call), 1)),
               tokens = static_cast<double>(call.dim("tokens")),
               heads = static_cast<double>(call.dim("heads"));
    const bool packed = call.has("cu_seqlens");
    longest = in_chunks(
        packed ? std::min(static_cast<double>(call.dim("longest")), of_mean * tokens / sequences) : tokens);
    longest = std::min(longest, in_chunks(tokens));
    all = (packed ? std::max(in_chunks(tokens), sequences) : sequences * longest) * heads;
  }
};

// Of a pass in segments: waves of equally long ones, or the longest one where others end before it.
template <class Pass>
double pass_time(const BoundCall& call, const Pass& c, std::int64_t count, double step) {
  const ChunksOfCall chunks(call);
  const double columns = std::ceil(1. * c.columns() / c.block),
               own = std::ceil(chunks.longest / static_cast<double>(count));
  const auto processors = static_cast<double>(planned_gpu_processors(call));
  if (call.has("cu_seqlens")) return step * std::max(own, chunks.all * columns / processors);
  const auto heads = static_cast<double>(sequences_of(call) * call.dim("heads") * count);
  return own * step * std::ceil(heads * columns / processors);
}

double step_time(const DeltaPass& pass) {
  return pass.outputs ? scan_costs.step_with_outputs : scan_costs.step_alone;
}

// Of passes over states and their gradients. Whole ones run beside each other, each step behind the one
// before; segments have two rounds of passes, the first with the maps, and their blocks share processors.
double gradients_time(const BoundCall& call, const DeltaPass& pass, std::int64_t count) {
  constexpr double step = 2.73, of_block = 1.5, of_join = 3;
  // Segments of sequences that are not equally long: the longest ones begin late.
  constexpr double of_uneven = 1.45;
  const ChunksOfCall chunks(call);
  const auto blocks = [&](int columns) { return std::ceil(1. * columns / pass.block); };
  const double chain = std::ceil(chunks.longest / static_cast<double>(count)) * step,
               each = of_block * chunks.all / static_cast<double>(planned_gpu_processors(call));
  if (count == 1) return std::max(chain, each * 2 * blocks(pass.d_v));
  const double rounds = 2 * std::max(chain, each * (blocks(pass.d_v) + blocks(pass.d_v + pass.d))),
               uneven = call.has("cu_seqlens") && sequences_of(call) > 1 ? of_uneven : 1;
  return uneven * (rounds + of_join * static_cast<double>(count) + scan_costs.grids);
}

// Of all passes of a call, without the factors of chunks.
double segments_time(const BoundCall& call, const DeltaPass& pass, std::int64_t count) {
  const double own = pass_time(call, pass, count, step_time(pass));
  if (count == 1) return own;
  DeltaPass both = pass;
  both.segment = true;
  return own + pass_time(call, both, count, scan_costs.step_alone) +
         static_cast<double>(count) * scan_costs.segment_step + scan_costs.grids;
}

// Microseconds of passes over states by features, in so many segments.
double kda_time(const BoundCall& call, const ScanKernel& scan, bool gradients, std::int64_t count) {
  // Of a step with few columns, and of one more, where there are many heads; of a gradient's, in steps of
  // states.
  constexpr double step = 0.69, column = 0.08, of_gradients = 1.6, of_join = 3, grids = 32;
  constexpr int few = 16;
  // What blocks of segments lose to each other: so they are taken where they gain by far.
  constexpr double of_segments = 1.75;
  const auto pass = [&](bool map) {
    ScanKernel own = scan;
    own.map = map;
    own = narrow(own, sequences_of(call) * call.dim("heads") * count, true);
    return pass_time(call, own, count, step + column * std::max(own.block - few, 0));
  };
  const double states = pass(false), back = gradients ? of_gradients * states : 0;
  if (count == 1) return states + back;
  const double join = static_cast<double>(count) * of_join + grids;
  return of_segments * (states + pass(true) + join + (gradients ? 2 * back + join : 0));
}

template <class Estimate>
std::int64_t number_of_segments(const BoundCall& call, const Estimate& time) {
  constexpr std::int64_t most = 64;
  const double longest = ChunksOfCall(call).longest;
  Candidates<std::int64_t, 7> candidates{1};
  for (std::int64_t count = 2; count <= most; count *= 2)
    if (static_cast<double>(count) <= longest) candidates.add(count);
  return best_of(candidates, [&](std::int64_t count) {
    // A CPU has few processors, and the same number of steps on each.
    return call.on_gpu() ? time(count) : static_cast<double>(count);
  });
}

}  // namespace

std::int64_t segments_of(const BoundCall& call, const DeltaPass& pass) {
  return number_of_segments(call, [&](std::int64_t count) {
    return pass.keep ? gradients_time(call, pass, count) : segments_time(call, pass, count);
  });
}

std::int64_t segments_of_kda(const BoundCall& call, const ScanKernel& scan, bool gradients) {
  return number_of_segments(call, [&](std::int64_t count) { return kda_time(call, scan, gradients, count); });
}

void note_passes(const BoundCall& call, const DeltaPass& pass, std::int64_t segments, Launch& launch) {
  // Several warp groups, which wait for each other, have the states of more features than one has.
  constexpr int of_one_group = 128, wide = 192;
  constexpr double most = 2.4, step_of_groups = 4;
  if (!call.on_gpu()) return;
  const int features = scan_of(pass).features();
  const double factor = features > of_one_group ? step_of_groups / step_time(pass) : 1,
               all = ChunksOfCall(call).all / static_cast<double>(planned_gpu_processors(call)),
               factors = all * factors_time,
               products = all * std::ceil(1. * pass.columns() / pass.block) * step_time(pass) * factor;
  if (segments_time(call, pass, segments) * factor + factors > most * (products + factors))
    note_waiting_chunks(call, segments, launch);
  if (pass.keep ? features > of_one_group : features > wide)
    launch.note([&] {
      return fmt::format("plan: sums of {} features {}; up to {} are those of one warp group", features,
                         pass.keep
                             ? "are more than registers hold, and parts of them are in memory"
                             : "are those of several warp groups, which wait for each other in each chunk",
                         of_one_group);
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
  for (std::int64_t count = 2; count <= most; count *= 2)
    if (tokens > 0 && tokens % (count * chunk_tokens_of_scan) == 0) candidates.add(count);
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

using namespace lang;
using lang::Tensor;

namespace {

// What segments make of the states they begin with, one after the other: state · map + added; or of the
// gradients of those they end with, the last one first: dstate · mapᵀ + added. Rows of states are columns of
// values, and a block has some.
struct SegmentStates {
  const DeltaPass& c;
  bool backwards = false;
  Dim batch{"batch"}, segments{"segments"}, heads{"heads"};
  int features = scan_of(c).features();
  // Whether there is a state before all segments, and whether that behind them is wanted.
  bool given = backwards ? c.last : c.first, wanted = backwards ? c.first : c.last;
  Extents of_segments{batch, segments, heads, c.d_v, c.d}, of_sequences{batch, heads, c.d_v, c.d};
  Tensor added = input(backwards ? "dstarts" : "ends", of_segments, f32);
  std::vector<Tensor> maps = declare_maps();
  Tensor start = given ? input(backwards ? "dfinal_state" : "initial_state", of_sequences, f32) : added;
  Tensor starts = output(backwards ? "dends" : "starts", of_segments, f32);
  Tensor end = wanted ? output(backwards ? "dinitial_state" : "final_state", of_sequences, f32) : starts;

  std::vector<Tensor> declare_maps() const {
    std::vector<Tensor> result;
    for (const char* name : names_of_maps(c.type))
      result.push_back(input(name, {batch, segments, heads, c.d, c.d}, type_of_maps(c.type)));
    return result;
  }
  Expr segment(const Expr& step) const { return backwards ? segments - 1 - step : step; }
  // The terms of the state times those of the map, without that of the small ones.
  void pass(Fragment& state, const Expr& b, const Expr& segment, const Expr& h, const Expr& row) const {
    std::vector<Shared> own, before;
    for (const Tensor& map : maps) {
      own.emplace_back(Shared({features, features}, map.type()));
      copy(map.slice(b, segment, h), own.back());
    }
    Shared more({c.block, features}, f32);
    copy(added.slice(b, segment, h).at(row), more);
    for (const Tensor& map : maps) {
      before.emplace_back(Shared({c.block, features}, map.type()));
      copy(state, before.back());
      if (c.splits_maps())
        parallel(state, [&](Index i, Index j) { state(i, j) -= f32(map.type()(state(i, j))); });
    }
    parallel(state, [&](Index i, Index j) { state(i, j) = more(i, j); });
    for (std::size_t i = 0; i < before.size(); ++i)
      for (std::size_t j = 0; i + j < own.size(); ++j)
        if (backwards)
          gemm(before[i], own[j].T(), state, {.precision = lang::Precision::ieee});
        else
          gemm(before[i], own[j], state, {.precision = lang::Precision::ieee});
  }
  void run() const {
    grid(ceildiv(c.d_v, c.block), heads, batch, [&](Index x, Index h, Index b) {
      Expr row = x * c.block;
      Fragment state({c.block, features}, f32, 0);
      if (given) copy(start.slice(b, h).at(row), state);
      // What becomes of the last segment's state matters only where it is wanted.
      const Expr passed = wanted ? Expr(segments) : segments - 1;
      pipelined(passed, {.stages = c.splits_maps() ? 3 : 1}, [&](Index step) {
        copy(state, starts.slice(b, segment(step), h).at(row));
        pass(state, b, segment(step), h, row);
      });
      if (wanted)
        copy(state, end.slice(b, h).at(row));
      else
        copy(state, starts.slice(b, segment(segments - 1), h).at(row));
    });
  }
};

}  // namespace

Kernel segment_states_kernel(const DeltaPass& c) {
  return kernel(instance_name("segment_states", c), [&] { SegmentStates{c}.run(); });
}

Kernel segment_gradients_kernel(const DeltaPass& c) {
  return kernel(instance_name("segment_gradients", c), [&] { SegmentStates{c, true}.run(); });
}

}  // namespace tegula::ops
