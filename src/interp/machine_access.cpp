// Accesses to elements: checks and marks.
#include <fmt/format.h>

#include <algorithm>

#include "interp/machine.hpp"
#include "tegula/error.hpp"

namespace tegula::interp {

Moment Machine::unordered(const Memory& memory, const Seen& seen) const {
  if (memory.strict) return seen.last >= grid_begin_ ? seen.last : 0;
  return seen.meets(now_, memory.born);
}

void Machine::check_writer(const char* access, const Memory& memory, std::int64_t position,
                           const Node& node) const {
  const Moment written = memory.writer[position];
  if (written < memory.born || !now_.meets(written)) return;
  fail_conflict(access, "written", written, memory, position, node);
}

void Machine::check_reads(const char* access, const Memory& memory, std::int64_t position,
                          const Node& node) const {
  if (memory.reads == nullptr) return;
  const Moment then = unordered(memory, memory.reads[position]);
  if (then != 0) fail_conflict(access, "read", then, memory, position, node);
}

void Machine::check_combines(const char* access, const Memory& memory, std::int64_t position,
                             const Node& node) const {
  if (memory.combines == nullptr) return;
  const Moment then = unordered(memory, memory.combines[position]);
  if (then != 0) fail_conflict(access, "accumulated into", then, memory, position, node);
}

void Machine::note_read(Memory& memory, std::int64_t position, const Node& node) {
  if (memory.writer == nullptr) return;
  check_writer("read", memory, position, node);
  check_combines("read", memory, position, node);
  if (memory.reads != nullptr) memory.reads[position].note(now_);
}

void Machine::note_write(Memory& memory, std::int64_t position, const Node& node) {
  check_writer("written", memory, position, node);
  if (memory.reads != nullptr) {
    const Moment then = memory.reads[position].meets(now_, memory.born);
    if (then != 0) fail_conflict("written", "read", then, memory, position, node);
  }
  check_combines("written", memory, position, node);
  memory.writer[position] = now_.moment;
}

void Machine::note_combine(Memory& memory, std::int64_t position, const Node& node) {
  constexpr const char* access = "accumulated into";
  check_writer(access, memory, position, node);
  if (memory.strict && memory.writer[position] >= grid_begin_) {
    fail_conflict(access, "written", memory.writer[position], memory, position, node);
  }
  check_reads(access, memory, position, node);
  memory.combines[position].note(now_);
}

Cell Machine::read(Memory& memory, std::int64_t position, const Node& node) {
  note_read(memory, position, node);
  if (memory.state == nullptr || is_defined(memory.state[position])) return load_element(memory, position);
  Cell cell;
  cell.cause = cause_of_element(memory, position, node);
  return cell;
}

Cell Machine::read_valid(Memory& memory, std::int64_t position, const char* use, const Node& node) {
  const Cell cell = read(memory, position, node);
  if (cell.cause != 0) fail_invalid(use, cell.cause, node.at());
  return cell;
}

void Machine::write(Memory& memory, std::int64_t position, const Cell& value, const Node& node) {
  note_write(memory, position, node);
  if (value.cause != 0) {
    if (!memory.buffer->is_tile()) fail_invalid("the value stored to a tensor", value.cause, node.at());
    memory.state[position] = poisoned + value.cause;
    return;
  }
  store_element(memory, position, value);
  memory.state[position] = node.site();
}

void Machine::overwrite(Memory& memory, std::int64_t position, const Cell& value, const Node& node) {
  if (value.cause != 0) fail_invalid("the first contribution", value.cause, node.at());
  store_element(memory, position, value);
  memory.state[position] = node.site();
}

void Machine::combine(ir::AtomicOp op, Memory& memory, std::int64_t position, const Cell& value,
                      const Node& node) {
  constexpr ir::Op operations[] = {ir::Op::add, ir::Op::min, ir::Op::max, ir::Op::bit_or, ir::Op::bit_and};
  if (value.cause != 0) fail_invalid("the operand of an atomic", value.cause, node.at());
  if (!is_defined(memory.state[position])) {
    fail_invalid("the element that an atomic combines with", cause_of_element(memory, position, node),
                 node.at());
  }
  const DType held = compute_type(memory.type);
  const ir::Value operands[] = {value_of(held, load_element(memory, position)), value_of(held, value)};
  bool overflow = false;
  const ir::Value result = ir::apply(operations[static_cast<int>(op)], held, operands, &overflow);
  if (overflow) {
    fail(fmt::format("the sum in {} does not fit {}; use a wider type", element_text(memory, position),
                     held.name()),
         node.at());
  }
  store_element(memory, position, cell_of(result));
  memory.state[position] = node.site();
}

}  // namespace tegula::interp
