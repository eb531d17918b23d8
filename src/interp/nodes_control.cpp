#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "interp/machine.hpp"
#include "interp/nodes.hpp"
#include "tegula/error.hpp"

namespace tegula::interp {

Flow LetNode::run(Machine& m) const {
  m.execute(code);
  m[variable] = m[value];
  return Flow::next;
}

Flow LoadNode::run(Machine& m) const {
  m.execute(code);
  Memory& memory = m.buffer(from.view->buffer);
  const std::int64_t position = m.locate(from);
  Cell result;
  if (position != outside)
    result = m.read(memory, position, *this);
  else if (memory.buffer->is_tile())
    result.cause = m.cause_of_index(from, *this);
  else if (memory.type.is_floating())
    result.real = 0;
  m[variable] = result;
  return Flow::next;
}

namespace {

[[noreturn]] void fail_outside(Machine& m, const PreparedAccess& to, const Node& node) {
  const Memory& memory = m.buffer(to.view->buffer);
  Shape index;
  for (const Register r : to.index) index.push_back(m[r].integer);
  m.fail(fmt::format("index {} is outside the tile `{}` of {} ({}): a store to a tile must be inside its "
                     "bounds; guard the store with when()",
                     describe(index), memory.buffer->name, describe(memory.shape),
                     short_location(memory.buffer->at)),
         node.at());
}

}  // namespace

Flow StoreNode::run(Machine& m) const {
  m.execute(code);
  Memory& memory = m.buffer(to.view->buffer);
  const std::int64_t position = m.locate(to);
  if (position != outside)
    m.write(memory, position, m[value], *this);
  else if (memory.buffer->is_tile())
    fail_outside(m, to, *this);
  return Flow::next;
}

Flow AtomicNode::run(Machine& m) const {
  m.execute(code);
  Memory& memory = m.buffer(to.view->buffer);
  const std::int64_t position = m.locate(to);
  if (position != outside) {
    m.note_combine(memory, position, *this);
    m.combine(op, memory, position, m[value], *this);
  } else if (memory.buffer->is_tile()) {
    fail_outside(m, to, *this);
  }
  return Flow::next;
}

Flow DeclareNode::run(Machine& m) const {
  m.declare(tile);
  return Flow::next;
}

Flow ForNode::run(Machine& m) const {
  m.execute(code);
  std::array<std::int64_t, 3> first{0, 0, 0}, last{1, 1, 1};
  for (std::size_t d = 0; d < index.size(); ++d) {
    first[d] = m.integer(begin[d], "the start of a loop", at());
    last[d] = m.integer(end[d], "the extent of a loop", at());
    if (last[d] <= first[d]) return Flow::next;
  }
  const bool ordered =
      kind == ir::LoopKind::serial || kind == ir::LoopKind::unrolled || kind == ir::LoopKind::pipelined;
  for (const Register r : index) m[r] = integer_cell(0);
  m.open({&names, index.data()});
  const Flow flow = ordered ? run_serial(m, first[0], last[0]) : run_unordered(m, first.data(), last.data());
  m.close();
  return flow;
}

Flow ForNode::run_serial(Machine& m, std::int64_t first, std::int64_t last) const {
  for (std::int64_t i = first; i < last; ++i) {
    m[index[0]] = integer_cell(i);
    m.begin_scope(scope);
    const Flow flow = m.run_body(body);
    if (flow == Flow::leave_loop) break;
    if (flow == Flow::end_block) return flow;
  }
  return Flow::next;
}

Flow ForNode::run_unordered(Machine& m, const std::int64_t* first, const std::int64_t* last) const {
  const Level level = kind == ir::LoopKind::parallel ? Level::iterations : Level::instances;
  const Now::Gap outer = m.now().gap(level);
  const Moment loop_begin = m.tick();
  std::array<std::int64_t, 3> count{1, 1, 1};
  std::array<Permutation, 3> order;
  for (std::size_t d = 0; d < index.size(); ++d) {
    count[d] = last[d] - first[d];
    order[d] = m.permutation(count[d]);
  }
  const auto next = [&](std::size_t d, std::int64_t& at) {
    at += order[d].factor;
    if (at >= count[d]) at -= count[d];
  };
  Flow flow = Flow::next;
  std::int64_t x = order[0].start;
  for (std::int64_t i = 0; i < count[0] && flow != Flow::end_block; ++i, next(0, x)) {
    std::int64_t y = order[1].start;
    for (std::int64_t j = 0; j < count[1] && flow != Flow::end_block; ++j, next(1, y)) {
      std::int64_t z = order[2].start;
      for (std::int64_t k = 0; k < count[2] && flow != Flow::end_block; ++k, next(2, z)) {
        const std::int64_t at[] = {x, y, z};
        for (std::size_t d = 0; d < index.size(); ++d) m[index[d]] = integer_cell(first[d] + at[d]);
        m.now().set(level, {loop_begin, m.tick()});
        m.begin_scope(scope);
        flow = m.run_body(body);
      }
    }
  }
  m.now().set(level, outer);
  m.tick();
  return flow == Flow::end_block ? flow : Flow::next;
}

namespace {

// Elements of the rows that a branch does not concern, as they were before it.
class KeptRows {
 public:
  KeptRows(Machine& m, const IfNode& node) {
    for (const std::uint32_t fragment : node.fragments) {
      const Memory& memory = m.buffer(fragment);
      const std::int64_t run = memory.elements / static_cast<std::int64_t>(node.of_rows.size());
      for (std::size_t i = 0; i < node.of_rows.size(); ++i) {
        if (m.truth(node.of_rows[i], "a condition of when_rows()", node.at())) continue;
        for (std::int64_t position = run * static_cast<std::int64_t>(i), end = position + run; position < end;
             ++position)
          if (is_defined(memory.state[position]))
            kept_.push_back({&memory, position, load_element(memory, position)});
      }
    }
  }

  // What is not a number may come of zero weights of infinite values.
  void check(Machine& m, const IfNode& node) const {
    for (const Element& e : kept_) {
      const Cell now = load_element(*e.memory, e.position);
      const bool same = e.memory->type.is_floating() ? now.real == e.before.real || std::isnan(now.real)
                                                     : now.integer == e.before.integer;
      if (same && is_defined(e.memory->state[e.position])) continue;
      m.fail(fmt::format("when_rows() changes the element {} of `{}`, whose row condition is false: leave "
                         "such rows unchanged, by select() or scores of -inf, or use when()",
                         describe(e.memory->index_of(e.position)), e.memory->buffer->name),
             node.at());
    }
  }

 private:
  struct Element {
    const Memory* memory;
    std::int64_t position;
    Cell before;
  };
  std::vector<Element> kept_;
};

}  // namespace

Flow IfNode::run(Machine& m) const {
  m.execute(code);
  if (!m.truth(condition, "a condition", at())) return m.run_body(otherwise);
  if (of_rows.empty()) return m.run_body(then);
  const KeptRows kept(m, *this);
  const Flow flow = m.run_body(then);
  kept.check(m, *this);
  return flow;
}

Flow WhileNode::run(Machine& m) const {
  while (true) {
    m.begin_scope(scope);
    if (const Flow flow = m.run_body(test); flow != Flow::next) return flow;
    m.execute(code);
    if (!m.truth(condition, "the condition of a loop", at())) return Flow::next;
    const Flow flow = m.run_body(body);
    if (flow == Flow::leave_loop) return Flow::next;
    if (flow == Flow::end_block) return flow;
  }
}

Flow LeaveNode::run(Machine& m) const {
  m.execute(code);
  return m.truth(condition, "a condition", at()) ? flow : Flow::next;
}

Flow PrintNode::run(Machine& m) const {
  m.execute(code);
  if (m.silent()) return Flow::next;
  const Cell& cell = m[value];
  std::string text = type.is_floating() ? fmt::format("{}", cell.real) : fmt::format("{}", cell.integer);
  if (type.is_boolean()) text = cell.integer != 0 ? "true" : "false";
  if (cell.cause != 0) text = "invalid";
  std::fputs(fmt::format("[{}] {} = {}\n", m.place_text(), label, text).c_str(), stdout);
  std::fflush(stdout);  // Python writes to a buffer of its own: lines would otherwise appear out of order.
  return Flow::next;
}

Flow AssertNode::run(Machine& m) const {
  m.execute(code);
  if (!m.truth(condition, "an asserted condition", at())) m.fail("assertion failed: " + message, at());
  return Flow::next;
}

}  // namespace tegula::interp
