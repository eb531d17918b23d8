// Elements of tensors and tiles, one at a time or by vectors, never outside the bounds.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

std::string all_of(const std::vector<std::string>& conditions) {
  std::string result;
  for (const std::string& condition : conditions) result += (result.empty() ? "" : " && ") + condition;
  return result;
}

std::string offset_text(const std::string& pointer, const std::vector<std::string>& terms) {
  const std::string sum = sum_text(terms);
  return sum == "0" ? pointer : pointer + " + " + sum;
}

std::string scaled(const std::string& index, const std::string& stride) {
  if (index == "0" || stride == "0") return "0";
  return stride == "1" ? index : fmt::format("{} * {}", index, stride);
}

// Whether one instruction reaches the lanes of an access: elements of 32 bits, of a tile, counted in as many.
bool is_gathered(const BufferPtr& buffer, const std::vector<Expr>& at) {
  const DType type = compute_type(buffer->type);
  return buffer->is_tile() && type != f64 && type != i64 &&
         std::all_of(at.begin(), at.end(), [](const Expr& coordinate) { return coordinate->type == i32; });
}

}  // namespace

std::string GridPrinter::pointer_name(const BufferPtr& buffer) const {
  const auto found = pointers_.find(buffer.get());
  internal_assert(found != pointers_.end(), "a tile is used outside its scope", buffer->at);
  return found->second;
}

std::string GridPrinter::extent_text(const View& view, int dim) {
  const Expr& extent = view.shape[static_cast<std::size_t>(dim)];
  if (is_constant(extent)) return std::to_string(constant_value(extent));
  if (!view.is_tile() && !is_reshaped(view)) return fmt::format("{}n{}", pointer_name(view.buffer), dim);
  return as_long(extent);
}

std::string GridPrinter::stride_text(const View& view, int dim) {
  if (!is_reshaped(view)) {
    if (!view.is_tile()) return fmt::format("{}s{}", pointer_name(view.buffer), dim);
    const bool dense = uses_.dense.contains(view.buffer.get());
    return std::to_string(tile_strides(*view.buffer, dense)[static_cast<std::size_t>(dim)]);
  }
  std::int64_t known = 1;
  std::string text;
  for (std::size_t d = static_cast<std::size_t>(dim) + 1; d < view.shape.size(); ++d) {
    if (is_constant(view.shape[d]))
      known *= constant_value(view.shape[d]);
    else
      text += " * " + as_long(view.shape[d]);
  }
  return text.empty() ? std::to_string(known) : fmt::format("({}{})", known, text);
}

bool GridPrinter::is_inside(const View& view, int dim, const Interval& range) const {
  const Expr& extent = view.shape[static_cast<std::size_t>(dim)];
  const ViewDim& d = view.dims[static_cast<std::size_t>(dim)];
  if (!is_constant(extent) || range.low < 0 || range.high >= constant_value(extent)) return false;
  if (d.low && bounds(d.low, facts_).high > range.low) return false;
  return !d.high || bounds(d.high, facts_).low > range.high;
}

// The conditions under which a coordinate exists; none if that is known.
std::vector<std::string> GridPrinter::limits(const View& view, int dim, const std::string& coordinate,
                                             const Interval& range) {
  if (is_inside(view, dim, range)) return {};
  const ViewDim& d = view.dims[static_cast<std::size_t>(dim)];
  Terms result;
  if (range.low < 0) result.push_back(fmt::format("{} >= 0", coordinate));
  result.push_back(fmt::format("{} < {}", coordinate, extent_text(view, dim)));
  if (d.low && !is_constant(d.low, 0)) result.push_back(fmt::format("{} >= {}", coordinate, as_long(d.low)));
  if (d.high && !equal(d.high, view.shape[static_cast<std::size_t>(dim)])) {
    result.push_back(fmt::format("{} < {}", coordinate, as_long(d.high)));
  }
  return result;
}

Address GridPrinter::address(const Access& access) {
  const std::vector<Expr> at = coordinates(access);
  int lane_dim = -1, lanes = 0;
  bool regular = true;
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!varies(at[d])) continue;
    ++lanes;
    lane_dim = static_cast<int>(d);
    regular = regular && lane_factor(at[d]) == 1;
  }
  if (lanes == 1 && regular) return row_address(access, at, lane_dim);
  if (lanes > 0) return scattered_address(access, at);
  Address result;
  Terms terms, guards;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const int dim = static_cast<int>(d);
    const std::string text = as_long(at[d]);
    for (std::string& limit : limits(access.view, dim, text, bounds(at[d], facts_)))
      guards.push_back(std::move(limit));
    terms.push_back(scaled(text, stride_text(access.view, dim)));
  }
  result.pointer = offset_text(pointer_name(access.view.buffer), terms);
  result.guard = all_of(guards);
  return result;
}

void GridPrinter::limit_lanes(const View& view, int dim, const std::string& first, Address& row) {
  const ViewDim& limit = view.dims[static_cast<std::size_t>(dim)];
  row.begin = fmt::format("0 - {}", first);
  row.end = fmt::format("{} - {}", extent_text(view, dim), first);
  if (limit.low)
    row.begin = fmt::format("max(int64_t({}), int64_t({} - {}))", row.begin, as_long(limit.low), first);
  if (limit.high)
    row.end = fmt::format("min(int64_t({}), int64_t({} - {}))", row.end, as_long(limit.high), first);
}

Address GridPrinter::row_address(const Access& access, const std::vector<Expr>& at, int lane_dim) {
  Address result;
  result.kind = Address::Kind::row;
  Terms terms, guards;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const int dim = static_cast<int>(d);
    const bool is_lane = dim == lane_dim;
    const std::string text = is_lane ? fmt::format("long({})", at_first_lane(at[d])) : as_long(at[d]);
    const std::string stride = stride_text(access.view, dim);
    terms.push_back(scaled(text, stride));
    const Interval range = bounds(at[d], facts_);
    if (!is_lane) {
      for (std::string& limit : limits(access.view, dim, text, range)) guards.push_back(std::move(limit));
      continue;
    }
    result.step = stride;
    const Expr& extent = access.view.shape[d];
    const bool own = is_lane_index(at[d]);
    // The lanes' number is known: one that is at most the row's may leave elements of the row as they are.
    const bool whole = is_constant(extent) && is_constant(lane_->extent) &&
                       constant_value(lane_->extent) == constant_value(extent);
    result.own_padding = own && access.view.is_tile() && stride == "1" && whole &&
                         !uses_.dense.contains(access.view.buffer.get());
    if (!is_inside(access.view, dim, range)) limit_lanes(access.view, dim, text, result);
  }
  result.pointer = offset_text(pointer_name(access.view.buffer), terms);
  result.guard = all_of(guards);
  if (!lane_->active.empty()) {
    result.end = result.end.empty() ? lane_->active
                                    : fmt::format("min(int64_t({}), int64_t({}))", result.end, lane_->active);
  }
  return result;
}

// The lanes of a coordinate, as a vector that has a name. Extents of tensors may need 64 bits, so that is
// where theirs are compared; a tile's elements are counted in 32.
std::string GridPrinter::lanes_of(const Expr& coordinate, bool in_tile) {
  const std::string name = names_.unique("at"), text = bare(vector(coordinate));
  out_.line(in_tile ? fmt::format("const vi {} = {};", name, text)
                    : fmt::format("const vl {} = to_i64({});", name, text));
  return name;
}

Address GridPrinter::scattered_address(const Access& access, const std::vector<Expr>& at) {
  Address result;
  result.kind = Address::Kind::scattered;
  result.where = lane_->active.empty() ? "splat(true)" : fmt::format("lanes_below({})", lane_->active);
  const bool in_tile = is_gathered(access.view.buffer, at);
  Terms terms, lanes, guards;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const int dim = static_cast<int>(d);
    const std::string stride = stride_text(access.view, dim);
    const Interval range = bounds(at[d], facts_);
    if (!varies(at[d])) {
      const std::string text = as_long(at[d]);
      for (std::string& limit : limits(access.view, dim, text, range)) guards.push_back(std::move(limit));
      terms.push_back(scaled(text, stride));
      continue;
    }
    const std::string name = lanes_of(at[d], in_tile);
    for (const std::string& limit : limits(access.view, dim, name, range)) {
      const std::size_t space = limit.find(' ', name.size() + 1);
      result.where += fmt::format(" & ({} splat({}({})))", limit.substr(0, space),
                                  in_tile ? "int32_t" : "int64_t", limit.substr(space + 1));
    }
    lanes.push_back(scaled(in_tile ? name : fmt::format("lane({}, i)", name), stride));
  }
  result.pointer = offset_text(pointer_name(access.view.buffer), terms);
  if (in_tile)
    result.lanes = sum_text(lanes);
  else
    result.of_lane = offset_text(result.pointer, lanes);
  if (!guards.empty()) result.where = fmt::format("({}) & splat({})", result.where, all_of(guards));
  return result;
}

std::string GridPrinter::load_single(const BufferPtr& buffer, const Address& at) {
  std::string text;
  if (!buffer->is_tile())
    text = fmt::format("load1({})", at.pointer);
  else
    text = buffer->type.is_boolean() ? fmt::format("(*({}) != 0)", at.pointer)
                                     : fmt::format("*({})", at.pointer);
  if (at.guard.empty()) return text;
  return fmt::format("({} ? {} : {}(0))", at.guard, text, scalar_type(buffer->type));
}

std::string GridPrinter::load_row(const BufferPtr& buffer, const Address& at) {
  const std::string zero = fmt::format("{}{{}}", vector_type(buffer->type));
  std::string text;
  if (buffer->is_tile() && at.step == "1" && at.begin.empty()) {
    text = fmt::format("load({})", at.pointer);  // tiles have room after them
    if (at.end != lane_->active) text = fmt::format("load_n({}, {})", at.pointer, at.end);
  } else {
    text = fmt::format("load_step({}, {}, {}, {})", at.pointer, at.step, at.begin.empty() ? "0" : at.begin,
                       at.end.empty() ? "W" : at.end);
  }
  return at.guard.empty() ? text : fmt::format("({} ? {} : {})", at.guard, text, zero);
}

// The terms of a place in a tile where one contiguous index alone differs from lane to lane: `take` adds its
// term, if it is of the kind that is wanted.
std::optional<GridPrinter::Terms> GridPrinter::terms_of_lanes(const Access& access, const TakeLanes& take) {
  const std::vector<Expr> at = coordinates(access);
  bool taken = false;
  Terms terms;
  for (std::size_t d = 0; d < at.size(); ++d) {
    const int dim = static_cast<int>(d);
    if (!is_inside(access.view, dim, bounds(at[d], facts_))) return std::nullopt;
    const std::string stride = stride_text(access.view, dim);
    if (!varies(at[d])) {
      terms.push_back(scaled(as_long(at[d]), stride));
      continue;
    }
    if (taken || stride != "1" || !take(at[d], terms)) return std::nullopt;
    taken = true;
  }
  return taken ? std::optional(std::move(terms)) : std::nullopt;
}

bool GridPrinter::is_lane_index(const Expr& e) const {
  return e->op == Op::variable && e->variable == lane_->index;
}

// Lanes that share elements of a tile: index / 4, as of numbers of 8 bits that are packed in words.
std::optional<std::string> GridPrinter::load_spread_text(const Access& access) {
  const BufferPtr& buffer = access.view.buffer;
  if (!buffer->is_tile() || buffer->type.is_boolean()) return std::nullopt;
  std::int64_t shared = 0;
  const auto terms = terms_of_lanes(access, [&](const Expr& at, Terms& all) {
    const Expr index = expanded(at);
    shared = is_division(index) ? power_of_two_divisor(index).value_or(1) : 1;
    if (shared < 2 || !is_lane_index(index->args[0])) return false;
    all.push_back(fmt::format("long({})", at_first_lane(at)));
    return true;
  });
  if (!terms) return std::nullopt;
  return fmt::format("load_spread<{}>({})", shared, offset_text(pointer_name(buffer), *terms));
}

// Lanes that exchange elements of a tile: index ^ 4, as of sums and differences of neighbours.
std::optional<std::string> GridPrinter::load_exchanged_text(const Access& access) {
  const BufferPtr& buffer = access.view.buffer;
  if (!is_gathered(buffer, coordinates(access)) || buffer->type.is_boolean()) return std::nullopt;
  std::int64_t exchanged = 0;
  const auto terms = terms_of_lanes(access, [&](const Expr& at, Terms&) {
    const Expr index = expanded(at);
    if (index->op != Op::bit_xor || !is_constant(index->args[1])) return false;
    exchanged = constant_value(index->args[1]);
    return is_lane_index(index->args[0]) && exchanged >= 1;
  });
  if (!terms) return std::nullopt;
  return fmt::format("load_exchanged<{}>({}, {})", exchanged, offset_text(pointer_name(buffer), *terms),
                     lane_->first);
}

std::string GridPrinter::load_text(const Access& access) {
  if (is_narrow(access)) return fmt::format("load_narrow({})", narrow_place(access));
  if (const auto text = load_spread_text(access)) return *text;
  if (const auto text = load_exchanged_text(access)) return *text;
  const Address at = address(access);
  const BufferPtr& buffer = access.view.buffer;
  switch (at.kind) {
    case Address::Kind::single:
      return load_single(buffer, at);
    case Address::Kind::row:
      return whole_.contains(&access) ? load_whole(access, at) : load_row(buffer, at);
    default:
      if (!at.lanes.empty()) return fmt::format("gather_lanes({}, {}, {})", at.pointer, at.where, at.lanes);
      return fmt::format("load_lanes({}, {}, [&](int i) {{ return {}; }})", pointer_name(buffer), at.where,
                         at.of_lane);
  }
}

void GridPrinter::store_row(const BufferPtr& buffer, const Address& at, const std::string& value) {
  const bool tile = buffer->is_tile() && at.step == "1" && at.begin.empty();
  const bool partial = !at.end.empty() && !at.own_padding;
  std::string text;
  if (tile && mask_.empty()) {
    text = partial ? fmt::format("store_n({}, {}, {});", at.pointer, value, at.end)
                   : fmt::format("store({}, {});", at.pointer, value);
  } else if (tile) {
    // Lanes that do not take part keep what they have; a tile belongs to one block.
    const std::string mask = partial ? fmt::format("({} & lanes_below({}))", mask_, at.end) : mask_;
    text = fmt::format("store({0}, select({1}, {2}, load({0})));", at.pointer, mask, value);
  } else {
    text = fmt::format("store_step({}, {}, {}, {}, {}, {});", at.pointer, at.step, value,
                       mask_.empty() ? "splat(true)" : mask_, at.begin.empty() ? "0" : at.begin,
                       at.end.empty() ? "W" : at.end);
  }
  out_.line(at.guard.empty() ? text : fmt::format("if ({}) {}", at.guard, text));
}

void GridPrinter::store(const Access& access, const std::string& value, bool value_is_rounded) {
  const BufferPtr& buffer = access.view.buffer;
  const Address at = address(access);
  std::string stored = buffer->is_tile() && !value_is_rounded ? rounded(buffer->type, value) : value;
  if (whole_.contains(&access)) return store_whole(buffer, at, stored);
  if (at.kind == Address::Kind::row) return store_row(buffer, at, stored);
  if (at.kind == Address::Kind::scattered || lane_) {
    std::string where = at.where;
    if (where.empty())
      where = lane_->active.empty() ? "splat(true)" : fmt::format("lanes_below({})", lane_->active);
    if (!mask_.empty()) where = fmt::format("({}) & {}", where, mask_);
    const std::string target = at.of_lane.empty() ? at.pointer : at.of_lane;
    const std::string text =
        at.lanes.empty() ? fmt::format("store_lanes({}, {}, {}, [&](int i) {{ (void)i; return {}; }});",
                                       pointer_name(buffer), stored, where, target)
                         : fmt::format("scatter_lanes({}, {}, {}, {});", at.pointer, stored, where, at.lanes);
    out_.line(at.guard.empty() ? text : fmt::format("if ({}) {}", at.guard, text));
    return;
  }
  std::string text;
  if (!buffer->is_tile())
    text = fmt::format("store1({}, {});", at.pointer, stored);
  else
    text = fmt::format("*({}) = {}{};", at.pointer, buffer->type.is_boolean() ? "-int32_t" : "",
                       buffer->type.is_boolean() ? "(" + stored + ")" : stored);
  out_.line(at.guard.empty() ? text : fmt::format("if ({}) {}", at.guard, text));
}

void GridPrinter::clip_axis(const View& view, int dim, const std::string& offset, const std::string& extent,
                            MemoryAxis& axis) {
  const ViewDim& d = view.dims[static_cast<std::size_t>(dim)];
  std::string low = "0", high = extent_text(view, dim);
  if (d.low && !is_constant(d.low, 0)) low = fmt::format("max(int64_t(0), int64_t({}))", as_long(d.low));
  if (d.high && !equal(d.high, view.shape[static_cast<std::size_t>(dim)])) {
    high = fmt::format("min(int64_t({}), int64_t({}))", high, as_long(d.high));
  }
  axis.first = names_.unique("first");
  axis.last = names_.unique("last");
  out_.line(fmt::format("const long {} = first_inside({}, {}, {});", axis.first, low, offset, extent));
  out_.line(fmt::format("const long {} = last_inside({}, {}, {});", axis.last, high, offset, extent));
}

MemoryView GridPrinter::memory(const View& view, const std::vector<std::string>& extents) {
  MemoryView result;
  result.axes.resize(extents.size(), {"0", "0", ""});
  for (std::size_t i = 0; i < extents.size(); ++i) result.axes[i].last = extents[i];
  Terms terms, conditions;
  for (std::size_t d = 0; d < view.dims.size(); ++d) {
    const int dim = static_cast<int>(d);
    const ViewDim& shown = view.dims[d];
    std::string offset = as_long(shown.offset);
    const std::string stride = stride_text(view, dim);
    const Interval range = bounds(shown.offset, facts_);
    const std::int64_t length = view.is_tile() && shown.axis >= 0 ? view.extent(shown.axis) : 1;
    const std::int64_t last = range.high > INT64_MAX - length ? INT64_MAX : range.high + length - 1;
    if (view.is_tile() && !is_inside(view, dim, {range.low, last})) {
      // Outside the tile any value may be used, but no other memory.
      offset = fmt::format("clamp_index({}, 0, {})", offset, constant_value(view.shape[d]) - length);
    }
    terms.push_back(scaled(offset, stride));
    if (shown.axis < 0) {
      if (!view.is_tile()) {
        for (std::string& limit : limits(view, dim, offset, range)) conditions.push_back(std::move(limit));
      }
      continue;
    }
    MemoryAxis& axis = result.axes[static_cast<std::size_t>(shown.axis)];
    axis.stride = stride;
    if (!view.is_tile()) clip_axis(view, dim, offset, extents[static_cast<std::size_t>(shown.axis)], axis);
  }
  result.base = offset_text(pointer_name(view.buffer), terms);
  result.exists = all_of(conditions);
  return result;
}

}  // namespace tegula::codegen
