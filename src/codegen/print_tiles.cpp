// Operations on whole tiles: copies, gathers, products, accumulation.
#include <fmt/format.h>

#include "codegen/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

std::vector<std::string> extent_texts(const View& tile) {
  std::vector<std::string> result;
  for (int axis = 0; axis < tile.rank(); ++axis) result.push_back(std::to_string(tile.extent(axis)));
  return result;
}

namespace {

std::string axes_text(const MemoryView& view) {
  return fmt::format("{}, {}, {}", view.base, view.axes[0].stride, view.axes[1].stride);
}

}  // namespace

std::string GridPrinter::allocate(std::int64_t bytes) {
  const std::int64_t at = scratch_;
  scratch_ = round_up(scratch_ + bytes, 64);
  scratch_peak_ = std::max(scratch_peak_, scratch_);
  return fmt::format("(scratch + {})", at);
}

// `a` is clipped, `b` is a tile.
void GridPrinter::for_matrices(MemoryView a, MemoryView b, std::vector<std::string> extents,
                               const MatrixBody& f) {
  int loops = 0;
  if (!a.exists.empty()) {
    const std::string name = names_.unique("exists");
    out_.line(fmt::format("const bool {} = {};", name, a.exists));
    a.exists = name;
  }
  while (a.axes.size() < 2) {
    a.axes.insert(a.axes.begin(), {"0", "0", "1"});
    b.axes.insert(b.axes.begin(), {"0", "0", "1"});
    extents.insert(extents.begin(), "1");
  }
  while (a.axes.size() > 2) {
    const std::string x = names_.unique("x"), inside = names_.unique("exists");
    out_.open(fmt::format("for (long {0} = 0; {0} < {1}; ++{0}) {{", x, extents[0]));
    out_.line(fmt::format("const bool {} = {}{} >= {} && {} < {};", inside,
                          a.exists.empty() ? "" : a.exists + " && ", x, a.axes[0].first, x, a.axes[0].last));
    a.exists = inside;
    a.base += fmt::format(" + {} * {}", x, a.axes[0].stride);
    b.base += fmt::format(" + {} * {}", x, b.axes[0].stride);
    a.axes.erase(a.axes.begin());
    b.axes.erase(b.axes.begin());
    extents.erase(extents.begin());
    ++loops;
  }
  f(a, b, extents[0], extents[1]);
  for (; loops > 0; --loops) out_.close();
}

std::string GridPrinter::inside_text(const MemoryView& view) {
  const std::string last =
      view.exists.empty() ? view.axes[0].last : fmt::format("({} ? {} : 0)", view.exists, view.axes[0].last);
  return fmt::format("Inside{{{}, {}, {}, {}}}", view.axes[0].first, last, view.axes[1].first,
                     view.axes[1].last);
}

std::string GridPrinter::fill_text(const Copy& n) {
  const DType type = n.to.buffer->type;
  Expr fill = n.fill;
  if (fill == nullptr) fill = type.is_floating() ? constant(type, 0.0) : constant(compute_type(type), 0);
  if (fill->held() != type) fill = make(Op::cast, type, {fill}, fill->at);
  const std::string text = scalar(fill);
  return type.is_boolean() ? fmt::format("-int32_t({})", text) : fmt::format("{}({})", tile_type(type), text);
}

// The arguments of functions that fill panels.
std::string GridPrinter::panels_text(const Copy& n, MemoryView from) {
  const std::string type = std::string(tile_type(n.to.buffer->type));
  std::int64_t k = n.to.extent(0), columns = n.to.extent(1);
  if (uses_.panels.at(n.to.buffer.get()).transposed) {
    std::swap(from.axes[0], from.axes[1]);
    std::swap(k, columns);
  }
  return fmt::format("({}*){}, {}, {}, {}, {}, {}({}), {}", type, pointer_name(n.to.buffer), k, columns,
                     axes_text(from), inside_text(from), type, fill_text(n),
                     rounding_object(n.from.buffer->type, n.to.buffer->type));
}

// The copy of a tile that products by tile registers read.
std::string GridPrinter::narrow_text(const Copy& n, MemoryView from, const MemoryView& to) {
  const auto panel = uses_.panels.find(n.to.buffer.get());
  std::int64_t rows = n.to.extent(0), columns = n.to.extent(1);
  if (panel == uses_.panels.end()) {
    const std::string tile = pointer_name(n.to.buffer), row = to.axes[0].stride;
    const std::string first = to.base == tile ? "" : fmt::format(", ({} - {}) / {}", to.base, tile, row);
    const auto placed = placed_.find(n.to.buffer.get());
    std::string function = "load_narrow_a(call->has_tiles";
    if (placed != placed_.end())
      function = fmt::format("{} = place_narrow_a(call->has_tiles, {}.to != nullptr", placed->second.name,
                             placed->second.sums);
    return fmt::format("{}, {}, {}, {}, {}, {}, {}{});", function, tile, row, n.to.extent(n.to.rank() - 2),
                       n.to.extent(n.to.rank() - 1), axes_text(from), inside_text(from), first);
  }
  if (panel->second.transposed) {
    std::swap(from.axes[0], from.axes[1]);
    std::swap(rows, columns);
  }
  return fmt::format("load_narrow_b(call->has_tiles, {}, {}, {}, {}, {});", to.base, rows, columns,
                     axes_text(from), inside_text(from));
}

void GridPrinter::copy_in(const Copy& n, const Stmt& s) {
  const std::vector<std::string> extents = extent_texts(n.to);
  const MemoryView from = memory(n.from, extents), to = memory(n.to, extents);
  const auto panel = uses_.panels.find(n.to.buffer.get());
  for_matrices(
      from, to, extents,
      [&](const MemoryView& a, const MemoryView& b, const std::string& rows, const std::string& cols) {
        if (uses_.narrow.contains(n.to.buffer.get())) return fill_unless_kept(n, s, a, narrow_text(n, a, b));
        if (panel == uses_.panels.end()) {
          out_.line(fmt::format("load_tile({}, {}, {}, {}, {}, {}, {});", axes_text(b), rows, cols,
                                axes_text(a), inside_text(a), fill_text(n),
                                rounding_object(n.from.buffer->type, n.to.buffer->type)),
                    s->at);
          return;
        }
        const char* function = panel->second.transposed ? "load_panels_transposed" : "load_panels";
        fill_unless_kept(n, s, a, fmt::format("{}({});", function, panels_text(n, a)));
      });
}

void GridPrinter::copy_out(const Copy& n, const Loc& at) {
  const std::vector<std::string> extents = extent_texts(n.from);
  const MemoryView to = memory(n.to, extents), from = memory(n.from, extents);
  for_matrices(
      to, from, extents,
      [&](const MemoryView& a, const MemoryView& b, const std::string&, const std::string&) {
        const std::string exists = a.exists.empty() ? "" : fmt::format("if ({}) ", a.exists);
        out_.line(
            fmt::format("{}store_tile({}, {}, {});", exists, axes_text(a), axes_text(b), inside_text(a)), at);
      });
}

// What lowering has left of copies between tiles.
void GridPrinter::copy_transposed(const Copy& n, const Loc& at) {
  const std::vector<std::string> extents = extent_texts(n.to);
  const MemoryView from = memory(n.from, extents), to = memory(n.to, extents);
  internal_assert(from.axes[0].stride == "1" && to.axes[1].stride == "1",
                  "a copy between tiles was not lowered", at);
  out_.line(fmt::format("copy_transposed({}, {}, {}, {}, {}, {});", to.base, to.axes[0].stride, extents[0],
                        extents[1], from.base, from.axes[1].stride),
            at);
}

void GridPrinter::operator()(const Copy& n, const Stmt& s) {
  internal_assert(n.from.is_tile() || n.to.is_tile(), "a copy between tensors", s->at);
  if (n.from.is_tile() && n.to.is_tile()) return copy_transposed(n, s->at);
  if (stands_for_fetch(n) || made_by_others_.contains(s.get())) return;
  const auto stays = stays_.find(s.get());
  out_.open(stays == stays_.end() ? "{" : fmt::format("if ({}) {{", stays->second));
  if (n.to.is_tile())
    copy_in(n, s);
  else
    copy_out(n, s->at);
  out_.close();
}

void GridPrinter::operator()(const Fill&, const Stmt& s) {
  throw InternalError("a fill was not lowered", s->at);
}
void GridPrinter::operator()(const Reduce&, const Stmt& s) {
  throw InternalError("a reduction was not lowered", s->at);
}

namespace {

// The rows of a view become its row of this number.
void to_row(MemoryView& view, std::size_t axis, const std::string& extent, const std::string& row) {
  const MemoryAxis& own = view.axes[axis];
  view.base += fmt::format(" + {} * {}", row, own.stride);
  if (own.first == "0" && own.last == extent) return;
  const char* and_others = view.exists.empty() ? "" : " && ";
  view.exists += fmt::format("{}{} >= {} && {} < {}", and_others, row, own.first, row, own.last);
}

// A row of a tile or of a tensor, as an argument of a scan.
std::string scanned_row(const View& view, const MemoryView& row, int bytes_ahead) {
  const MemoryAxis& axis = row.axes.back();
  if (view.is_tile()) return fmt::format("{}, ScannedRow{{1, 0, {}, 0}}", row.base, axis.last);
  const std::string end =
      row.exists.empty() ? axis.last : fmt::format("({} ? {} : 0)", row.exists, axis.last);
  return fmt::format("{}, ScannedRow{{{}, {}, {}, {}}}", row.base, axis.stride, axis.first, end, bytes_ahead);
}

}  // namespace

// Row by row, each by vectors; from and to tensors where copies would do no more than bring the rows.
void GridPrinter::operator()(const Scan& n, const Stmt& s) {
  static const char* const names[] = {"ScanSum", "ScanMax", "ScanMin"};
  constexpr int ahead_of_loads = 4096, ahead_of_stores = 1024;
  const auto copies = scanned_.find(s.get());
  const auto* in = copies != scanned_.end() && copies->second.in ? as<Copy>(copies->second.in) : nullptr;
  const auto* out = copies != scanned_.end() && copies->second.out ? as<Copy>(copies->second.out) : nullptr;
  const View &source = in ? in->from : n.from, &target = out ? out->to : n.to;
  const std::vector<std::string> extents = extent_texts(n.to);
  out_.open("{");
  MemoryView from = memory(source, extents), to = memory(target, extents);
  for (std::size_t axis = 0; axis + 1 < extents.size(); ++axis) {
    const std::string row = names_.unique("row");
    out_.open(fmt::format("for (long {0} = 0; {0} < {1}; ++{0}) {{", row, extents[axis]));
    to_row(from, axis, extents[axis], row);
    to_row(to, axis, extents[axis], row);
  }
  const DType type = n.to.buffer->type;
  const std::string fill = in ? fill_text(*in) : fmt::format("{}(0)", tile_type(n.from.buffer->type));
  out_.line(
      fmt::format("scan_row<{}, {}, {}>({}, {}, {}, {}, {}, call->has_tiles > 0);",
                  names[static_cast<int>(n.op)], n.exclusive ? "true" : "false", n.reverse ? "true" : "false",
                  scanned_row(target, to, ahead_of_stores), scanned_row(source, from, ahead_of_loads),
                  extents.back(), fill, rounding_object(compute_type(type), type)),
      s->at);
  for (std::size_t axis = 0; axis < extents.size(); ++axis) out_.close();
}

// The rows to gather as an array, missing ones as -1.
std::string GridPrinter::gather_rows(const Gather& n, const Loc& at) {
  const std::int64_t count = n.to.extent(0);
  const std::string name = names_.unique("rows");
  out_.line(fmt::format("long* const {} = (long*){};", name, allocate(count * 8)));
  open_loop(n.index, int32(0), int32(count), at);
  body(n.body);
  int dim = 0;
  while (n.from.dims[static_cast<std::size_t>(dim)].axis != 0) ++dim;
  const ViewDim& shown = n.from.dims[static_cast<std::size_t>(dim)];
  const std::string row = names_.unique("row");
  out_.line(fmt::format("const long {} = {} + {};", row, as_long(shown.offset), as_long(n.row)));
  std::string condition;
  for (const std::string& limit : limits(n.from, dim, row, {INT64_MIN, INT64_MAX}))
    condition += (condition.empty() ? "" : " && ") + limit;
  out_.line(fmt::format("{}[{}] = {} ? {} : -1;", name, variable_text(n.index), condition, row));
  out_.close();
  return name;
}

// All rows of a list are on their way before the first is waited for: the hardware cannot know where they
// are.
void GridPrinter::fetch_rows(const Gather& n, const MemoryView& from, const std::string& rows) {
  if (n.to.rank() != 2 || n.from.is_tile()) return;
  const std::int64_t bytes = n.to.extent(1) * n.from.buffer->type.bits() / 8;
  const std::string p = names_.unique("p"), ahead = names_.unique("ahead"), at = names_.unique("at");
  out_.open(fmt::format("for (long {0} = 0; {0} < {1}; ++{0}) {{", p, n.to.extent(0)));
  out_.line(fmt::format("const char* const {0} = (const char*)({1} + ({2}[{3}] < 0 ? 0 : {2}[{3}]) * {4});",
                        ahead, from.base, rows, p, from.axes[0].stride));
  out_.line(fmt::format("for (long {0} = 0; {0} < {1}; {0} += 64) __builtin_prefetch({2} + {0});", at, bytes,
                        ahead));
  out_.close();
}

void GridPrinter::operator()(const Gather& n, const Stmt& s) {
  const std::int64_t before = scratch_;
  out_.open("{");
  const std::string rows = gather_rows(n, s->at);
  View table = n.from;
  for (ViewDim& d : table.dims) {
    if (d.axis == 0) d = {int32(0), nullptr, nullptr, 0};
  }
  std::vector<std::string> extents = extent_texts(n.to);
  MemoryView from = memory(table, extents), to = memory(n.to, extents);
  fetch_rows(n, from, rows);
  const auto panel = uses_.panels.find(n.to.buffer.get());
  if (panel != uses_.panels.end())
    gather_panels(n, from, rows, extents, panel->second.transposed, s->at);
  else
    gather_tile(n, std::move(from), std::move(to), rows, std::move(extents), s->at);
  out_.close();
  scratch_ = before;
}

void GridPrinter::gather_panels(const Gather& n, const MemoryView& from, const std::string& rows,
                                const std::vector<std::string>& extents, bool transposed, const Loc& at) {
  const std::string type = std::string(tile_type(n.to.buffer->type));
  const MemoryAxis &row = from.axes[0], &column = from.axes[1];
  const std::string last =
      from.exists.empty() ? column.last : fmt::format("({} ? {} : 0)", from.exists, column.last);
  out_.line(fmt::format("gather_panels<{}>(({}*){}, {}, {}, {}, {}, {}, {}, {}, {}, {}(0), {});",
                        transposed ? "true" : "false", type, pointer_name(n.to.buffer), extents[0],
                        extents[1], from.base, row.stride, column.stride, rows, column.first, last, type,
                        rounding_object(n.from.buffer->type, n.to.buffer->type)),
            at);
}

// One row at a time, as a tile with one more axis of extent 1 where needed.
void GridPrinter::gather_tile(const Gather& n, MemoryView from, MemoryView to, const std::string& rows,
                              std::vector<std::string> extents, const Loc& at) {
  const std::string p = names_.unique("p"), stride = to.axes[0].stride;
  out_.open(
      fmt::format("for (long {0} = 0; {0} < {1}; ++{0}) {{  // {2}", p, extents[0], short_location(at)));
  from.base += fmt::format(" + {}[{}] * {}", rows, p, from.axes[0].stride);
  const std::string exists = fmt::format("{}[{}] >= 0", rows, p);
  from.exists = from.exists.empty() ? exists : fmt::format("{} && {}", from.exists, exists);
  to.base += fmt::format(" + {} * {}", p, stride);
  from.axes.erase(from.axes.begin());
  to.axes.erase(to.axes.begin());
  extents.erase(extents.begin());
  for_matrices(from, to, extents,
               [&](const MemoryView& a, const MemoryView& b, const std::string& r, const std::string& c) {
                 if (uses_.narrow.contains(n.to.buffer.get()))
                   return out_.line(fmt::format("load_narrow_a(call->has_tiles, {}, {}, 1, {}, {}, {}, {});",
                                                pointer_name(n.to.buffer), stride, c, axes_text(a),
                                                inside_text(a), p));
                 out_.line(fmt::format("load_tile({}, {}, {}, {}, {}, {}(0), {});", axes_text(b), r, c,
                                       axes_text(a), inside_text(a), tile_type(n.to.buffer->type),
                                       rounding_object(n.from.buffer->type, n.to.buffer->type)));
               });
  out_.close();
}

void GridPrinter::operator()(const Turn&, const Stmt&) {
  throw InternalError("turns are part of kernels for GPUs");
}

void GridPrinter::operator()(const Accumulate& n, const Stmt& s) {
  static const char* const names[] = {"AtomicAdd", "AtomicMin", "AtomicMax", "AtomicOr", "AtomicAnd"};
  const std::string op = names[static_cast<int>(n.op)];
  const std::string order = n.order ? scalar(n.order) : "", ordered = std::to_string(program_.ordered.size());
  const std::vector<std::string> extents = extent_texts(n.tile);
  out_.open("{");
  const MemoryView to = memory(n.to, extents), tile = memory(n.tile, extents);
  const std::string types =
      fmt::format("{}, {}", memory_type(n.to.buffer->type), tile_type(n.tile.buffer->type));
  for_matrices(
      to, tile, extents,
      [&](const MemoryView& a, const MemoryView& b, const std::string&, const std::string&) {
        const std::string inside = inside_text(a);
        if (!n.order) {
          out_.line(fmt::format("accumulate_tile<{}>({}, {}, {});", op, axes_text(a), axes_text(b), inside),
                    s->at);
          return;
        }
        out_.line(
            fmt::format("if (size_of({3}) > 0) record_tile(call->contribute(call->context, {0}, "
                        "int64_t({1}), size_of({3}) * long(sizeof(Contribution<{2}>))), {4}, {5}, {3});",
                        n.overwrite ? fmt::format("({1}) == 0 ? {0} + 1 : {0}", ordered, order) : ordered,
                        order, types, inside, axes_text(a), axes_text(b)),
            s->at);
      });
  if (n.order) program_.ordered.push_back({fmt::format("{}, {}", op, types)});
  if (n.overwrite) program_.ordered.push_back({fmt::format("AtomicOverwrite, {}", types)});
  out_.close();
}

}  // namespace tegula::codegen
