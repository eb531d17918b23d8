#include "interp/compare.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <unordered_set>

#include "ir/effects.hpp"
#include "tegula/error.hpp"

namespace tegula::interp {
namespace {

using namespace ir;

// What float sums in any order flow into, directly and through conditions.
class Spread {
 public:
  explicit Spread(const Kernel& kernel) : kernel_(kernel) {}

  bool reaches(const Buffer* buffer) const { return buffers_.contains(buffer); }
  void run() {
    do {
      changed_ = false;
      for (const Grid& grid : kernel_.grids) body(grid.body, false);
    } while (changed_);
  }

 private:
  void mark(const Buffer* buffer) { changed_ |= buffers_.insert(buffer).second; }
  void mark(const Variable* variable) { changed_ |= variables_.insert(variable).second; }

  void body(const Body& body, bool condition) {
    for (const Stmt& stmt : body) statement(stmt, condition);
  }
  void statement(const Stmt& stmt, bool condition) {
    const Effects own = effects(stmt);
    bool reached = condition;
    for (const VariablePtr& variable : own.used) reached |= variables_.contains(variable.get());
    for (const ir::Region& region : own.regions) {
      reached |= region.touch != Touch::write && buffers_.contains(region.view->buffer.get());
    }
    for (const ir::Region& region : own.regions) {
      const Buffer* buffer = region.view->buffer.get();
      if (is_write(region.touch) && (reached || is_unordered_sum(stmt))) mark(buffer);
    }
    for (const VariablePtr& variable : own.defined) {
      if (reached) mark(variable.get());
    }
    for (const VariablePtr& variable : own.assigned) {
      if (reached) mark(variable.get());
    }
    for_each_body(stmt, [&](const Body& nested) { body(nested, reached); });
  }
  static bool is_unordered_sum(const Stmt& stmt) {
    if (const auto* atomic = as<Atomic>(stmt)) {
      return atomic->op == AtomicOp::add && atomic->to.view.buffer->type.is_floating();
    }
    const auto* accumulate = as<Accumulate>(stmt);
    return accumulate != nullptr && accumulate->op == AtomicOp::add && accumulate->order == nullptr &&
           accumulate->to.buffer->type.is_floating();
  }

  const Kernel& kernel_;
  std::unordered_set<const Buffer*> buffers_;
  std::unordered_set<const Variable*> variables_;
  bool changed_ = false;
};

// Calls f(position) for every element of the tensor.
template <class F>
void for_each_position(const Memory& memory, const F& f) {
  Shape index(memory.shape.size());
  std::int64_t position = memory.origin;
  for (std::int64_t i = memory.elements; i > 0; --i) {
    f(position);
    for (std::size_t d = index.size(); d-- > 0;) {
      position += memory.strides[d];
      if (++index[d] < memory.shape[d]) break;
      position -= memory.strides[d] * memory.shape[d];
      index[d] = 0;
    }
  }
}

// Sums in other orders differ by rounding, relative to the largest value of the tensor.
double tolerance(const Memory& memory) {
  double most = 0;
  for_each_position(memory, [&](std::int64_t p) {
    const double value = std::fabs(load_element(memory, p).real);
    if (is_defined(memory.state[p]) && std::isfinite(value)) most = std::max(most, value);
  });
  return most * std::ldexp(1.0, memory.type.bits() >= 32 ? -10 : memory.type.bits() == 16 ? -5 : -1);
}

bool same(DType type, const Cell& a, const Cell& b) {
  if (!type.is_floating()) return a.integer == b.integer;
  return std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real) ||
         (std::isnan(a.real) && std::isnan(b.real));
}

bool close(DType type, const Cell& a, const Cell& b, double tolerance) {
  if (!type.is_floating() || same(type, a, b)) return true;
  if (std::isfinite(a.real) && std::isfinite(b.real)) return std::fabs(a.real - b.real) <= tolerance;
  return true;  // a sum near the largest finite value may overflow in one order
}

std::string text(DType type, const Cell& cell) {
  return type.is_floating() ? fmt::format("{}", cell.real) : fmt::format("{}", cell.integer);
}

void check_tensor(const Program& program, bool is_unordered, const Machine& first, const Memory& a,
                  const Memory& b) {
  const double allowed = is_unordered && a.type.is_floating() ? tolerance(a) : 0;
  for_each_position(a, [&](std::int64_t p) {
    const bool in_a = is_defined(a.state[p]), in_b = is_defined(b.state[p]);
    if (!in_a && !in_b) return;
    const Cell x = load_element(a, p), y = load_element(b, p);
    if (in_a == in_b && (is_unordered ? close(a.type, x, y, allowed) : same(a.type, x, y))) return;
    if (in_a != in_b && is_unordered) return;
    const std::uint32_t site = in_a ? a.state[p] : b.state[p];
    const Loc& at = site >= first_site ? program.sites[site - first_site] : program.signature->kernel().at;
    throw ProgramError(
        fmt::format(
            "the result depends on the order in which blocks and parallel iterations run: {} is {} in "
            "one order and {} in another; give every element one owner, or give accumulate() an order",
            first.element_text(a, p), in_a ? text(a.type, x) : "not written",
            in_b ? text(a.type, y) : "not written"),
        at);
  });
}

}  // namespace

std::vector<bool> unordered_buffers(const Signature& signature) {
  Spread spread(signature.kernel());
  spread.run();
  std::vector<bool> result;
  for (const BufferPtr& buffer : signature.buffers()) result.push_back(spread.reaches(buffer.get()));
  return result;
}

void check_same(const Program& program, const std::vector<bool>& is_unordered, const Machine& first,
                const Machine& second) {
  for (std::size_t i = 0; i < is_unordered.size(); ++i) {
    const Memory& memory = first.memory(i);
    const ir::Role role = memory.buffer->role;
    if (role != ir::Role::output && role != ir::Role::inout) continue;
    check_tensor(program, is_unordered[i], first, memory, second.memory(i));
  }
}

}  // namespace tegula::interp
