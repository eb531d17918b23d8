#include "passes/cuda/registers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/ring_depths.hpp"
#include "passes/cuda/spread_blocks.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int registers_of_processor = 65536, most_of_thread = 255;
constexpr int beside_sums = 26, beside_sums_and_a = 30;

class Counting {
 public:
  Counting(const Body& body, int threads, const CudaTarget& target)
      : target_(target), layouts_(infer_layouts(body, threads, target)) {
    needs_.live = most(body, threads);
  }
  RegisterNeeds result() { return std::move(needs_); }

 private:
  // A fragment, and the statements of the body that declares it which use it first and last.
  struct Life {
    std::int64_t registers;
    std::size_t first, last;
  };

  std::int64_t registers_of(const Buffer& tile) const {
    const auto found = layouts_.fragments.find(&tile);
    if (found == layouts_.fragments.end()) return 0;
    return (found->second.register_count() * tile.type.bytes() + 3) / 4;
  }

  std::vector<Life> lives(const Body& body) const {
    std::unordered_map<const Buffer*, Life> all;
    for (std::size_t i = 0; i < body.size(); ++i) {
      if (const auto* n = as<Declare>(body[i]); n && n->tile->space == Space::fragment) {
        all.emplace(n->tile.get(), Life{registers_of(*n->tile), body.size(), 0});
        continue;
      }
      if (all.empty()) continue;
      for (const Region& r : all_effects(body[i]).regions) {
        const auto found = all.find(r.view->buffer.get());
        if (found == all.end()) continue;
        found->second.first = std::min(found->second.first, i);
        found->second.last = i;
      }
    }
    std::vector<Life> result;
    for (const auto& [tile, life] : all) result.push_back(life);
    return result;
  }

  // A loop over elements hands the registers of what it reads last over to what it writes first.
  std::int64_t most(const Body& body, int threads) {
    const std::vector<Life> all = lives(body);
    std::int64_t result = 0;
    for (std::size_t i = 0; i < body.size(); ++i) {
      std::int64_t begin = 0, end = 0, stay = 0;
      for (const Life& life : all) {
        if (life.first > i || life.last < i) continue;
        std::int64_t& sum = life.first == life.last ? stay
                            : life.first == i       ? begin
                            : life.last == i        ? end
                                                    : stay;
        sum += life.registers;
      }
      const auto* loop = as<For>(body[i]);
      const bool hands_over = loop && loop->kind == LoopKind::parallel;
      const std::int64_t own = hands_over ? std::max(begin, end) : begin + end;
      result = std::max(result, stay + own + inside(body[i], threads));
    }
    return result;
  }

  std::int64_t inside(const Stmt& s, int threads) {
    if (const auto* gemm = as<Gemm>(s)) return product(*gemm, s, threads);
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::parallel) return 0;
    std::int64_t result = 0;
    for_each_body(s, [&](const Body& inner) {
      result = std::max(result, most(inner, loop ? threads_of(*loop, threads) : threads));
    });
    return result;
  }

  // The registers that it takes beside the fragments: of one instruction's sums, which are to be promoted.
  std::int64_t product(const Gemm& gemm, const Stmt& s, int threads) {
    const GemmPlan plan = plan_gemm(gemm, threads, target_);
    needs_.by_warps |= plan.instruction == GemmInstruction::mma_sync;
    if (plan.instruction != GemmInstruction::wgmma) return 0;
    const int columns = *std::max_element(plan.columns.begin(), plan.columns.end());
    const int beside = plan.a_in_registers ? beside_sums_and_a : beside_sums;
    needs_.products.push_back({s, columns / 2 + beside,
                               gemm.c.extent(0) * gemm.c.extent(1) / threads + beside, plan.a_in_registers});
    return needs_promotion(gemm, plan) ? columns / 2 : 0;
  }

  const CudaTarget& target_;
  const Layouts layouts_;
  RegisterNeeds needs_;
};

bool stores_fit(const RegisterNeeds& needs, const Roles& roles, const Registers& registers) {
  return roles.stores() || needs.widest() - beside_sums + to_store_with <= registers.work;
}

}  // namespace

std::int64_t RegisterNeeds::widest() const {
  std::int64_t result = 0;
  for (const ProductNeeds& n : products) result = std::max(result, n.all);
  return result;
}

int RegisterNeeds::at_launch() const {
  int result = 0;
  for (const ProductNeeds& n : products) result = std::max(result, n.at_launch);
  return result;
}

RegisterNeeds register_needs(const Body& body, int threads, const CudaTarget& target) {
  return Counting(body, threads, target).result();
}

Registers registers_of(int threads, int blocks) {
  const int each = std::min<int>(most_of_thread, registers_of_processor / (threads * blocks) / 8 * 8);
  return {each, each};
}

Registers registers_of(const Roles& roles) {
  Registers result = registers_of(roles.consumers + roles.producers, roles.blocks_per_processor);
  if (const int own = register_shares(roles).consumer; own > 0) result.work = own;
  return result;
}

Registers registers_of(const Roles& roles, int blocks) {
  Roles own = roles;
  own.blocks_per_processor = blocks;
  own.producers = blocks > 2 ? one_warp : producer_threads;
  return registers_of(own);
}

bool fit(const RegisterNeeds& needs, const Registers& registers) {
  return needs.at_launch() <= registers.launch && needs.live + to_work_with <= registers.work;
}

bool fit(const RegisterNeeds& needs, const Roles& roles, int blocks) {
  const Registers registers = registers_of(roles, blocks);
  return fit(needs, registers) && stores_fit(needs, roles, registers);
}

std::optional<ProductNeeds> too_large(const RegisterNeeds& needs, const Registers& registers) {
  for (const ProductNeeds& n : needs.products)
    if (n.at_launch > registers.launch || n.all > registers.work) return n;
  return std::nullopt;
}

std::optional<Note> note_on_registers(const Grid& grid, const Roles* roles, const CudaTarget& target) {
  const int threads = grid.hints.threads;
  const RegisterNeeds needs = register_needs(roles ? roles->consumer : grid.body, threads, target);
  const Registers own = roles ? registers_of(*roles)
                              : registers_of(threads_of_cta(grid.hints), blocks_without_roles(grid, target));
  // What is alive is counted generously: a word only where little is left.
  const int beside = needs.by_warps && needs.products.empty() ? to_load_with : to_work_with / 2;
  const bool good = needs.live + beside <= own.work && needs.widest() + to_work_with / 4 <= own.work &&
                    (!roles || stores_fit(needs, *roles, own));
  if (good) return std::nullopt;
  return Note{NoteKind::registers, grid.at,
              fmt::format("fragments take {} registers of each of {} threads at one point, and a thread has "
                          "{}: some may be in local memory",
                          needs.live, threads, own.work),
              "use smaller tiles or other .threads"};
}

}  // namespace tegula::passes
