#include "passes/cuda/lane_sums.hpp"

#include <algorithm>
#include <functional>
#include <iterator>

#include "ir/inline_reads.hpp"
#include "ir/visit.hpp"

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
  const auto &from = load->from.index, &to = store->to.index;
  const bool in_place = std::equal(from.begin(), from.end(), to.begin(), to.end(),
                                   [](const Expr& x, const Expr& y) { return equal(x, y); });
  return once && in_place && (is_sum(store->value->args[0]) || is_sum(store->value->args[1]));
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

}  // namespace

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
