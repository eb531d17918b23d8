// Elements of tensors that a loop reads step by step, such as the numbers of a list or the factors of rows.
// Each is read a step ahead, so that its way from memory does not stand before the step. In loops with roles
// neither does the arithmetic of the address, which moves along.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/lists.hpp"
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

// Whether another step reads another element, which is known outside of the loop.
bool is_known_ahead(const For& loop, const Load& load) {
  const Effects inside = all_effects(loop.body);
  bool moves = false, known = true;
  const auto look = [&](const Expr& e, bool is_limit) {
    if (!e) return;
    for_each_variable(e, [&](const VariablePtr& v) {
      const bool is_index = v == loop.index[0];
      moves |= is_index;
      known &= v->kind != VariableKind::mutable_ && !contains(inside.defined, v) && !(is_index && is_limit);
    });
  };
  for (const Expr& at : coordinates(load.from)) look(at, false);
  for (const ViewDim& dim : load.from.view.dims) look(dim.low, true), look(dim.high, true);
  return moves && known;
}

// Small floats are converted in the step that uses them: a conversion behind the load would wait for it.
bool is_kept_as_stored(const Access& access) {
  const DType type = access.view.buffer->type;
  return type.is_floating() && type.bits() < 32;
}

Access at_index(const Access& access, const VariablePtr& index, const Expr& at) {
  Access result = access;
  for (Expr& e : result.index) e = substitute(e, {{index, at}});
  for (ViewDim& dim : result.view.dims) dim.offset = substitute(dim.offset, {{index, at}});
  return result;
}

}  // namespace

// Without roles the address is found anew.
void CudaGridPrinter::begin_number_ahead(const For& n, const Load& load, const std::string& first,
                                         const std::string& end) {
  const Buffer& from = *load.from.view.buffer;
  if (from.is_tile() || written_.contains(&from) || !is_known_ahead(n, load)) return;
  StepRead read{n.index[0], "", names_.unique("ahead"), "", ""};
  const bool as_stored = is_kept_as_stored(load.from);
  const std::string element = load_text(at_index(load.from, n.index[0], n.begin[0]), as_stored);
  out_.line(fmt::format("{0} {1} = {2} < {3} ? {4} : {0}{5};",
                        as_stored ? element_type(from.type) : std::string(scalar_type(load.variable->type)),
                        read.ahead, first, end, element, as_stored ? "{}" : "(0)"));
  step_reads_.insert_or_assign(load.variable.get(), std::move(read));
}

// Copies that come ahead read for themselves what they need.
bool CudaGridPrinter::is_used_in_step(const For& n, const VariablePtr& v) const {
  return std::any_of(n.body.begin(), n.body.end(), [&](const Stmt& s) {
    return !plan_.copy_rings.fills.contains(s.get()) && contains(all_effects(s).used, v);
  });
}

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
  if (n.kind != LoopKind::pipelined) return;
  for (const Stmt& s : n.body) {
    const auto* load = as<Load>(s);
    if (load && roles_)
      begin_step_read(n, *load, first, end);
    else if (load && n.stages != 1 && is_used_in_step(n, load->variable))
      begin_number_ahead(n, *load, first, end);
  }
}

void CudaGridPrinter::step_read(const Load& n, const StepRead& read, const Loc& at) {
  const bool as_stored = read.at.empty() && is_kept_as_stored(n.from);
  define(n.variable, as_stored ? fmt::format("tg::value({})", read.ahead) : read.ahead, true, at);
  if (read.at.empty()) {
    const Expr index = variable(read.index, at), one = constant(read.index->type, 1);
    const std::string element =
        load_text(at_index(n.from, read.index, make(Op::add, read.index->type, {index, one}, at)), as_stored);
    return out_.line(fmt::format("{} = {};", read.ahead, bare(element)));
  }
  out_.line(fmt::format("{} += {};", read.at, read.stride));
  out_.line(fmt::format("{0} = {1} + 1 < {2} ? tg::load({3}) : {4}(0);", read.ahead,
                        variable_text(read.index), read.last, read.at, scalar_type(n.variable->type)));
}

}  // namespace tegula::codegen
