#include "ops/nsa/backward_plan.hpp"

#include <algorithm>

#include "ops/nsa/plan.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

namespace {

constexpr int usual_extent = 64, least_extent = 16;  // of a tile of the pass over keys

std::int64_t features(const NsaKernel& f) { return std::int64_t{f.dim + f.dim_v} * f.compute.bytes(); }

// Where fragments are operands of products, or are told an observer.
std::int64_t bytes_of_score(const NsaKernel& f) { return 2 * f32.bytes() + f.compute.bytes(); }

// A second loop, over the window, has tiles of its own.
int loops(const NsaBackwardKernel& c) { return c.window ? 2 : 1; }

// Queries, with the gradients of one result or two, steps of keys, scores and the joined lists.
std::int64_t bytes_of_query_pass(const NsaBackwardKernel& c) {
  const NsaKernel& f = c.forward;
  const std::int64_t rows = f.rows(), slots = std::int64_t{f.queries} * f.width(),
                     window = c.window ? rows * f.dim_v * f.compute.bytes() : 0,
                     tables = slots * (4 + f.queries + (c.dscale ? f.queries : 0));
  return rows * features(f) + window + loops(c) * f.keys * features(f) + rows * f.keys * bytes_of_score(f) +
         tables * f32.bytes();
}

// Keys, steps of queries with two numbers each, and scores.
std::int64_t bytes_of_key_pass(const NsaBackwardKernel& c) {
  const std::int64_t rows = c.queries * c.forward.pack;
  return c.keys * features(c.forward) + loops(c) * rows * (features(c.forward) + 2 * f32.bytes()) +
         rows * c.keys * bytes_of_score(c.forward);
}

bool fits(const NsaBackwardKernel& c) {
  return std::max(bytes_of_query_pass(c), bytes_of_key_pass(c)) <= bytes_of_block;
}

void take_tiles(int extent, int forward_keys, NsaBackwardKernel& kernel) {
  NsaKernel& f = kernel.forward;
  kernel.keys = std::min(f.block, tile_of_blocks(f.block, extent).extent);
  kernel.queries = std::max(1, extent / f.pack);
  f.keys =
      extent < usual_extent ? tile_of_blocks(f.block, std::min(forward_keys, extent)).extent : forward_keys;
}

void fit_tiles(NsaBackwardKernel& kernel) {
  const NsaKernel& f = kernel.forward;
  const int forward_keys = f.keys;
  int extent = fitting_extent(usual_extent, std::max(f.dim, f.dim_v), f.compute.bytes());
  take_tiles(extent, forward_keys, kernel);
  while (!fits(kernel) && extent > least_extent) take_tiles(extent /= 2, forward_keys, kernel);
}

}  // namespace

void plan_two_passes(bool on_gpu, std::int64_t tokens, NsaBackwardKernel& kernel) {
  NsaKernel& f = kernel.forward;
  if (!on_gpu) return take_tiles(usual_extent, f.keys, kernel);
  fit_tiles(kernel);
  if (fits(kernel) || f.pack == 1) return;
  const NsaPlan alone = plan_nsa({.tokens = tokens, .block = f.block, .entries = f.entries}, {});
  f.pack = f.members = 1, f.queries = alone.queries, f.keys = alone.keys;
  fit_tiles(kernel);
}

}  // namespace tegula::ops
