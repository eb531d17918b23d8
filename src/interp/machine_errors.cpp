// What went wrong, where, and why.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "interp/machine.hpp"
#include "ir/print_expr.hpp"
#include "tegula/error.hpp"

namespace tegula::interp {
namespace {

constexpr std::size_t most_causes = 1 << 16;

const Loc& known_line(const Loc& preferred, const Loc& other) {
  return preferred.line() != 0 ? preferred : other;
}

}  // namespace

std::uint32_t Machine::add_cause(const Cause& cause) {
  // The latest ones are kept: most invalid values are dropped soon.
  const std::size_t at = next_cause_++ % most_causes;
  if (at < causes_.size())
    causes_[at] = cause;
  else
    causes_.push_back(cause);
  return static_cast<std::uint32_t>(at) + 1;
}

std::uint32_t Machine::cause_of_element(const Memory& memory, std::int64_t position, const Node& node) {
  const std::uint32_t state = memory.state[position];
  return add_cause(
      {Cause::Kind::element, node.at(), &memory, position, state > poisoned ? state - poisoned : 0, {}, 0});
}

std::uint32_t Machine::cause_of_index(const PreparedAccess& access, const Node& node) {
  Cause cause{Cause::Kind::index, node.at(), &memories_[access.view->buffer], 0, 0, {}, 0};
  for (const Register r : access.index) {
    if (cause.rank < 4) cause.index[static_cast<std::size_t>(cause.rank++)] = registers_[r].integer;
  }
  return add_cause(cause);
}

std::uint32_t Machine::cause_of_division(const ir::ExprNode* node) {
  return add_cause({Cause::Kind::division, node->at, nullptr, 0, 0, {}, 0});
}

std::string Machine::element_text(const Memory& memory, std::int64_t position) const {
  const Shape index = memory.index_of(position);
  const char* kind = memory.buffer->is_tile() ? "tile" : "tensor";
  std::string text = fmt::format("element {} of the {} `{}`", describe(index), kind, memory.buffer->name);
  if (memory.buffer->is_tile()) text += " (" + short_location(memory.buffer->at) + ")";
  return text;
}

std::string Machine::cause_text(std::uint32_t id, int depth) const {
  const Cause& cause = causes_[id - 1];
  const std::string line = short_location(cause.at);
  if (cause.kind == Cause::Kind::division) return fmt::format("an integer was divided by zero at {}", line);
  if (cause.kind == Cause::Kind::index) {
    const Shape index(cause.index.begin(), cause.index.begin() + cause.rank);
    return fmt::format("index {} read at {} is outside the tile `{}` of {} ({})", describe(index), line,
                       cause.memory->buffer->name, describe(cause.memory->shape),
                       short_location(cause.memory->buffer->at));
  }
  std::string text = element_text(*cause.memory, cause.position) + ", read at " + line;
  if (cause.stored == 0) return text + ", was never written";
  if (depth == 4 || cause.stored > causes_.size()) return text + ", holds an invalid value";
  return text + ", holds an invalid value because " + cause_text(cause.stored, depth + 1);
}

const char* Machine::remedy_of(std::uint32_t id) const {
  const Cause& cause = causes_[id - 1];
  switch (cause.kind) {
    case Cause::Kind::division:
      return "make the divisor nonzero";
    case Cause::Kind::index:
      return "read only inside the tile";
    case Cause::Kind::element:
      break;
  }
  // Invalid values are forgotten in the end; what is known of this one is where it was kept.
  if (cause.stored != 0 && cause.stored <= causes_.size()) return remedy_of(cause.stored);
  return "write every element before it is read";
}

std::string Machine::place_text() const {
  std::string text;
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    text += i == 0 ? "block " : "; ";
    for (std::size_t d = 0; d < loops_[i].names->size(); ++d) {
      const std::string& name = (*loops_[i].names)[d]->name;
      text += fmt::format("{}{} = {}", d == 0 ? "" : ", ", name, registers_[loops_[i].index[d]].integer);
    }
  }
  return text;
}

void Machine::fail(const std::string& message, const Loc& at) const {
  const std::string place = place_text();
  throw ProgramError(place.empty() ? message : fmt::format("{} [{}]", message, place), at);
}

void Machine::fail_invalid(const char* use, std::uint32_t cause, const Loc& at) const {
  fail(fmt::format("{} is invalid: {}; {}, or drop the value with select()", use, cause_text(cause),
                   remedy_of(cause)),
       at);
}

void Machine::fail_outside(const PreparedView& view, const Loc& at) {
  const Memory& memory = buffer(view.buffer);
  Shape index;
  for (const PreparedView::Dim& dim : view.dims) {
    if (dim.axis < 0) index.push_back(registers_[dim.offset].integer);
  }
  fail(fmt::format(
           "index {} is outside the tile `{}` of {} ({}), of which this statement needs every element "
           "of its view; keep the index inside, or guard the statement with when()",
           describe(index), memory.buffer->name, describe(memory.shape), short_location(memory.buffer->at)),
       at);
}

void Machine::fail_overflow(const Instruction& instruction) {
  const ir::ExprNode& node = *instruction.node;
  // Formats the operation as in the program, with values instead of operands.
  std::vector<ir::Expr> values;
  const Register registers[] = {instruction.a, instruction.b};
  for (std::size_t i = 0; i < node.args.size() && i < 2; ++i)
    values.push_back(ir::constant(node.args[i]->held(), registers_[registers[i]].integer));
  const char* remedy =
      node.type == i32 ? "use a wider type, i64(x), or u32(x) if it should wrap" : "use smaller numbers";
  fail(fmt::format("the result of {} does not fit {}; {}",
                   ir::ExprPrinter()(ir::make(node.op, node.type, std::move(values))), node.type.name(),
                   remedy),
       known_line(node.at, program_.signature->kernel().at));
}

// No location is kept for reads and atomics, so this lists all statements of the grid that may be
// responsible.
std::string Machine::sites_of(const Memory& memory, ir::Touch touch) const {
  constexpr std::size_t most = 3;
  std::vector<std::string> places;
  ir::for_each_stmt(grid_->body, [&](const ir::Stmt& stmt) {
    for (const ir::Region& region : ir::effects(stmt).regions) {
      const bool meant = touch == ir::Touch::read ? ir::is_read(region.touch) : region.touch == touch;
      if (!meant || region.view->buffer.get() != memory.buffer) continue;
      const std::string place = short_location(stmt->at);
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
    }
  });
  if (places.size() > most) {
    places.resize(most);
    places.push_back("…");
  }
  return places.empty() ? "" : fmt::format(" at {}", fmt::join(places, " or "));
}

void Machine::fail_conflict(const char* access, const char* other, Moment then, const Memory& memory,
                            std::int64_t position, const Node& node) const {
  const char* who = "another statement of this grid";
  if (now_.gap(Level::iterations).holds(then))
    who = "another iteration of parallel()";
  else if (now_.gap(Level::instances).holds(then))
    who = "another instance of each_group()";
  else if (now_.gap(Level::blocks).holds(then))
    who = "another block of the grid";
  std::string there;
  const std::uint32_t state = memory.state[position];
  if (other[0] == 'r')
    there = sites_of(memory, ir::Touch::read);
  else if (state >= first_site && state < poisoned)
    there = " at " + short_location(program_.sites[state - first_site]);
  fail(fmt::format("{} is {} here and {}{} by {}; they run in any order: give every element one owner, or "
                   "use a reduction, atomic_add() or a second grid",
                   element_text(memory, position), access, other, there, who),
       node.at());
}

}  // namespace tegula::interp
