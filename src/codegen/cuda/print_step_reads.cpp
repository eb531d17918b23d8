// Elements of tensors that a loop with roles reads one after the other, such as the numbers of a list. Each
// is read a step ahead, from an address that moves along: neither its way from memory nor the arithmetic of
// the address stands before the step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The dimension whose coordinate is the loop's index, where all others stay as they are.
std::optional<std::size_t> moving_dim(const For& loop, const std::vector<Expr>& at) {
  const Effects inside = all_effects(loop.body);
  std::optional<std::size_t> result;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const bool moves = at[d]->op == Op::variable && at[d]->variable == loop.index[0];
    if (moves && result) return std::nullopt;
    if (moves) result = d;
    bool stays = true;
    for_each_variable(at[d], [&](const VariablePtr& v) {
      stays &= v != loop.index[0] && v->kind != VariableKind::mutable_ &&
               std::find(inside.defined.begin(), inside.defined.end(), v) == inside.defined.end();
    });
    if (!moves && !stays) return std::nullopt;
  }
  return result;
}

}  // namespace

// Declares the address, what it holds, and where it ends; `n` is entered next, with its index from `first` to
// `end`, which the facts know.
void CudaGridPrinter::begin_step_read(const For& n, const Load& load, const std::string& first,
                                      const std::string& end) {
  const Access& from = load.from;
  if (from.view.is_tile() || written_.contains(from.view.buffer.get())) return;
  const std::vector<Expr> at = coordinates(from);
  const auto moving = moving_dim(n, at);
  if (!moving || !values_.is_at_least(at[*moving], 0)) return;
  const ViewDim& dim = from.view.dims[*moving];
  if (dim.low && !is_constant(dim.low, 0)) return;
  Texts guards, limits = {end};
  for (std::size_t d = 0; d < at.size(); ++d)
    if (d != *moving) add_limits(from.view, d, at[d], value(at[d]), guards);
  for (const Expr& limit : {from.view.shape[*moving], dim.high})
    if (limit && !values_.is_less(at[*moving], limit)) limits.push_back(value(limit));
  const std::string type = std::string(scalar_type(n.index[0]->type));
  StepRead read{n.index[0], names_.unique("at"), names_.unique("ahead"), names_.unique("last"),
                stride_text(from.view, *moving)};
  std::string last = limits[0];
  for (std::size_t i = 1; i < limits.size(); ++i)
    last = fmt::format("tg::min<{0}>({1}, {2}({3}))", type, last, type, limits[i]);
  if (!guards.empty()) last = fmt::format("{} ? {} : {}(0)", fmt::join(guards, " && "), last, type);
  values_.set(n.index[0], first);
  const GuardedAddress begin = tensor_address(from, at);
  out_.line(fmt::format("const {} {} = {};", type, read.last, last));
  // Integers are indices, which uniform registers are to hold.
  const char* own = load.variable->type.is_floating() ? " + tg::zero_of_thread()" : "";
  out_.line(
      fmt::format("const {}* {} = {}{};", element_type(from.view.buffer->type), read.at, begin.pointer, own));
  out_.line(fmt::format("{0} {1} = {2} < {3} ? tg::load({4}) : {0}(0);", scalar_type(load.variable->type),
                        read.ahead, first, read.last, read.at));
  step_reads_.insert_or_assign(load.variable.get(), std::move(read));
}

void CudaGridPrinter::begin_step_reads(const For& n, const std::string& first, const std::string& end) {
  if (!roles_ || n.kind != LoopKind::pipelined) return;
  for (const Stmt& s : n.body)
    if (const auto* load = as<Load>(s)) begin_step_read(n, *load, first, end);
}

void CudaGridPrinter::step_read(const Load& n, const StepRead& read, const Loc& at) {
  define(n.variable, read.ahead, true, at);
  out_.line(fmt::format("{} += {};", read.at, read.stride));
  out_.line(fmt::format("{0} = {1} + 1 < {2} ? tg::load({3}) : {4}(0);", read.ahead,
                        variable_text(read.index), read.last, read.at, scalar_type(n.variable->type)));
}

}  // namespace tegula::codegen
