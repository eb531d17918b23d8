// Operations along the rows of tiles: reductions and scans.
#include <fmt/format.h>

#include <limits>
#include <optional>

#include "interp/nodes.hpp"
#include "interp/sides.hpp"

namespace tegula::interp {

namespace {

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

}  // namespace tegula::interp
