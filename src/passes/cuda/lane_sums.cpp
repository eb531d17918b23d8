#include "passes/cuda/lane_sums.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>

#include "ir/inline_reads.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/element_bits.hpp"
#include "passes/cuda/element_loops.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

bool adds_to(const Stmt& s, const BufferPtr& sum) {
  const auto* n = as<Reduce>(s);
  return n && n->op == ReduceOp::sum && !n->overwrite && n->to.buffer == sum && is_whole(n->to) &&
         n->from.buffer != sum;
}

bool mentions(const Stmt& s, const BufferPtr& sum) {
  bool found = false;
  for_each_view(s, [&](const View& view) { found |= view.buffer == sum; });
  return found;
}

// x(i) = x(i) · factor, in a parallel loop.
bool is_scaling(const Body& body, const BufferPtr& sum, const UseCounts& uses_of) {
  std::vector<Stmt> touching;
  std::copy_if(body.begin(), body.end(), std::back_inserter(touching),
               [&](const Stmt& s) { return mentions(s, sum); });
  const auto* load = touching.size() == 2 ? as<Load>(touching[0]) : nullptr;
  const auto* store = touching.size() == 2 ? as<Store>(touching[1]) : nullptr;
  if (!load || !store || store->value->op != Op::mul) return false;
  const auto is_sum = [&](const Expr& e) { return e->op == Op::variable && e->variable == load->variable; };
  const auto known = uses_of.find(load->variable.get());
  const bool once = known != uses_of.end() && known->second == 1;
  return once && same_place(load->from, store->to) &&
         (is_sum(store->value->args[0]) || is_sum(store->value->args[1]));
}

bool is_kept_apart(const Body& body, const BufferPtr& sum, const UseCounts& uses_of) {
  return std::all_of(body.begin(), body.end(), [&](const Stmt& s) {
    if (adds_to(s, sum)) return true;
    if (const auto* loop = as<For>(s); loop && loop->kind == LoopKind::parallel) {
      const bool used = std::any_of(loop->body.begin(), loop->body.end(),
                                    [&](const Stmt& inner) { return mentions(inner, sum); });
      return !used || is_scaling(loop->body, sum, uses_of);
    }
    bool good = !mentions(s, sum);
    for_each_body(s, [&](const Body& inner) { good &= is_kept_apart(inner, sum, uses_of); });
    return good;
  });
}

// Adds sums that lanes may keep: those that the events form in parts, with `whole` also the others, and those
// for which warps would synchronise.
void add_lane_sums(const schedule::Events& events, bool whole, const For& loop, const Layouts& layouts,
                   std::vector<LaneSum>& sums) {
  const std::vector<BufferPtr> apart = lane_sums(loop.body);
  for (const schedule::Event& e : events) {
    const auto* operation = std::get_if<schedule::Operation>(&e.what);
    const auto* sum = operation ? as<Reduce>(e.stmt) : nullptr;
    if (!sum || operation->last < 16) continue;
    const BufferPtr& to = sum->to.buffer;
    if (std::find(apart.begin(), apart.end(), to) == apart.end()) continue;
    const layout::Layout &from = layouts.fragments.at(sum->from.buffer.get()),
                         &own = layouts.fragments.at(to.get());
    bool by_registers = true;
    for_each_stmt(loop.body, [&](const Stmt& s) {
      const auto* inner = as<For>(s);
      by_registers &= !inner || inner->kind != LoopKind::parallel || is_by_register(*inner, s, layouts);
    });
    Parting divided = parting(from, sum->dim);
    const bool pays = whole || operation->first > 0 || !divided.parts.empty();
    if (own == from.slice(sum->dim) && by_registers && pays) sums.push_back({to, std::move(divided)});
  }
}

std::vector<LaneSum> lane_sums_of(const schedule::Loop& n, const For& loop, const Layouts& layouts) {
  std::vector<LaneSum> result;
  for (const schedule::Event& e : n.body) {
    const auto* inner = std::get_if<schedule::Loop>(&e.what);
    const auto* branch = inner && e.stmt ? as<If>(e.stmt) : nullptr;
    if (branch && !branch->of_rows.empty()) add_lane_sums(inner->body, true, loop, layouts, result);
  }
  // One group makes the sums of its step while others wait for what it leaves.
  add_lane_sums(n.body, n.share == schedule::Share::pairs, loop, layouts, result);
  return result;
}

}  // namespace

Parting parting(const layout::Layout& layout, int dim) {
  Parting result;
  std::int64_t step = 1;
  for (const layout::Digit& digit : layout.threads()) {
    const bool reduced = digit.stride[static_cast<std::size_t>(dim)] != 0;
    std::int64_t in_warp = 1;
    if (reduced && step < 32 && is_power_of_two(step))
      in_warp = std::gcd<std::int64_t>(digit.extent, 32 / step);
    if (in_warp > 1) result.lanes.push_back({step, in_warp});
    if (reduced && digit.extent > in_warp) {
      result.parts.push_back({digit.extent / in_warp, digit.stride});
      result.numbers.push_back({step * in_warp, digit.extent / in_warp});
    }
    step *= digit.extent;
  }
  return result;
}

LaneSums find_lane_sums(const schedule::Events& events, const Layouts& layouts) {
  LaneSums result;
  const std::function<void(const schedule::Events&)> walk = [&](const schedule::Events& list) {
    for (const schedule::Event& e : list) {
      if (const auto* guard = std::get_if<schedule::Guard>(&e.what)) walk(guard->body);
      const auto* n = std::get_if<schedule::Loop>(&e.what);
      if (!n) continue;
      walk(n->body);
      const auto* loop = e.stmt ? as<For>(e.stmt) : nullptr;
      if (!loop) continue;
      auto sums = lane_sums_of(*n, *loop, layouts);
      if (!sums.empty()) result.emplace(e.stmt.get(), std::move(sums));
    }
  };
  walk(events);
  return result;
}

std::vector<BufferPtr> lane_sums(const Body& body) {
  const UseCounts uses_of = count_uses(body);
  std::vector<BufferPtr> result;
  const std::function<void(const Body&)> find = [&](const Body& own) {
    for (const Stmt& s : own) {
      if (const auto* branch = as<If>(s); branch && !branch->of_rows.empty()) find(branch->then);
      const auto* n = as<Reduce>(s);
      if (!n || !adds_to(s, n->to.buffer) || n->to.buffer->type != f32) continue;
      if (is_kept_apart(body, n->to.buffer, uses_of)) result.push_back(n->to.buffer);
    }
  };
  find(body);
  return result;
}

}  // namespace tegula::passes
