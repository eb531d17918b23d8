#include "passes/cuda/choose_stores.hpp"

#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/plan_row_stores.hpp"
#include "passes/cuda/plan_stores.hpp"
#include "passes/cuda/ring_depths.hpp"
#include "passes/cuda/store_events.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// What buffers the stores of the consumers need, and whether some wait for their turn: a block that waits
// ends later, and the blocks after it do not wait for that.
void count_stores(Roles& roles) {
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* copy = as<Copy>(s);
    const auto* sum = as<Accumulate>(s);
    if (sum || (copy && copy->from.buffer->space == Space::fragment))
      roles.store_bytes = std::max(roles.store_bytes, staging_bytes(s));
    roles.dynamic_tiles |= sum && sum->turn;
  });
  const Body apart = stores_of_step(roles.consumer, roles.consumers);
  if (apart.empty()) return;
  roles.store_bytes = 0;
  for (const Stmt& s : apart) roles.store_bytes += staging_bytes(s);
}

int slots(const Roles& roles, bool in_loops) {
  int result = 0;
  for (const RingPlan& ring : roles.rings) result += ring.in_loop == in_loops ? ring.depth : 0;
  return result;
}

// Whether all matrices that the consumers store to tensors go there by whole rows.
bool stores_rows(const Roles& roles, const CudaTarget& target) {
  const Layouts layouts = infer_layouts(roles.consumer, roles.together(), target);
  const VariablePtr group = roles.dealt ? roles.dealt->group : nullptr;
  bool all = true;
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::parallel || loop->index.size() < 2) return;
    all &= !all_effects(s).writes_tensors() ||
           plan_row_store(s, layouts, roles.together(), target, group).has_value();
  });
  return all;
}

// Whether buffers of stores take the place of slots that a loop asks for, or of those in which the next
// tile's operands wait for the end of this one.
bool takes_one_pass(const Roles& by_engine, const Roles& by_threads) {
  const int in_loops = slots(by_threads, true) - slots(by_engine, true),
            in_front = slots(by_threads, false) - slots(by_engine, false);
  return (by_engine.crowded && in_loops > 0) || (in_loops >= 0 && in_front > 0);
}

// Whether the steps of a loop store, beside other work of the block.
bool stores_beside_steps(const Roles& roles) {
  bool result = false;
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::pipelined)
      for_each_stmt(loop->body, [&](const Stmt& own) {
        const auto* copy = as<Copy>(own);
        result |= copy && copy->from.buffer->space == Space::fragment && !copy->to.is_tile();
      });
  });
  return result;
}

}  // namespace

std::vector<Roles> ways_to_store(const Roles& roles, const GridHints& hints, const StoreForms& forms,
                                 const CudaTarget& target) {
  // With the engine's form alone, nothing would ask whether it can, and no buffers would be counted.
  for_each_stmt(roles.consumer, [&](const Stmt& s) {
    internal_assert(!is_engine_store(s) || forms.contains(s.get()),
                    "stores by the copy engine have two forms");
  });
  std::vector<Roles> result;
  for (const bool by_engine : {true, false}) {
    if (by_engine && !has_choices(roles.consumer, forms)) continue;
    Roles way = roles;
    way.consumer = with_stores(roles.consumer, forms, by_engine);
    if (by_engine) count_stores(way);
    if (choose_depths(way, hints, target)) result.push_back(std::move(way));
  }
  return result;
}

const Roles& best_way_to_store(const std::vector<Roles>& ways, const CudaTarget& target) {
  const Roles &first = ways.front(), &last = ways.back();
  if (!first.stores()) return first;
  // The first of the warp groups to which parts are dealt stores alone.
  if (last.dealt && last.dealt->of_parts) return last;
  // A block less would leave nobody to work while the other waits.
  if (stores_beside_steps(first) && first.blocks_per_processor < last.blocks_per_processor) return last;
  // Warp groups to which steps are dealt store their columns themselves.
  const bool by_threads = stores_rows(last, target) && (takes_one_pass(first, last) || last.dealt);
  return by_threads ? last : first;
}

}  // namespace tegula::passes
