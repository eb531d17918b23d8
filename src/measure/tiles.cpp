// Tiles by a model: what a block loads and multiplies by the rates of the machine, for as many waves of
// blocks as there are, and what of it fits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tegula/error.hpp"
#include "tegula/tune.hpp"

namespace tegula {

namespace {

constexpr std::int64_t bytes_of_host_tiles = 256 << 10;  // what a core's second-level cache holds
constexpr std::int64_t reserved = 4096;                  // of shared memory: barriers, alignment
constexpr int stages = 2;                                // of loads, at least
constexpr int threads_of_group = 128, elements_of_thread = 192;
// What a step waits and issues beside its loads and products: on an H100, products of 4096 with 32, 64 and
// 128 columns of k in a step differ by about so much a step.
constexpr double seconds_of_step = 1e-7;

double ceildiv(double a, double b) { return std::ceil(a / b); }

double rate_of(const Machine& machine, DType type) {
  if (type.bits() == 8 && machine.flops_8 > 0) return machine.flops_8;
  return type.bits() <= 16 && machine.flops_16 > 0 ? machine.flops_16 : machine.flops_32;
}

std::int64_t memory_of_block(const Machine& machine) {
  return machine.is_gpu ? machine.shared_bytes - reserved : bytes_of_host_tiles;
}

// Sums are in registers of up to two warp groups.
bool fits(const Machine& machine, std::int64_t bytes, std::int64_t sums) {
  return bytes <= memory_of_block(machine) &&
         (!machine.is_gpu || sums <= std::int64_t{2} * threads_of_group * elements_of_thread);
}

// The time of whole waves of blocks, one per processor, or of the memory traffic if that is longer.
double seconds_of(const Machine& machine, double blocks, double steps, double flops, double copied,
                  double memory, DType type) {
  const double waves = ceildiv(blocks, machine.processors);
  const double own = flops * machine.processors / rate_of(machine, type);
  const double loads = copied * machine.processors / machine.l2_bytes;
  const double waits = machine.is_gpu ? steps * seconds_of_step : 0;
  return machine.launch_seconds +
         std::max(waves * (std::max(own, loads) + waits), memory / machine.memory_bytes);
}

std::vector<Tiles> sorted(std::vector<Tiles> tiles) {
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tiles& a, const Tiles& b) { return a.predicted < b.predicted; });
  return tiles;
}

std::vector<int> powers(int from, int to, std::int64_t most) {
  std::vector<int> all;
  for (int n = from; n <= to; n *= 2)
    if (n == from || n / 2 < most) all.push_back(n);
  return all;
}

void check(const char* function, std::initializer_list<std::int64_t> extents) {
  for (const std::int64_t n : extents)
    if (n < 1) throw ArgumentError(fmt::format("{}: an extent is {}; give positive numbers", function, n));
}

}  // namespace

std::string Tiles::text() const {
  std::string text = std::to_string(rows);
  if (columns > 0) text += fmt::format("x{}", columns);
  if (depth > 0) text += fmt::format("x{}", depth);
  if (threads > 0) text += fmt::format(" of {} threads", threads);
  return text;
}

std::vector<Tiles> tiles_of_product(std::int64_t m, std::int64_t n, std::int64_t k, DType type,
                                    const Machine& machine) {
  check("tiles_of_product", {m, n, k});
  std::vector<Tiles> tiles;
  for (const int rows : powers(64, 256, m))
    for (const int columns : powers(64, 256, n))
      for (const int depth : powers(32, 128, k)) {
        const std::int64_t bytes = std::int64_t{stages} * (rows + columns) * depth * type.bytes();
        if (!fits(machine, bytes, std::int64_t{rows} * columns)) continue;
        const double steps = ceildiv(static_cast<double>(k), depth);
        const double blocks =
            ceildiv(static_cast<double>(m), rows) * ceildiv(static_cast<double>(n), columns);
        const double memory = static_cast<double>(m * k + n * k + m * n) * type.bytes();
        tiles.push_back({rows, columns, depth, 0,
                         seconds_of(machine, blocks, steps, 2.0 * rows * columns * depth * steps,
                                    (rows + columns) * steps * depth * type.bytes(), memory, type)});
      }
  return sorted(std::move(tiles));
}

std::vector<Tiles> tiles_of_attention(std::int64_t queries, std::int64_t keys, std::int64_t features,
                                      DType type, const Machine& machine) {
  check("tiles_of_attention", {queries, keys, features});
  std::vector<Tiles> tiles;
  const auto wide = static_cast<double>(features);
  for (const int rows : powers(64, 256, queries))
    for (const int columns : powers(32, 256, keys)) {
      const std::int64_t bytes = (rows + std::int64_t{2} * stages * columns) * features * type.bytes();
      if (!fits(machine, bytes, rows * (columns + features))) continue;
      const double steps = ceildiv(static_cast<double>(keys), columns);
      const double memory = static_cast<double>(2 * (queries + keys) * features) * type.bytes();
      tiles.push_back({rows, columns, 0, 0,
                       seconds_of(machine, ceildiv(static_cast<double>(queries), rows), steps,
                                  4.0 * rows * columns * wide * steps,
                                  2 * steps * columns * wide * type.bytes(), memory, type)});
    }
  return sorted(std::move(tiles));
}

std::vector<Tiles> tiles_of_reduction(std::int64_t rows, std::int64_t columns, DType type,
                                      const Machine& machine) {
  check("tiles_of_reduction", {rows, columns});
  std::vector<Tiles> tiles;
  const double memory = static_cast<double>(rows * columns) * type.bytes();
  for (const int own : powers(1, 32, rows))
    for (const int width : powers(64, 8192, columns)) {
      const std::int64_t elements = std::int64_t{own} * width;
      if (elements < 1024 || elements > 16384) continue;
      const double steps = ceildiv(static_cast<double>(columns), width);
      // What is beyond the last column is worked on all the same.
      const double waste = steps * width / static_cast<double>(columns);
      const int threads = static_cast<int>(std::clamp<std::int64_t>(elements / 16, 128, 512));
      tiles.push_back(
          {own, width, 0, machine.is_gpu ? threads : 0,
           seconds_of(machine, ceildiv(static_cast<double>(rows), own), steps, 0,
                      steps * static_cast<double>(elements) * type.bytes(), memory * waste, type)});
    }
  return sorted(std::move(tiles));
}

std::vector<Tiles> tiles_of_elements(std::int64_t count, DType type, const Machine& machine) {
  check("tiles_of_elements", {count});
  std::vector<Tiles> tiles;
  for (const int own : powers(512, 16384, count))
    for (const int threads : {128, 256, 512}) {
      if (own < threads || (!machine.is_gpu && threads > 128)) continue;
      const double bytes = 2.0 * type.bytes();
      tiles.push_back({own, 0, 0, machine.is_gpu ? threads : 0,
                       seconds_of(machine, ceildiv(static_cast<double>(count), own), 1, 0, own * bytes,
                                  static_cast<double>(count) * bytes, type)});
    }
  return sorted(std::move(tiles));
}

}  // namespace tegula
