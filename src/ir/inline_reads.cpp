#include "ir/inline_reads.hpp"

#include <algorithm>

#include "ir/effects.hpp"

namespace tegula::ir {
namespace {

// Expressions larger than this are not looked into: they are too long to print anyway.
constexpr int too_large = 100000;
constexpr int many = 1000;

struct Read {
  VariablePtr variable;
  BufferPtr buffer;      // of a Load
  VariablePtr mutable_;  // of a Let
};

Read read_of(const Stmt& stmt) {
  if (const auto* load = as<Load>(stmt)) return {load->variable, load->from.view.buffer, nullptr};
  if (const auto* let = as<Let>(stmt)) {
    const Expr& value = let->value;
    if (value->op == Op::variable && value->variable->kind == VariableKind::mutable_) {
      return {let->variable, nullptr, value->variable};
    }
  }
  return {};
}

bool changes(const Effects& effects, const Read& read) {
  if (read.buffer) return effects.writes(read.buffer);
  const auto& assigned = effects.assigned;
  return std::find(assigned.begin(), assigned.end(), read.mutable_) != assigned.end();
}

// Whether the statement evaluates the variable once, before anything nested in it.
bool evaluates(const Stmt& stmt, const VariablePtr& v) {
  if (as<While>(stmt) || as<Gather>(stmt)) return false;
  bool found = false;
  for_each_expr(stmt, [&](const Expr& e) { found |= uses(e, v); });
  return found;
}

class Analysis {
 public:
  Analysis(const Body& body, const Expr& tail, const UseCounts& counts)
      : body_(body), tail_(tail), counts_(counts), place_(body.size()), inlined_(body.size(), false) {
    for (const Stmt& stmt : body) effects_.push_back(all_effects(stmt));
  }

  std::vector<bool> run() {
    for (std::size_t k = body_.size(); k-- > 0;) place(k);
    return inlined_;
  }

 private:
  // From the last statement to the first, so that the place of the user is known.
  void place(std::size_t k) {
    place_[k] = k;
    const Read read = read_of(body_[k]);
    if (!read.variable) return;
    const auto count = counts_.find(read.variable.get());
    if (count == counts_.end() || count->second != 1) return;
    const std::size_t end = user(k, read.variable);
    if (end == none) return;
    for (std::size_t between = k + 1; between < end; ++between) {
      if (changes(effects_[between], read)) return;
    }
    place_[k] = end;
    inlined_[k] = true;
  }

  std::size_t user(std::size_t k, const VariablePtr& v) const {
    for (std::size_t next = k + 1; next < body_.size(); ++next) {
      if (evaluates(body_[next], v)) return place_[next];
    }
    return tail_ && uses(tail_, v) ? body_.size() : none;
  }

  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  const Body& body_;
  const Expr& tail_;
  const UseCounts& counts_;
  std::vector<std::size_t> place_;  // where the statement is written
  std::vector<bool> inlined_;
  std::vector<Effects> effects_;
};

}  // namespace

void count_uses(const Expr& e, UseCounts& counts) {
  if (e->op == Op::variable) {
    int& count = counts[e->variable.get()];
    count = std::min(count + 1, many);
  } else if (e->size > too_large) {
    for_each_variable(e, [&](const VariablePtr& v) { counts[v.get()] = many; });
  } else {
    for (const Expr& arg : e->args) count_uses(arg, counts);
  }
}

UseCounts count_uses(const Body& body) {
  UseCounts counts;
  for_each_stmt(
      body, [&](const Stmt& stmt) { for_each_expr(stmt, [&](const Expr& e) { count_uses(e, counts); }); });
  return counts;
}

std::vector<bool> inlined_reads(const Body& body, const Expr& tail, const UseCounts& counts) {
  return Analysis(body, tail, counts).run();
}

}  // namespace tegula::ir
