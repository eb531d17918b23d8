#include "lang/builder.hpp"

namespace tegula::lang {

namespace {

ir::Expr plus(const ir::Expr& a, const ir::Expr& b, const Loc& at) {
  if (ir::is_constant(a, 0)) return b;
  if (ir::is_constant(b, 0)) return a;
  if (ir::is_constant(a) && ir::is_constant(b))
    return ir::int32(ir::constant_value(a) + ir::constant_value(b), at);
  return ir::make(ir::Op::add, i32, {a, b}, at);
}

ir::Expr difference(const ir::Expr& a, const ir::Expr& b, const Loc& at) {
  if (ir::is_constant(b, 0)) return a;
  if (ir::is_constant(a) && ir::is_constant(b))
    return ir::int32(ir::constant_value(a) - ir::constant_value(b), at);
  return ir::make(ir::Op::sub, i32, {a, b}, at);
}

ir::Expr tightest(ir::Op op, const ir::Expr& a, const ir::Expr& b, const Loc& at) {
  if (!a || ir::equal(a, b)) return b;
  if (ir::is_constant(a) && ir::is_constant(b)) {
    auto x = ir::constant_value(a), y = ir::constant_value(b);
    return ir::int32(op == ir::Op::max ? std::max(x, y) : std::min(x, y), at);
  }
  return ir::make(op, i32, {a, b}, at);
}

void check_tile_range(const ir::View& view, int axis, const ir::Expr& begin, const ir::Expr& end,
                      const Loc& at) {
  if (!ir::is_constant(begin) || !ir::is_constant(end)) fail(at, "a range of a tile must have constant ends");
  auto lo = ir::constant_value(begin), hi = ir::constant_value(end);
  if (lo < 0 || hi <= lo || hi > view.extent(axis))
    fail(at, "the range " + std::to_string(lo) + ":" + std::to_string(hi) + " is not inside the extent " +
                 std::to_string(view.extent(axis)) + " of the tile; take one inside of it");
}

void check_tile_index(const ir::View& view, int axis, const ir::Expr& index, const Loc& at) {
  if (ir::is_constant(index)) {
    auto i = ir::constant_value(index);
    if (i < 0 || i >= view.extent(axis))
      fail(at, "the index " + std::to_string(i) + " is outside the extent " +
                   std::to_string(view.extent(axis)) + " of the tile; take one inside of it");
  } else if (view.buffer->space == ir::Space::fragment) {
    fail(at,
         "a Fragment can only be sliced at constants, because it is in registers; keep the data in a Shared "
         "tile");
  }
}

}  // namespace

bool is_host(const ir::Expr& e) {
  if (e->op == ir::Op::variable) return ir::is_host(e->variable->kind);
  for (auto& arg : e->args)
    if (!is_host(arg)) return false;
  return true;
}

ir::Expr use_integer(const char* what, const Operand& value) {
  auto type = compute_type(value.type());
  if (!type.is_integer())
    fail(value.at, std::string(what) + " must be an integer, got " + std::string(value.type().name()) +
                       "; cast it with i32(x)");
  auto node = Builder::current(value.at).use(value, i32, value.at);
  return node->held() == i32 ? node : ir::make(ir::Op::cast, i32, {node}, value.at);
}

std::string shape_text(const ir::View& view) {
  std::string text = "[";
  for (auto& extent : view.extents) {
    if (text.size() > 1) text += ", ";
    if (ir::is_constant(extent))
      text += std::to_string(ir::constant_value(extent));
    else
      text += extent->op == ir::Op::variable ? extent->variable->name : std::string("…");
  }
  return text + "]";
}

std::string described(const ir::View& view) {
  if (!view.is_tile()) return "`" + view.buffer->name + "`";
  return "the tile declared at " + short_location(view.buffer->at);
}

std::string counted(int number, const char* one, const char* several) {
  return std::to_string(number) + " " + (number == 1 ? one : several);
}

ir::View slice_view(const ir::View& view, const std::vector<Subscript>& subscripts, const Loc& at) {
  for (std::size_t d = view.extents.size(); d < subscripts.size(); ++d)
    if (!std::holds_alternative<All>(subscripts[d].what))
      fail(at, described(view) + " has rank " + std::to_string(view.rank()) + "; slice() got more arguments");
  ir::View result{view.buffer, view.shape, view.dims, {}};
  for (auto& dim : result.dims) {
    if (dim.axis < 0) continue;
    auto axis = static_cast<std::size_t>(dim.axis);
    const auto& subscript =
        axis < subscripts.size() ? subscripts[axis].what : std::variant<All, Range, Operand>(All{});
    if (auto* index = std::get_if<Operand>(&subscript)) {
      auto i = use_integer("an index of slice()", *index);
      if (view.is_tile()) check_tile_index(view, dim.axis, i, at);
      dim.offset = plus(dim.offset, i, at);
      dim.axis = -1;
    } else if (auto* range = std::get_if<Range>(&subscript)) {
      auto begin = use_integer("the start of a range", range->begin),
           end = use_integer("the end of a range", range->end);
      if (view.is_tile()) check_tile_range(view, dim.axis, begin, end, at);
      dim.low = tightest(ir::Op::max, dim.low, plus(dim.offset, begin, at), at);
      dim.high = tightest(ir::Op::min, dim.high, plus(dim.offset, end, at), at);
      dim.offset = plus(dim.offset, begin, at);
    }
  }
  std::vector<int> new_axis(view.extents.size(), -1);
  for (std::size_t axis = 0; axis < view.extents.size(); ++axis) {
    const auto& subscript =
        axis < subscripts.size() ? subscripts[axis].what : std::variant<All, Range, Operand>(All{});
    if (std::holds_alternative<Operand>(subscript)) continue;
    new_axis[axis] = static_cast<int>(result.extents.size());
    auto* range = std::get_if<Range>(&subscript);
    result.extents.push_back(range ? difference(use_integer("the end of a range", range->end),
                                                use_integer("the start of a range", range->begin), at)
                                   : view.extents[axis]);
  }
  for (auto& dim : result.dims)
    if (dim.axis >= 0) dim.axis = new_axis[static_cast<std::size_t>(dim.axis)];
  return result;
}

ir::View shift_view(const ir::View& view, const std::vector<Operand>& offsets, const Loc& at) {
  if (static_cast<int>(offsets.size()) > view.rank())
    fail(at, described(view) + " has rank " + std::to_string(view.rank()) + " here; at() got " +
                 std::to_string(offsets.size()) + " offsets; use slice() to drop dimensions");
  ir::View result = view;
  for (auto& dim : result.dims)
    if (dim.axis >= 0 && dim.axis < static_cast<int>(offsets.size()))
      dim.offset =
          plus(dim.offset, use_integer("an offset", offsets[static_cast<std::size_t>(dim.axis)]), at);
  return result;
}

}  // namespace tegula::lang
