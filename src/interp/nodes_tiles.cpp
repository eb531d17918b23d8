// Operations on whole tiles.
#include <fmt/format.h>

#include <cmath>

#include "interp/nodes.hpp"
#include "interp/sides.hpp"
#include "ir/tf32.hpp"

namespace tegula::interp {
namespace {

void copy_element(Machine& m, const Side& from, std::int64_t p, const Side& to, std::int64_t q,
                  const Cell& fill, const Node& node) {
  if (q == outside) return;
  Cell value = fill;
  if (p != outside) value = m.read(from.memory, p, node);
  if (value.cause != 0 && !to.memory.buffer->is_tile()) {
    m.fail_invalid("the value copied to a tensor", value.cause, node.at());
  }
  m.write(to.memory, q, converted(from.memory.type, to.memory.type, value), node);
}

}  // namespace

Flow CopyNode::run(Machine& m) const {
  m.execute(code);
  const Side source(m, *from), target(m, *to);
  const Cell filled = m[fill];
  for_each_pair(extents, source.view, target.view, [&](std::int64_t p, std::int64_t q) {
    copy_element(m, source, p, target, q, filled, *this);
  });
  return Flow::next;
}

Flow GatherNode::run(Machine& m) const {
  m[index] = integer_cell(0);
  m.open({&names, &index});
  std::vector<std::int64_t> extents = to->extents;
  const std::int64_t rows = extents[0];
  extents[0] = 1;
  for (std::int64_t i = 0; i < rows; ++i) {
    m[index] = integer_cell(i);
    m.begin_scope(scope);
    m.run_body(body);
    m.execute(code);
    const std::int64_t looked_up = m.integer(row, "the row of gather()", at());
    ResolvedView source = m.resolve(*from), target = m.resolve(*to);
    source.empty |= looked_up < source.axes[0].low || looked_up >= source.axes[0].high;
    source.base += looked_up * source.axes[0].step;
    source.axes[0] = {0, 0, 1};
    target.base += i * target.axes[0].step;
    target.axes[0] = {0, 0, 1};
    Cell zero;
    if (from_type.is_floating()) zero.real = 0;
    Memory &source_memory = m.buffer(from->buffer), &target_memory = m.buffer(to->buffer);
    for_each_pair(extents, source, target, [&](std::int64_t p, std::int64_t q) {
      const Cell value = p != outside ? m.read(source_memory, p, *this) : zero;
      if (q != outside) m.write(target_memory, q, converted(from_type, to_type, value), *this);
    });
  }
  m.close();
  return Flow::next;
}

Flow FillNode::run(Machine& m) const {
  m.execute(code);
  const Side target(m, *to);
  const Cell filled = m[value];
  for_each_pair(to->extents, target.view, target.view, [&](std::int64_t p, std::int64_t) {
    if (p != outside) m.write(target.memory, p, filled, *this);
  });
  return Flow::next;
}

namespace {

// The elements of a tile as a dense matrix of doubles or integers, all of which must be valid.
template <class T>
std::vector<T> matrix(Machine& m, const PreparedView& view, const char* use, const Node& node) {
  const Side side(m, view, node);
  std::vector<T> result;
  result.reserve(static_cast<std::size_t>(view.extents[0] * view.extents[1]));
  for_each_pair(view.extents, side.view, side.view, [&](std::int64_t p, std::int64_t) {
    const Cell cell = m.read_valid(side.memory, p, use, node);
    if constexpr (std::is_floating_point_v<T>)
      result.push_back(static_cast<T>(cell.real));
    else
      result.push_back(cell.integer);
  });
  return result;
}

template <class T>
void multiply_row(const T* a, const std::vector<T>& b, T* c, std::size_t k, std::size_t n) {
  for (std::size_t l = 0; l < k; ++l) {
    const T factor = a[l];
    const T* row = b.data() + l * n;
    for (std::size_t j = 0; j < n; ++j) {
      if constexpr (std::is_floating_point_v<T>)
        c[j] += factor * row[j];
      else
        c[j] = static_cast<T>(static_cast<std::uint64_t>(c[j]) +
                              static_cast<std::uint64_t>(factor) * static_cast<std::uint64_t>(row[j]));
    }
  }
}

// The two positions, of four along k, at which the values of a sparse operand stand.
std::pair<int, int> positions(Machine& m, std::int64_t metadata, std::size_t group, const GemmNode& node) {
  int code = static_cast<int>(metadata >> group % 2 * 4 & 15);
  if (code == 0) code = 4;
  const int first = code & 3, second = code >> 2;
  if (first >= second)
    m.fail(fmt::format("metadata place the two values of four at positions {} and {}, which do not increase; "
                       "gemm_sparse reads metadata in the format that compress_24 writes",
                       first, second),
           node.at());
  return {first, second};
}

// [m, k] of [m, k / 2] values and their metadata.
template <class T>
std::vector<T> expanded(Machine& m, const std::vector<T>& values, const GemmNode& node) {
  const std::vector<std::int64_t> metadata =
      matrix<std::int64_t>(m, *node.metadata, "metadata that gemm_sparse reads", node);
  std::vector<T> result(values.size() * 2);
  for (std::size_t group = 0; group < values.size() / 2; ++group) {
    const auto [first, second] = positions(m, metadata[group / 2], group, node);
    result[4 * group + static_cast<std::size_t>(first)] = values[2 * group];
    result[4 * group + static_cast<std::size_t>(second)] = values[2 * group + 1];
  }
  return result;
}

template <class T>
void add_product(const std::vector<T>& a, const std::vector<T>& b, std::vector<T>& c, std::size_t k,
                 std::size_t n) {
  for (std::size_t i = 0; n > 0 && i < c.size() / n; ++i)
    multiply_row(a.data() + i * k, b, c.data() + i * n, k, n);
}

// Rounds the numbers to the nearest of tf32, and returns what is left of them, in tf32, too.
std::vector<float> divide(std::vector<float>& numbers) {
  std::vector<float> remainders;
  remainders.reserve(numbers.size());
  for (float& x : numbers) {
    const float rounded = ir::rounded_to_tf32(x);
    remainders.push_back(std::isinf(rounded) ? 0 : ir::rounded_to_tf32(x - rounded));
    x = rounded;
  }
  return remainders;
}

template <class T>
void add_product(std::vector<T>& a, std::vector<T>& b, std::vector<T>& c, std::size_t k, std::size_t n,
                 ir::Precision precision) {
  if constexpr (std::is_same_v<T, float>) {
    if (precision != ir::Precision::ieee) {
      const std::vector<float> rest_a = divide(a), rest_b = divide(b);
      if (precision == ir::Precision::tf32x3) {
        add_product(a, rest_b, c, k, n);
        add_product(rest_a, b, c, k, n);
      }
    }
  }
  add_product(a, b, c, k, n);
}

template <class T>
void multiply(Machine& m, const GemmNode& node) {
  std::vector<T> a = matrix<T>(m, *node.a, "an element that gemm multiplies", node);
  if (node.metadata) a = expanded(m, a, node);
  std::vector<T> b = matrix<T>(m, *node.b, "an element that gemm multiplies", node);
  const auto rows = static_cast<std::size_t>(node.c->extents[0]),
             n = static_cast<std::size_t>(node.c->extents[1]);
  const auto k = static_cast<std::size_t>(node.b->extents[0]);
  std::vector<T> c =
      node.overwrite ? std::vector<T>(rows * n) : matrix<T>(m, *node.c, "an element that gemm adds to", node);
  add_product(a, b, c, k, n, node.precision);
  const Side target(m, *node.c, node);
  std::size_t next = 0;
  for_each_pair(node.c->extents, target.view, target.view, [&](std::int64_t p, std::int64_t) {
    const T value = c[next++];
    if constexpr (std::is_floating_point_v<T>) {
      m.write(target.memory, p, real_cell(value), node);
    } else {
      if (target.memory.type == i32 && value != static_cast<std::int32_t>(value)) {
        m.fail(fmt::format("the sum of gemm in {} does not fit i32; scale the operands",
                           m.element_text(target.memory, p)),
               node.at());
      }
      m.write(target.memory, p, integer_cell(value), node);
    }
  });
}

}  // namespace

Flow GemmNode::run(Machine& m) const {
  const DType type = m.buffer(c->buffer).type;
  if (type == f64)
    multiply<double>(m, *this);
  else if (type.is_floating())
    multiply<float>(m, *this);
  else
    multiply<std::int64_t>(m, *this);
  return Flow::next;
}

Flow AccumulateNode::run(Machine& m) const {
  m.execute(code);
  const Side source(m, *tile, *this), target(m, *to);
  Machine::Contribution contribution{0, to->buffer, this, op, consecutive, overwrites, {}, {}, {}};
  if (ordered) {
    contribution.order = m.integer(order, "the order of accumulate()", at());
    contribution.place = m.place_text();
  }
  for_each_pair(tile->extents, source.view, target.view, [&](std::int64_t p, std::int64_t q) {
    if (q == outside) return;
    const Cell cell = m.read_valid(source.memory, p, "an element that accumulate() adds", *this);
    const Cell value = converted(source.memory.type, target.memory.type, cell);
    m.note_combine(target.memory, q, *this);
    if (ordered) {
      contribution.positions.push_back(q);
      contribution.values.push_back(value);
    } else {
      m.combine(op, target.memory, q, value, *this);
    }
  });
  if (ordered) m.contribute(std::move(contribution));
  return Flow::next;
}

}  // namespace tegula::interp
