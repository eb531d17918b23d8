#include "passes/cuda/choose_threads.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/registers.hpp"
#include "passes/cuda/ring_depths.hpp"
#include "passes/cuda/rows_of_warps.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int warp_group = 128, most_warp_groups = 4;
// Elements of a thread, of blocks that cover for each other and of blocks that are alone: these have only
// their own warps to run while others wait.
constexpr int most_elements = 96, most_elements_alone = 32;
// Registers that a thread has beside fragments where there is a choice: scaled sums of fp8, of 160 and 192
// registers of 208, spill in two blocks of one warp group and not in one of two.
constexpr int to_choose_with = 48;

struct Sizes {
  std::int64_t elements = 0;  // of all fragments
  std::int64_t rows = 0;      // of the highest product
  bool groups = false;        // of warps, which work apart
  bool alone = false;         // a block has a processor to itself
};

Sizes sizes_of(const Grid& grid) {
  Sizes result;
  std::int64_t vectors = 0;
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const auto* tile = as<Declare>(s);
    const std::int64_t elements = tile && tile->tile->space == Space::fragment ? tile->tile->elements() : 0;
    // In a vector of at most this length, a thread has one element.
    if (elements > 0 && (tile->tile->rank() > 1 || elements > warp_group))
      (tile->tile->rank() > 1 ? result.elements : vectors) += elements;
    if (const auto* gemm = as<Gemm>(s)) result.rows = std::max(result.rows, gemm->c.extent(0));
    const auto* loop = as<For>(s);
    result.groups |= loop && loop->kind == LoopKind::warp_groups;
  });
  result.alone = grid.extents.size() == 1 && grid.extents[0]->op == Op::variable &&
                 grid.extents[0]->variable->kind == VariableKind::processors;
  // In grids with products, a vector is a row or column of sums, of which a thread has few elements.
  if (result.rows == 0) result.elements += vectors;
  return result;
}

int threads_by_size(const Sizes& sizes) {
  int threads = warp_group;
  const int most = sizes.rows > 0 && sizes.rows <= 64 ? 256 : 512;
  const int each = sizes.alone && sizes.rows == 0 ? most_elements_alone : most_elements;
  while (threads < most && sizes.elements > each * threads) threads *= 2;
  // A warp group has 64 rows of a product; more of them would have to share rows.
  if (sizes.rows >= 64) threads = std::min<int>(threads, static_cast<int>(sizes.rows / 64) * warp_group);
  return threads;
}

// What a number of threads makes of a grid.
struct Outcome {
  int threads = 0;
  RegisterNeeds needs;
  Registers registers;
  bool crowded = false;                      // two blocks of one warp group lack registers, or almost
  int tensor_cores = 0, from_registers = 0;  // products by wgmma, and those of them whose A is in registers
};

std::optional<Roles> roles_of(const Kernel& kernel, const Grid& grid, const CudaTarget& target) {
  StoreForms none;  // lowered plainly
  const auto planned = specialize_roles(kernel, grid, target, none);
  if (!planned) return std::nullopt;
  Roles roles = *planned;
  if (!choose_depths(roles, grid.hints, target)) return std::nullopt;
  roles.consumer = rows_of_warps(roles.consumer, roles.consumers, target);
  return roles;
}

Outcome outcome_of(const Kernel& kernel, const Grid& grid, int threads, const CudaTarget& target) {
  Grid lowered = grid;
  lowered.hints.threads = threads;
  lowered.body = lower_plainly(grid, threads, target);
  Outcome result{threads, {}, {}};
  const auto roles = roles_of(kernel, lowered, target);
  result.needs = register_needs(roles ? roles->consumer : lowered.body, threads, target);
  result.registers = roles ? registers_of(*roles) : registers_of(threads, 1);
  result.crowded =
      roles && threads == warp_group &&
      (!fit(result.needs, *roles, 2) || result.needs.live + to_choose_with > registers_of(*roles, 2).work);
  for (const ProductNeeds& n : result.needs.products) {
    ++result.tensor_cores;
    result.from_registers += n.from_registers;
  }
  return result;
}

// The lower the better.
int rank(const Outcome& n, const Outcome& best) {
  const bool lacks = n.needs.live > n.registers.work, loses = n.tensor_cores < best.tensor_cores;
  if (lacks && loses) return 7;  // rather refused
  if (too_large(n.needs, n.registers)) return 6;
  if (loses) return 5;  // mma.sync has half of the rate and less, local memory costs a few percent
  if (lacks) return 4;
  if (!fit(n.needs, n.registers)) return 3;
  if (n.from_registers < best.from_registers) return 2;
  return n.crowded ? 1 : 0;
}

// The first of the best.
int best_of(const std::vector<Outcome>& all) {
  Outcome most;
  for (const Outcome& n : all) {
    most.tensor_cores = std::max(most.tensor_cores, n.tensor_cores);
    most.from_registers = std::max(most.from_registers, n.from_registers);
  }
  return std::min_element(all.begin(), all.end(),
                          [&](const Outcome& a, const Outcome& b) { return rank(a, most) < rank(b, most); })
      ->threads;
}

std::vector<Outcome> outcomes(const Kernel& kernel, const Grid& grid, int first, const CudaTarget& target) {
  std::vector<Outcome> result{outcome_of(kernel, grid, first, target)};
  // From two on: one warp group leaves the tensor cores idle during its other work.
  for (int groups = 2; groups <= most_warp_groups + 1; ++groups) {
    const int threads = (groups > most_warp_groups ? 1 : groups) * warp_group;
    if (threads != first) result.push_back(outcome_of(kernel, grid, threads, target));
  }
  return result;
}

int products_of(const Grid& grid) {
  int result = 0;
  for_each_stmt(grid.body, [&](const Stmt& s) { result += as<Gemm>(s) != nullptr; });
  return result;
}

int threads_of_grid(const Kernel& kernel, const Grid& grid, const CudaTarget& target) {
  const Sizes sizes = sizes_of(grid);
  const int unit = sizes.groups ? warp_group : 32;
  if (grid.hints.threads > 0) return (grid.hints.threads + unit - 1) / unit * unit;
  const int first = threads_by_size(sizes), products = products_of(grid);
  if (products == 0) return first;
  const Outcome own = outcome_of(kernel, grid, first, target);
  const bool all = own.tensor_cores == products || !target.has_wgmma();
  if (all && rank(own, own) == 0) return first;
  return best_of(outcomes(kernel, grid, first, target));
}

// Threads with which all fits, if there are such.
std::string remedy(const Kernel& kernel, const Grid& grid, int refused, const CudaTarget& target) {
  const std::vector<Outcome> all = outcomes(kernel, grid, refused, target);
  for (const Outcome& n : all) {
    const bool same = n.tensor_cores >= all[0].tensor_cores && n.needs.live <= n.registers.work;
    if (same && !too_large(n.needs, n.registers)) return fmt::format(" or .threads = {}", n.threads);
  }
  return "";
}

void check_products(const Kernel& kernel, const Grid& grid, int threads, const CudaTarget& target) {
  const Outcome n = outcome_of(kernel, grid, threads, target);
  const auto product = too_large(n.needs, n.registers);
  if (!product) return;
  const auto& gemm = *as<Gemm>(product->gemm);
  const bool at_launch = product->at_launch > n.registers.launch;
  const int groups = threads / warp_group;
  throw ProgramError(
      fmt::format(
          "the accumulators of {} x {} take {} registers of a thread of the {}, a thread has {}{}: use "
          "smaller tiles{}",
          gemm.c.extent(0), gemm.c.extent(1), at_launch ? product->at_launch : product->all,
          groups == 1 ? "one warp group" : fmt::format("{} warp groups", groups),
          at_launch ? n.registers.launch : n.registers.work,
          at_launch && n.registers.launch < n.registers.work ? " when it begins" : "",
          remedy(kernel, grid, threads, target)),
      product->gemm->at);
}

}  // namespace

Kernel choose_threads(const Kernel& kernel, const CudaTarget& target) {
  Kernel result = kernel;
  for (Grid& grid : result.grids) {
    const int threads = threads_of_grid(kernel, grid, target);
    check_products(kernel, grid, threads, target);
    grid.hints.threads = threads;
  }
  return result;
}

}  // namespace tegula::passes
