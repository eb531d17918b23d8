// Rows of tensors that a loop over elements finds one by one, and sums of products of warp groups to rows:
// the four threads that share a row exchange words, so that each writes 16 bytes of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/element_printer.hpp"

namespace tegula::codegen {

using namespace ir;

// What holds for all elements of the row that the indices name; the condition's name, or nothing if every row
// is written.
std::string ElementPrinter::find_row(const passes::RowLoop& rows) {
  body(rows.row);
  if (!rows.condition) return "";
  const std::string there = names_.unique("there");
  out_.line(fmt::format("const bool {} = {};", there, bare(value(rows.condition))));
  facts_.assume(rows.condition, true);
  for (const Stmt& s : rows.under) {
    const auto* load = as<Load>(s);
    const VariablePtr& v = load ? load->variable : as<Let>(s)->variable;
    const std::string text = load ? load_text(load->from) : value(as<Let>(s)->value),
                      type(scalar_type(v->type));
    out_.line(fmt::format("const {} {} = {} ? {} : {}(0);", type, name_variable(v), there, text, type));
    if (!load) continue;
    values_.set_stored(v, load->from.view.buffer->type);
    if (!v->type.is_floating()) facts_.add_range(v, values_of(load->from.view.buffer->type));
  }
  return there;
}

// A loop that looks up where its rows are: once for a row, then.
std::optional<passes::RowLoop> ElementPrinter::rows_to_find(const For& n) const {
  auto rows = passes::row_loop(n);
  return rows && rows->looks_up() && part_.is_all() ? std::move(rows) : std::nullopt;
}

// For each row of which a thread has registers.
void ElementPrinter::find_rows(const Layout& layout, const Texts& base, RowTable& table) {
  const For& n = *loop_->loop;
  const std::size_t last = n.index.size() - 1;
  Texts registers, row;
  std::int64_t step = 1, count = 1;
  for (const layout::Digit& digit : layout.registers()) {
    if (std::any_of(digit.stride.begin(), digit.stride.begin() + static_cast<std::ptrdiff_t>(last),
                    [](std::int64_t stride) { return stride != 0; })) {
      registers.push_back(times(digit_text("q", count, digit.extent), step));
      row.push_back(times(digit_text("r", step, digit.extent, layout.register_count()), count));
      count *= digit.extent;
    }
    step *= digit.extent;
  }
  const auto sum = [](const Texts& terms) {
    return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
  };
  table.row = sum(row);
  for (const VariablePtr& v : rows_found_->found()) {
    table.found.emplace_back(v, names_.unique("of_row"));
    out_.line(fmt::format("{} {}[{}];", scalar_type(v->type), table.found.back().second, count));
  }
  if (rows_found_->condition) {
    table.exists = names_.unique("exists");
    out_.line(fmt::format("bool {}[{}];", table.exists, count));
  }
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int q = 0; q < {}; ++q) {{", count));
  out_.line(fmt::format("const int r = {};", sum(registers)));
  const Coordinates at = register_coordinates(layout, base);
  for (std::size_t d = 0; d < n.index.size(); ++d) values_.set(n.index[d], at.names[d]);
  const std::string there = find_row(*rows_found_);
  for (const auto& [v, name] : table.found) out_.line(fmt::format("{}[q] = {};", name, variable_text(v)));
  if (!there.empty()) out_.line(fmt::format("{}[q] = {};", table.exists, there));
  out_.close();
}

// What was found for the row of register `r`.
void ElementPrinter::name_found(const RowTable& table) {
  for (const auto& [v, name] : table.found) values_.set(v, fmt::format("{}[{}]", name, table.row));
  row_exists_ = table.exists.empty() ? "" : fmt::format("{}[{}]", table.exists, table.row);
}

namespace {

// The first column of those that a thread writes; places of its own are found from the first that it has.
std::string first_column(const passes::RowStore& plan, int bytes, const std::string& thread) {
  return fmt::format(fmt::runtime(bytes == 4          ? "{0} % 2 * 8 + {0} % 4 / 2 * 4"
                                  : plan.in_own_order ? "{0} % 4 * 2"
                                                      : "{0} % 4 * 8"),
                     thread);
}

}  // namespace

// Two rows of a thread, eight apart.
void ElementPrinter::store_rows(const For& n, const passes::RowStore& plan, const Stmt& s) {
  const Access& to = *plan.rows.to;
  const FragmentTile& tile = fragments_.at(plan.sum.get());
  out_.code();
  touch_all(n.body);
  if (to.view.buffer->role != Role::workspace) require_aligned(to.view.buffer);
  const std::int64_t groups = std::max<std::int64_t>(1, 64 * team_.threads / 128 / plan.sum->extent(0)),
                     columns = plan.sum->extent(1) / groups;  // of a warp group
  const std::string of_group = groups > 1 ? fmt::format(" + {} / 128 * {}", team_.thread, columns) : "";
  const int quad = passes::quad_columns(to.view.buffer->type), bytes = to.view.buffer->type.bytes();
  const std::string piece = first_column(plan, bytes, team_.thread);
  for (int half = 0; half < 2; ++half) {
    out_.open(fmt::format("{{  // {}: 16 bytes of a row by each thread", location_in_folder(s->at)));
    const Facts before = facts_;
    out_.line(fmt::format("const int {0} = {1} / 4 % 8 + {1} / 32{2} * 16 + {3};", name_variable(n.index[0]),
                          team_.thread, groups > 1 ? " % 4" : "", 8 * half));
    out_.line(fmt::format("const int {} = {}{};", name_variable(n.index[1]), piece, of_group));
    facts_.add_range(n.index[0], {0, plan.sum->extent(0) - 1});
    facts_.add_range(n.index[1], {0, plan.sum->extent(1) - columns + quad - 16 / bytes});
    loop_ = ElementLoop{&n, &tile.layout, ""};
    const std::string found = find_row(plan.rows);
    if (plan.is_window) unlimited_ = {to.view.dims.size() - 1};
    const GuardedAddress address = this->address(to);
    unlimited_.clear();
    const auto write = writer_of_row(plan, address, both(found, address.guard));
    if (plan.is_bare)
      for (std::int64_t j = 0; j < columns / quad; ++j)
        write(std::to_string(j * quad), fmt::format("{} + {}", tile.name, quad / 2 * j + 2 * half));
    else
      store_computed(n, plan, half, of_group, write);
    loop_.reset();
    facts_ = before;
    out_.close();
  }
}

// Whether the piece that begins so many columns behind the element has columns of the tensor: all or none.
std::function<std::string(const std::string& column)> ElementPrinter::limits_of_row(const Access& to) {
  const Expr place = coordinates(to).back();
  const std::string at = value(place), columns = fmt::format("int64_t({})", value(to.view.shape.back()));
  if (values_.is_at_least(place, 0)) {
    const std::string room = names_.unique("room");
    out_.line(fmt::format("const int64_t {} = {} - {};", room, columns, at));
    return [room](const std::string& column) { return fmt::format("{} < {}", column, room); };
  }
  const std::string first = names_.unique("first");
  out_.line(fmt::format("const int64_t {} = {};", first, at));
  return [first, columns](const std::string& column) {
    return fmt::format("uint64_t({} + {}) < uint64_t({})", first, column, columns);
  };
}

// Names the row, and whether it is written. What writes a thread's elements from a column of it on.
ElementPrinter::WriteElements ElementPrinter::writer_of_row(const passes::RowStore& plan,
                                                            const GuardedAddress& address,
                                                            const std::string& guard) {
  const std::string row = names_.unique("row"), there = names_.unique("there");
  out_.line(
      fmt::format("{}* const {} = {};", element_type(plan.rows.to->view.buffer->type), row, address.pointer));
  out_.line(fmt::format("const bool {} = {};", there, guard.empty() ? "true" : guard));
  const auto limits = plan.is_window ? limits_of_row(*plan.rows.to) : nullptr;
  return [this, &plan, row, there, limits](const std::string& column, const std::string& elements) {
    if (plan.in_own_order)
      return out_.line(fmt::format("tg::store_own({} + {}, {}, {});", row, column, elements, there));
    const std::string exists = limits ? both(there, limits(column)) : there;
    out_.line(fmt::format("tg::{}_quad({} + {}, {}, {} % 4, {});", plan.rows.adds() ? "add" : "store", row,
                          column, elements, team_.thread, exists));
  };
}

// What is stored is computed from the elements of the sum, a quad's columns at a time.
void ElementPrinter::store_computed(const For& n, const passes::RowStore& plan, int half,
                                    const std::string& of_group, const WriteElements& write) {
  const FragmentTile& tile = fragments_.at(plan.sum.get());
  const int quad = passes::quad_columns(plan.rows.to->view.buffer->type);
  const std::string own = names_.unique("own"), column = names_.unique("x");
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int q = 0; q < {}; ++q) {{", tile.layout.register_count() * 2 / quad));
  out_.line(fmt::format("float {}[{}];", own, quad / 2));
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int e = 0; e < {}; ++e) {{", quad / 4));
  out_.line(fmt::format("const int r = q * {} + e / 2 * 4 + e % 2 + {};", quad / 2, 2 * half));
  out_.line(fmt::format("const int {} = q * {} + e / 2 * 8 + e % 2 + {} % 4 * 2{};", column, quad,
                        team_.thread, of_group));
  values_.set(n.index[1], column);
  body(plan.rows.element);
  const Expr& stored = plan.rows.value;
  const bool rounds = stored->op == Op::cast && stored->type == plan.rows.to->view.buffer->type;
  const std::string text = value(rounds ? stored->args[0] : stored);
  out_.line(fmt::format("{}[e / 2 * 4 + e % 2] = {};", own, bare(text)));
  out_.close();
  write(fmt::format("q * {}", quad), own);
  out_.close();
}

}  // namespace tegula::codegen
