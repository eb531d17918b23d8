// The form of all plans (candidates → estimate → best), and their assumptions.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>

#include "ops/pieces/machines.hpp"
#include "ops/pieces/plan_choices.hpp"

namespace tegula::ops {

class BoundCall;

// The estimated time of a candidate that does not fit.
inline constexpr double never = std::numeric_limits<double>::infinity();

// Candidates of a plan, without memory of the heap: a call makes them anew.
template <class T, std::size_t most>
class Candidates {
 public:
  Candidates(std::initializer_list<T> given = {}) {
    for (const T& candidate : given) add(candidate);
  }
  void add(const T& candidate) { all_.at(count_++) = candidate; }
  bool empty() const { return count_ == 0; }
  const T* begin() const { return all_.data(); }
  const T* end() const { return begin() + count_; }

 private:
  std::array<T, most> all_ = {};
  std::size_t count_ = 0;
};

// The candidate with the least estimated time, the first of equal ones, and the first of all where none fits;
// or the one that tuning asks for.
template <class Candidates, class Estimate>
auto best_of(const Candidates& candidates, const Estimate& estimate) {
  const bool asks = chooses_candidates();
  std::vector<double> estimates;
  std::size_t best = 0, count = 0;
  double least = never;
  for (const auto& candidate : candidates) {
    const double time = estimate(candidate);
    if (time < least) best = count, least = time;
    if (asks) estimates.push_back(time);
    ++count;
  }
  return *std::next(std::begin(candidates),
                    static_cast<std::ptrdiff_t>(asks ? chosen_candidate(best, estimates) : best));
}

inline constexpr int planned_processors = cpu_table.processors;
inline constexpr int kernel_rows = cpu_table.kernel_rows, kernel_columns = cpu_table.kernel_columns;
inline constexpr int gpu_processors = gpu_table.processors;
// The processors of the call's GPU. If tensors are elsewhere, GPU programs are planned for `gpu_processors`.
int planned_gpu_processors(const BoundCall& call);
// Threads that share the blocks of a call on the CPU; 1 where these run one after another, or on a GPU.
int planned_threads(const BoundCall& call);
// Splits of the steps of `blocks`, where these alone do not keep the processors busy.
int planned_splits(std::int64_t blocks, std::int64_t steps, const GpuSplit& split, int processors);
// Rows that a warp group multiplies at a time.
inline constexpr int warp_group_rows = 64;
// The copy engine moves multiples of this, between addresses that are multiples of it.
inline constexpr int bytes_of_piece = 16;
// Features up to which the sums of 128 queries are in registers of two warp groups, and a step of keys and
// values of 16 bits beside the queries in shared memory.
inline constexpr int most_dim_of_128_rows = 256;
// What of a GPU's shared memory is for the tiles of a step.
inline constexpr std::int64_t bytes_of_tiles = 192 << 10;
// All shared memory of a block except for barriers and alignment.
inline constexpr std::int64_t bytes_of_block = 221 << 10;
// The GPU memory that partials of tokens may take, independent of the call.
inline constexpr std::int64_t bytes_of_partials = std::int64_t{1} << 30;

// Rows of each of the four tiles of a step of gradients. Up to 256 features of 16 bits two warp groups share
// the columns of the sums, and tiles of a step have one slot or two.
inline int fitting_extent(int extent, int dim, std::int64_t bytes) {
  if (bytes == 2 && dim <= most_dim_of_128_rows) return extent;
  while (extent > 16 && 4 * extent * dim * bytes > bytes_of_tiles) extent /= 2;
  return extent;
}

// Rows of a chunk that has a number for every list: `least`, or so many times more that there are no more
// numbers than `most`, which keeps memory from growing with the square of a length.
inline int rows_of_chunk(int least, std::int64_t rows, std::int64_t lists, std::int64_t most) {
  std::int64_t chunk = least;
  while (chunk < rows && (rows + chunk - 1) / chunk * lists > most) chunk *= 2;
  return static_cast<int>(chunk);
}

inline double round_up(double value, double step) { return std::ceil(value / step) * step; }

}  // namespace tegula::ops
