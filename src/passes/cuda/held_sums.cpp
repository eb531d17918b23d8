#include "passes/cuda/held_sums.hpp"

#include <unordered_set>

#include "ir/visit.hpp"
#include "passes/cuda/lower.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// Sums of f16 that are widened before anything else is done with them leave those of f32 the same way, unless
// these have been in another one or `in_several_ways`.
void add_widened(const Body& body, const HeldSums& in_words, HeldSums& result,
                 std::unordered_set<const Buffer*>& in_several_ways) {
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    if (!copy || copy->to.buffer->space != Space::fragment || copy->to.buffer->type != f32) return;
    const auto sum = in_words.find(copy->from.buffer.get());
    if (sum == in_words.end() || !is_whole(copy->from) || !is_whole(copy->to)) return;
    const Buffer* const to = copy->to.buffer.get();
    const bool is_one = !in_several_ways.contains(sum->first);
    if (!is_one || result.emplace(to, sum->second).first->second != sum->second) in_several_ways.insert(to);
  });
}

}  // namespace

HeldSums held_sums(const Grid& grid, const CudaTarget& target) {
  HeldSums result, in_words;
  if (!target.has_wgmma() || !target.copy_engine) return result;
  std::unordered_set<const Buffer*> in_several_ways;
  for (const auto& [gemm, threads] : team_products(grid.body, grid.hints.threads)) {
    if (threads != grid.hints.threads || !is_whole(gemm->c)) continue;
    const Buffer* const tile = gemm->c.buffer.get();
    const GemmPlan plan = plan_gemm(*gemm, threads, target);
    const HeldSum sum{plan.parts, plan.swapped};
    const bool by_groups = plan.instruction == GemmInstruction::wgmma && tile->type.is_floating();
    HeldSums& sums = tile->type == f32 ? result : in_words;
    if (!by_groups || sums.emplace(tile, sum).first->second != sum) in_several_ways.insert(tile);
  }
  add_widened(grid.body, in_words, result, in_several_ways);
  for (const Buffer* tile : in_several_ways) result.erase(tile);
  return result;
}

}  // namespace tegula::passes
