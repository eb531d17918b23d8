// Operations on whole tiles.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "interp/machine.hpp"
#include "interp/nodes.hpp"
#include "ir/tf32.hpp"

namespace tegula::interp {
namespace {

// One side of an element-by-element operation.
struct Side {
  Memory& memory;
  const ResolvedView& view;

  Side(Machine& m, const PreparedView& prepared)
      : memory(m.buffer(prepared.buffer)), view(m.resolve(prepared)) {}

  // For operations that need every element: only copies may reach outside of a tile.
  Side(Machine& m, const PreparedView& prepared, const Node& node) : Side(m, prepared) {
    if (view.empty) m.fail_outside(prepared, node.at());
  }
};

// Calls f(position of a, position of b, index) for every index; a position not in its view is `outside`.
template <class F>
void for_each_pair(const std::vector<std::int64_t>& extents, const ResolvedView& a, const ResolvedView& b,
                   const F& f) {
  const std::size_t rank = extents.size();
  std::array<std::int64_t, 8> index{};
  std::int64_t remaining = 1;
  for (const std::int64_t extent : extents) remaining *= extent;
  while (remaining-- > 0) {
    std::int64_t at_a = a.base, at_b = b.base;
    bool in_a = !a.empty, in_b = !b.empty;
    for (std::size_t d = 0; d < rank; ++d) {
      in_a &= index[d] >= a.axes[d].low && index[d] < a.axes[d].high;
      in_b &= index[d] >= b.axes[d].low && index[d] < b.axes[d].high;
      at_a += index[d] * a.axes[d].step;
      at_b += index[d] * b.axes[d].step;
    }
    f(in_a ? at_a : outside, in_b ? at_b : outside);
    for (std::size_t d = rank; d-- > 0;) {
      if (++index[d] < extents[d]) break;
      index[d] = 0;
    }
  }
}

// Conversion between types of one kind, or of several as a cast does.
Cell converted(DType from, DType to, const Cell& cell) {
  if (cell.cause != 0 || compute_type(from) == compute_type(to)) return cell;
  return cell_of(ir::convert(compute_type(to), value_of(from, cell)));
}

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

Cell identity(ir::ReduceOp op, DType type) {
  const bool floating = type.is_floating();
  const double infinity = std::numeric_limits<double>::infinity();
  const bool is_natural = type.kind() == Kind::natural;
  const std::int64_t bits = compute_type(type).bits();
  const std::int64_t most = is_natural   ? std::numeric_limits<std::uint32_t>::max()
                            : bits == 64 ? std::numeric_limits<std::int64_t>::max()
                                         : std::numeric_limits<std::int32_t>::max();
  switch (op) {
    case ir::ReduceOp::max:
      return floating ? real_cell(-infinity) : integer_cell(is_natural ? 0 : -most - 1);
    case ir::ReduceOp::min:
      return floating ? real_cell(infinity) : integer_cell(most);
    case ir::ReduceOp::all:
      return integer_cell(1);
    default:
      return floating ? real_cell(0) : integer_cell(0);
  }
}

ir::Value reduced(ir::ReduceOp op, const ir::Value& sum, const ir::Value& value, bool* overflow) {
  const auto apply = [&](ir::Op operation, const ir::Value& a, const ir::Value& b) {
    const ir::Value operands[] = {a, b};
    return ir::apply(operation, sum.type, operands, overflow);
  };
  switch (op) {
    case ir::ReduceOp::sum:
      return apply(ir::Op::add, sum, value);
    case ir::ReduceOp::max:
      return apply(ir::Op::max, sum, value);
    case ir::ReduceOp::min:
      return apply(ir::Op::min, sum, value);
    case ir::ReduceOp::absmax:
      return apply(ir::Op::max, sum,
                   value.type.kind() == Kind::natural
                       ? value
                       : ir::apply(ir::Op::abs, sum.type, std::span(&value, 1), overflow));
    case ir::ReduceOp::any:
      return apply(ir::Op::logical_or, sum, value);
    default:
      return apply(ir::Op::logical_and, sum, value);
  }
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

Flow ReduceNode::run(Machine& m) const {
  const Side source(m, *from, *this), target(m, *to, *this);
  // Rows of `from` along `dim`, one for each element of `to`.
  ResolvedView rows = source.view;
  const ResolvedView::Axis along = rows.axes[dim];
  for (std::size_t d = dim; d + 1 < rows.axes.size(); ++d) rows.axes[d] = rows.axes[d + 1];
  const std::int64_t length = from->extents[dim];
  const DType held = compute_type(to_type);
  for_each_pair(to->extents, rows, target.view, [&](std::int64_t p, std::int64_t q) {
    const Cell first = overwrite
                           ? identity(op, to_type)
                           : m.read_valid(target.memory, q, "an element that a reduction adds to", *this);
    ir::Value sum = value_of(held, first);
    bool overflow = false;
    for (std::int64_t i = 0; i < length; ++i) {
      const Cell cell =
          m.read_valid(source.memory, p + i * along.step, "an element that a reduction reads", *this);
      sum = reduced(op, sum, value_of(held, converted(from_type, to_type, cell)), &overflow);
    }
    if (overflow) {
      m.fail(fmt::format("the sum in {} does not fit {}; use a wider type", m.element_text(target.memory, q),
                         held.name()),
             at());
    }
    m.write(target.memory, q, cell_of(sum), *this);
  });
  return Flow::next;
}

namespace {

// The elements that a scan passes, of one of its views: element i is `step` times i behind the first.
struct ScannedRow {
  Memory* memory = nullptr;
  std::int64_t first = 0, step = 0;
  std::int64_t operator[](std::int64_t i) const { return first + i * step; }
};

// Where there are `starts`, the sum begins anew at every one that is not 0.
void scan_row(Machine& m, const ScanNode& n, const ScannedRow& from, const ScannedRow& to,
              const ScannedRow* starts) {
  const DType held = compute_type(n.to_type);
  const ir::Value none = value_of(held, identity(n.op, n.to_type));
  const std::int64_t length = n.from->extents[n.dim];
  ir::Value total = none;
  bool overflow = false;
  for (std::int64_t step = 0; step < length; ++step) {
    const std::int64_t i = n.reverse ? length - 1 - step : step;
    if (starts) {
      const Cell mark = m.read_valid(*starts->memory, (*starts)[i], "a start that a scan reads", n);
      if (mark.integer != 0) total = none;
    }
    const Cell cell = m.read_valid(*from.memory, from[i], "an element that a scan reads", n);
    const ir::Value before = total;
    total = reduced(n.op, total, value_of(held, converted(n.from_type, n.to_type, cell)), &overflow);
    if (overflow) {
      m.fail(fmt::format("the sum in {} does not fit {}; use a wider type", m.element_text(*to.memory, to[i]),
                         held.name()),
             n.at());
    }
    m.write(*to.memory, to[i], cell_of(n.exclusive ? before : total), n);
  }
}

}  // namespace

Flow ScanNode::run(Machine& m) const {
  const Side source(m, *from, *this), target(m, *to, *this);
  std::optional<Side> marks;
  if (starts != nullptr) marks.emplace(m, *starts, *this);
  // The first elements of the rows along `dim`; the other views step in the same way.
  const auto first_of = [&](ResolvedView view) {
    for (std::size_t d = dim; d + 1 < view.axes.size(); ++d) view.axes[d] = view.axes[d + 1];
    return view;
  };
  const auto row_of = [&](const Side& side, std::int64_t first) {
    return ScannedRow{&side.memory, first, side.view.axes[dim].step};
  };
  std::vector<std::int64_t> extents = from->extents;
  extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(dim));
  std::vector<ScannedRow> rows_of_marks;
  if (marks)
    for_each_pair(extents, first_of(marks->view), first_of(marks->view),
                  [&](std::int64_t p, std::int64_t) { rows_of_marks.push_back(row_of(*marks, p)); });
  std::size_t row = 0;
  for_each_pair(extents, first_of(source.view), first_of(target.view), [&](std::int64_t p, std::int64_t q) {
    scan_row(m, *this, row_of(source, p), row_of(target, q), marks ? &rows_of_marks[row++] : nullptr);
  });
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
