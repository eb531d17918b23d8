// Products of matrices, and what they read of tensors.
#include <fmt/format.h>

#include "codegen/grid_printer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

std::string distance_text(const std::string& stride) {
  const bool known = stride.find_first_not_of("0123456789") == std::string::npos;
  return known ? fmt::format("fixed<{}>()", stride) : stride;
}

}  // namespace

// Whether the tile of B holds its columns; such a copy is the product's only where it reads them in place.
bool GridPrinter::reads_columns(const Gemm& n) const { return uses_.panels.at(n.b.buffer.get()).transposed; }

// The rows of a tensor that the product copies, or its columns, which it reads.
std::string GridPrinter::copied_b(const Copy& n, const Gemm& product) {
  const std::string name = names_.unique("b");
  const std::vector<std::string> extents = extent_texts(n.to);
  const char* function = reads_columns(product)       ? "columns_or_panels"
                         : reads_once(product, uses_) ? "rows_or_panels<true>"
                                                      : "rows_or_panels";
  const auto print = [&](const MemoryView& from, const MemoryView&, const std::string&, const std::string&) {
    out_.line(fmt::format("const auto {} = {}({});", name, function, panels_text(n, from)));
  };
  for_matrices(memory(n.from, extents), memory(n.to, extents), extents, print);
  return name;
}

// A tile whose elements lie as in memory.
std::string GridPrinter::unpacked_b(const Gemm& n) {
  const std::int64_t k = n.b.extent(0), columns = n.b.extent(1);
  const std::string type(scalar_type(n.c.buffer->type));
  const MemoryView b = memory(n.b, {std::to_string(k), std::to_string(columns)});
  const std::string panels = names_.unique("panels");
  out_.line(fmt::format("{0}* const {1} = ({0}*){2};", type, panels,
                        allocate(k * round_up(columns, row_unit) * held_bytes(n.b.buffer->type))));
  const std::string arguments =
      fmt::format("{0}, {1}, {2}, (const {3}*)({4}), {5}, {6}, whole({1}, {2}), {3}(0), Unrounded{{}}",
                  panels, k, columns, type, b.base, b.axes[0].stride, b.axes[1].stride);
  if (b.axes[1].stride == "1" && may_fill_panels(n)) return fmt::format("rows_or_panels({})", arguments);
  const bool transposed = b.axes[0].stride == "1" && b.axes[1].stride != "1";
  out_.line(fmt::format("load_panels{}({});", transposed ? "_transposed" : "", arguments));
  return panels;
}

std::string GridPrinter::operand_b(const Gemm& n, const Stmt& product) {
  const auto copy = late_.find(product.get());
  if (copy != late_.end()) return copied_b(*as<Copy>(copy->second), n);
  if (!uses_.panels.contains(n.b.buffer.get())) return unpacked_b(n);
  return fmt::format("(const {}*){}", scalar_type(n.c.buffer->type), pointer_name(n.b.buffer));
}

// A part of a tensor as the rows of a tile; clipping is left out, because nothing is read.
std::string GridPrinter::rows_text(const FetchAhead& fetch) {
  std::vector<std::string> terms;
  std::string row_stride = "0";
  for (std::size_t d = 0; d < fetch.from.dims.size(); ++d) {
    const std::string stride = stride_text(fetch.from, static_cast<int>(d));
    if (fetch.from.dims[d].axis == 0) row_stride = stride;
    const Expr& offset = fetch.from.dims[d].offset;
    if (!is_constant(offset, 0)) terms.push_back(fmt::format("{} * {}", as_long(offset), stride));
  }
  return fmt::format("rows_ahead({} + {}, {}, {}, {})", pointer_name(fetch.from.buffer), sum_text(terms),
                     row_stride, fetch.rows, fetch.columns);
}

// Of a tile that the thread may have kept from another block, only if it has not.
std::string GridPrinter::rows_to_copy(const FetchAhead& fetch) {
  const std::string rows = rows_text(fetch);
  const auto kept = kept_.find(fetch.copy.get());
  if (kept == kept_.end()) return rows;
  const BufferPtr& tile = as<Copy>(fetch.copy)->to.buffer;
  return fmt::format("{}.ahead({}, {})", kept_names_.at(tile.get()),
                     kept->second.step ? scalar(fetch.step) : "0", rows);
}

// The last products of a loop fetch what the first copies of the next iteration read, or, if there is none,
// where the results of the block go.
std::string GridPrinter::fetched_text(const Stmt& product) {
  const auto found = fetches_.find(product.get());
  if (found == fetches_.end()) return "";
  const FetchAhead& fetch = found->second;
  for (const Stmt& definition : fetch.definitions) stmt(definition);
  const std::string rows = rows_to_copy(fetch);
  const bool known = fetch.more && fetch.place < results_.size() && is_known(results_[fetch.place].from);
  if (!known) return fmt::format(", {}", rows);
  const std::string result = rows_text(results_[fetch.place]);
  return fmt::format(", {} ? {} : {}", scalar(fetch.more), rows, result);
}

// The function and its first arguments. Products of bf16 have registers of their own, and need room.
std::string GridPrinter::product_text(const Gemm& n) {
  const std::int64_t m = n.c.extent(0), columns = n.c.extent(1), k = n.a.extent(1);
  if (!is_product_of_bf16(n)) return fmt::format("gemm_panel<{}, {}>(", m, columns);
  const bool a = uses_.narrow.contains(n.a.buffer.get()), b = uses_.narrow.contains(n.b.buffer.get());
  const std::string narrow = a || b ? fmt::format(", Narrow<{}, {}>", a, b) : "";
  const std::int64_t tiles = (round_up(m, 16) / 16 + 2) * (round_up(k, 32) / 32);
  return fmt::format("gemm_bf16<{}, {}{}>(call->has_tiles, {}, ", m, columns, narrow, allocate(tiles * 1024));
}

// Whether the address can be said here.
bool GridPrinter::is_known(const View& view) const {
  bool known = true;
  for_each_expr(view, [&](const Expr& e) {
    for_each_variable(e, [&](const VariablePtr& v) {
      known &= variables_.contains(v.get()) && v->kind != VariableKind::mutable_;
    });
  });
  return known;
}

// The step of a loop that has one stores them where the copy behind it would: others read what the step
// before has left.
void GridPrinter::let_sums_leave(const For& loop, const BegunSum& sum) {
  const auto* copy = sum.copy ? as<Copy>(sum.copy) : nullptr;
  if (!copy || !signature_.kernel().may_alias.empty() || !is_known(copy->to)) return;
  const std::vector<std::string> extents = extent_texts(copy->from);
  const std::string name = names_.unique("leaving");
  const std::string once = fmt::format("{} + 1 == {}", scalar(loop.begin[0]), scalar(loop.end[0]));
  for_matrices(
      memory(copy->to, extents), memory(copy->from, extents), extents,
      [&](const MemoryView& to, const MemoryView&, const std::string& rows, const std::string& columns) {
        out_.line(fmt::format("const auto {} = sums_leave(call->has_tiles, {}, {}, {}, {}, {}, {}, {});",
                              name, once, to.base, to.axes[0].stride, to.axes[1].stride, rows, columns,
                              inside_text(to)));
      });
  leaving_[sum.product.get()] = name;
  stays_[sum.copy.get()] = fmt::format("{}.to == nullptr", name);
}

std::string GridPrinter::operand_a(const Gemm& n, const MemoryView& a) const {
  const auto placed = placed_.find(n.a.buffer.get());
  if (placed != placed_.end()) return placed->second.name;
  return fmt::format("(const {}*)({})", scalar_type(n.c.buffer->type), a.base);
}

// The last argument of a product whose sums leave.
std::string GridPrinter::leaving_text(const Stmt& product, bool fetches) const {
  const auto found = leaving_.find(product.get());
  if (found == leaving_.end()) return "";
  return fmt::format("{}, {}", fetches ? "" : ", NoneAhead{}", found->second);
}

// Whether the access is one of a loop over a tile that lies as tile registers want it (tiles.hpp).
bool GridPrinter::is_narrow(const Access& access) const {
  return by_tiles_ && uses_.narrow.contains(access.view.buffer.get());
}

std::string GridPrinter::narrow_place(const Access& access) {
  const std::vector<Expr> at = coordinates(access);
  const BufferPtr& tile = access.view.buffer;
  return fmt::format("{}, {}, {}, {}", pointer_name(tile), tile->extent(1), as_long(at[0]),
                     at_first_lane(at[1]));
}

// A product that was formed aside goes to c, element by element.
void GridPrinter::add_product(const Gemm& n, const MemoryView& c, const std::string& from,
                              const std::string& row_stride, const std::string& adds) {
  const DType type = n.c.buffer->type;
  out_.open(fmt::format("for (long i = 0; i < {}; ++i) {{", n.c.extent(0)));
  const std::string element =
      fmt::format("({})[i * {} + j * {}]", c.base, c.axes[0].stride, c.axes[1].stride);
  const std::string product = fmt::format("{}[i * {} + j]", from, row_stride);
  const std::string both =
      type.is_floating() ? element + " + " + product : fmt::format("add({}, {})", element, product);
  const std::string sum = adds == "false"  ? product
                          : adds == "true" ? both
                                           : fmt::format("{} ? {} : {}", adds, both, product);
  out_.line(
      fmt::format("for (long j = 0; j < {}; ++j) {} = {};", n.c.extent(1), element, rounded(type, sum)));
  out_.close();
}

// Whether the product adds to c, or replaces it.
std::string GridPrinter::adds_text(const Gemm& n, const Stmt& product) const {
  const auto found = adds_.find(product.get());
  return n.overwrite ? "false" : found != adds_.end() ? found->second : "true";
}

void GridPrinter::operator()(const Gemm& n, const Stmt& s) {
  const std::int64_t before = scratch_, m = n.c.extent(0), columns = n.c.extent(1), k = n.a.extent(1);
  const DType type = n.c.buffer->type;
  const std::string name(scalar_type(type));
  out_.open(fmt::format("{{  // {}", short_location(s->at)));
  const std::string b = operand_b(n, s);
  const MemoryView a = memory(n.a, {std::to_string(m), std::to_string(k)});
  MemoryView c = memory(n.c, {std::to_string(m), std::to_string(columns)});
  const bool padded = is_whole(n.c) && !uses_.dense.contains(n.c.buffer.get());
  const bool direct =
      c.axes[1].stride == "1" && (padded || columns % row_unit == 0) && c.axes[0].stride != "0";
  std::string target = c.base, ldc = c.axes[0].stride;
  if (!direct) {
    ldc = std::to_string(round_up(columns, row_unit));
    target = names_.unique("product");
    out_.line(fmt::format("{0}* const {1} = ({0}*){2};", name, target,
                          allocate(m * round_up(columns, row_unit) * held_bytes(type))));
  }
  const std::string ahead = fetched_text(s), adds = adds_text(n, s);
  const bool columns_in_place = late_.contains(s.get()) && reads_columns(n);
  const std::string function =
                        columns_in_place ? fmt::format("gemm_columns<{}, {}>(", m, columns) : product_text(n),
                    along_k = columns_in_place ? "" : a.axes[1].stride + ", ";
  out_.line(fmt::format("{}{}, {}, {}, {}{}, {}, {}, {}{}{});", function, k, operand_a(n, a),
                        distance_text(a.axes[0].stride), along_k, b, target, ldc, direct ? adds : "false",
                        ahead, leaving_text(s, !ahead.empty())),
            s->at);
  if (direct && type == f16) {  // rows have room for whole vectors
    out_.open(fmt::format("for (long i = 0; i < {}; ++i) {{", m));
    out_.line(fmt::format(
        "for (long j = 0; j < {}; j += W) store({} + i * {} + j, round_f16(load({} + i * {} + j)));", columns,
        target, ldc, target, ldc));
    out_.close();
  }
  if (!direct) add_product(n, c, target, ldc, adds);
  out_.close();
  scratch_ = before;
}

}  // namespace tegula::codegen
