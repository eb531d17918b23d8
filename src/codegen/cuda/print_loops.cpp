// Loops over elements: by the registers that each thread holds, or by a number that is dealt to the threads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/element_loops.hpp"
#include "passes/cuda/fragment_axes.hpp"
#include "passes/cuda/plan_byte_turns.hpp"
#include "passes/cuda/steady_loads.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The tile that the loop's last statement stores to, if products of the grid add to it.
const BufferPtr* sum_of_products(const For& loop, const Grid& grid) {
  const auto* store = as<Store>(loop.body.back());
  if (!store || store->to.view.buffer->type != f32) return nullptr;
  const BufferPtr& tile = store->to.view.buffer;
  bool found = false;
  for_each_stmt(grid.body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    found |= gemm && gemm->c.buffer == tile;
  });
  return found ? &tile : nullptr;
}

}  // namespace

std::int64_t run_along_rows(const layout::Layout& layout, bool may_be_cut) {
  if (layout.rank() == 0) return 1;
  const auto last = static_cast<std::size_t>(layout.rank() - 1);
  const layout::Digits& digits = layout.registers();
  const auto along = [&](const layout::Digit& digit) {
    for (std::size_t d = 0; d < last; ++d) {
      if (digit.stride[d] != 0) return false;
    }
    return digit.stride[last] == 1;
  };
  if (digits.empty() || !along(digits[0])) return 1;
  std::int64_t run = digits[0].extent & -digits[0].extent;
  const auto keep = [&](const layout::Digit& digit) {
    while (digit.stride[last] % run != 0) run /= 2;
  };
  for (std::size_t i = 1; i < digits.size(); ++i) keep(digits[i]);
  for (const layout::Digit& digit : layout.threads()) keep(digit);
  while (!may_be_cut && layout.overhangs(layout.rank() - 1) && layout.shape()[last] % run != 0) run /= 2;
  return run;
}

passes::Computing CudaGridPrinter::computing() const {
  return {team_.threads, layouts_, plan_.operands, target_};
}

// By instructions for many elements, if there are some for such a loop.
bool CudaGridPrinter::as_a_whole(const For& n, const Stmt& s) {
  if (const auto found = passes::conversion(s, layouts_);
      found && plan_.forms.packed.contains(found->to.get()))
    return pack(*found, s->at), true;
  if (const auto found = passes::filling(s); found && fragments_.at(found->to.get()).is_packed)
    return fill_words(*found, s->at), true;
  if (exchange(n, s)) return true;
  const auto row_plan = passes::plan_rows(s);
  if (row_plan) return rows(*row_plan, false), true;
  if (!passes::plan_byte_turn(s)) notes_.add(passes::NoteKind::by_elements, row_plan.reason(), s->at);
  if (const auto own = passes::plan_conversion(s); own && pieces_of_thread(*own) > 0)
    return convert_rows(*own), true;
  notes_.add(passes::NoteKind::by_elements, passes::reason_of_limits(s), s->at);
  if (const auto found = passes::matrix_store(s, computing()); found && is_registers_of_pairs(*found))
    return store_matrices(*found, as<Store>(n.body.back())->to.view, s->at), true;
  if (const auto found = matrix_load(s))
    return load_matrices(*found, as<Load>(n.body.front())->from.view, s->at), true;
  const auto row_store = passes::plan_row_store(s, layouts_, team_.threads, target_, dealt_group(), facts_);
  if (row_store) return store_rows(n, *row_store, s), true;
  notes_.add(passes::NoteKind::by_elements, row_store.reason(), s->at);
  return false;
}

// Fragments that are not as the loop goes, and whether it writes them.
std::vector<std::pair<BufferPtr, bool>> CudaGridPrinter::moved_by(const For& n, const Layout* layout) const {
  std::vector<std::pair<BufferPtr, bool>> moved;
  for_each_stmt(n.body, [&](const Stmt& inner) {
    const Access* access = passes::fragment_access(inner);
    if (!access || passes::is_direct(n, layout, *access, layouts_)) return;
    const BufferPtr& buffer = access->view.buffer;
    const auto known = std::find_if(moved.begin(), moved.end(), [&](auto& m) { return m.first == buffer; });
    const bool written = as<Store>(inner) != nullptr;
    if (known == moved.end())
      moved.emplace_back(buffer, written);
    else
      known->second |= written;
  });
  return moved;
}

void CudaGridPrinter::elements(const For& n, const Stmt& s) {
  if (as_a_whole(n, s)) return;
  const auto found = layouts_.loops.find(s.get());
  const Layout* layout = found == layouts_.loops.end() ? nullptr : &found->second;
  const bool by_one_thread = layout && layout->replicas() > 1 && passes::reads_what_it_writes(n);
  if (by_one_thread) layout = nullptr;
  const auto moved = moved_by(n, layout);  // they are read and written in shared memory
  for (const auto& [buffer, written] : moved) {
    const SharedTile tile = stage(buffer->name, buffer->elements(), buffer->type);
    to_shared(fragments_.at(buffer.get()), tile, s->at);
    shared_[buffer.get()] = tile;
    notes_.of_loop(*buffer, by_one_thread, s->at);
  }
  const Facts before = facts_;
  if (layout)
    by_register(n, s);
  else
    by_flat_index(n, s);
  facts_ = before;
  for (const auto& [buffer, written] : moved) {
    const SharedTile tile = shared_.at(buffer.get());
    shared_.erase(buffer.get());
    if (written) from_shared(tile, fragments_.at(buffer.get()), s->at);
    release(tile);
  }
}

void CudaGridPrinter::by_register(const For& n, const Stmt& s) {
  out_.code();
  touch_all(n.body);
  register_loop(n, s);
}

// How many elements at a time, and which accesses are theirs together.
std::optional<Vectors> CudaGridPrinter::vectors_of(const For& n, const Layout& layout) {
  if (!part_.is_all()) return std::nullopt;
  const std::int64_t run = run_along_rows(layout);
  auto result = run > 1 ? find_vectors(n, run, &layout) : find_cut_vectors(n, layout);
  if (!result) return with_steady_loads(n, layout);
  if (!rows_found_ && run > 1)
    for (const Stmt& s : passes::steady_loads(n, result->width, facts_)) result->steady.insert(s.get());
  return result;
}

// The same where nothing is asked about rows: loads that elements share.
std::optional<Vectors> CudaGridPrinter::with_steady_loads(const For& n, const Layout& layout) const {
  for (std::int64_t width = rows_found_ ? 1 : run_along_rows(layout); width > 1; width /= 2) {
    Vectors result;
    result.width = static_cast<int>(width);
    for (const Stmt& s : passes::steady_loads(n, width, facts_)) result.steady.insert(s.get());
    if (!result.steady.empty()) return result;
  }
  return std::nullopt;
}

std::string CudaGridPrinter::element_of_pack(const Load& n, const std::string& pack, const std::string& at) {
  const bool is_told = n.from.view.buffer->type == e4m3;
  return is_told ? fmt::format("tg::value_of({}, {})", pack, at)
                 : fmt::format("tg::value({}.get({}))", pack, at);
}

// The braces of a loop with what holds within them.
void CudaGridPrinter::in_register_loop(const For& n, const Stmt& s,
                                       const std::function<void(const std::string& first)>& inside) {
  out_.open(fmt::format("{{  // {}", location_in_folder(s->at)));
  std::string first = first_replica(layouts_.loops.at(s.get()));
  if (!first.empty()) {
    const std::string name = names_.unique("first");
    out_.define("bool", name, first);
    first = name;
  }
  const bool guarded = open_row_guard(n);
  add_indices(n);
  inside(first);
  if (guarded) out_.close();
  out_.close();
  keep_few_words(n, s);
}

void CudaGridPrinter::register_loop(const For& n, const Stmt& s) {
  const Layout& layout = layouts_.loops.at(s.get());
  if (const auto rows = rows_found_ ? std::nullopt : rows_to_find(n)) {
    rows_found_ = &*rows;
    register_loop(passes::elements_of(n, *rows), s);
    rows_found_ = nullptr;
    return;
  }
  bool in_two_ways = false;
  in_register_loop(n, s, [&](const std::string& first) {
    const auto vectors = vectors_of(n, layout);
    in_two_ways = vectors && !vectors->conditions.empty();
    either(
        vectors ? vectors->conditions : Texts{},
        [&] { registers(n, layout, first, vectors ? &*vectors : nullptr); },
        [&] {
          const auto shared = with_steady_loads(n, layout);
          registers(n, layout, first, shared ? &*shared : nullptr);
        });
  });
  // What either way left moves to the registers of the products before one of them is under way.
  const BufferPtr* sum = in_two_ways && grid_ ? sum_of_products(n, *grid_) : nullptr;
  if (sum) out_.line(fmt::format("tg::pin({});", fragments_.at(sum->get()).name));
}

// Where it is known that these vectors, or none, serve.
void CudaGridPrinter::register_loop(const For& n, const Stmt& s, const Vectors* vectors) {
  in_register_loop(
      n, s, [&](const std::string& first) { registers(n, layouts_.loops.at(s.get()), first, vectors); });
}

// All registers, or the part that is wanted.
void CudaGridPrinter::registers(const For& n, const Layout& layout, const std::string& first,
                                const Vectors* vectors) {
  const Texts base = base_coordinates(layout);
  const std::int64_t count = layout.register_count(), begin = count * part_.first / 16,
                     end = count * part_.last / 16;
  loop_ = ElementLoop{&n, &layout, first};
  RowTable table;
  if (rows_found_) find_rows(layout, base, table);
  find_pieces(n);
  const auto name = [&] {
    piece_names_.clear();
    const Coordinates at = register_coordinates(layout, base);
    for (std::size_t d = 0; d < n.index.size(); ++d) values_.set(n.index[d], at.names[d]);
    name_found(table);
    return at.inside;
  };
  if (vectors && has_common_loads(n, layout, *vectors)) {
    load_numbers_of_runs(n, layout, *vectors, name);
    load_pieces_of_columns(n, layout, *vectors, name);
  }
  out_.line("#pragma unroll");
  if (vectors) {
    out_.open(fmt::format("for (int g = {}; g < {}; g += {}) {{", begin, end, vectors->width));
    out_.line("const int r = g;");
    const std::string inside = name();
    const bool masked = runs_outside(n, vectors);
    if (!inside.empty() && !masked) out_.open(fmt::format("if ({}) {{", inside));
    by_vectors(n, *vectors, masked ? inside : "", [&] {
      out_.line("const int r = g + e;");
      name();
    });
    if (!inside.empty() && !masked) out_.close();
  } else {
    out_.open(fmt::format("for (int r = {}; r < {}; ++r) {{", begin, end));
    std::string inside = name();
    if (run_along_rows(layout, true) > 1 && runs_outside(n, nullptr)) inside.clear();
    inside = both(inside, row_exists_);
    if (!inside.empty()) out_.open(fmt::format("if ({}) {{", inside));
    body(n.body);
    if (!inside.empty()) out_.close();
  }
  loop_.reset();
  pieces_ = {};
  in_front_.clear();
  pieces_in_front_.clear();
  row_exists_.clear();
  out_.close();
}

// The iterations are numbered, and dealt to the threads in turn.
void CudaGridPrinter::by_flat_index(const For& n, const Stmt& s) {
  out_.code();
  touch_all(n.body);
  if (const auto rows = rows_found_ ? std::nullopt : rows_to_find(n)) {
    rows_found_ = &*rows;
    by_flat_index(passes::elements_of(n, *rows), s);
    rows_found_ = nullptr;
    return;
  }
  bool wide = false;
  Texts extents, names;
  for (const Expr& e : n.end) {
    wide |= e->held() == i64;
    extents.push_back(value(e));
  }
  const std::string type = wide ? "int64_t" : "int";
  out_.open(fmt::format("{{  // {}", location_in_folder(s->at)));
  for (std::size_t d = 0; d < extents.size(); ++d) {
    if (is_constant(n.end[d])) {
      names.push_back(std::to_string(std::max<std::int64_t>(constant_value(n.end[d]), 0)));
      continue;
    }
    // A range whose end is before its start is empty.
    names.push_back(names_.unique("n"));
    out_.line(fmt::format("const {0} {1} = tg::max<{0}>({2}, 0);", type, names.back(), extents[d]));
  }
  for (std::size_t d = 0; d < n.index.size(); ++d) {
    if (n.begin[d]->held() == n.end[d]->held()) facts_.add_index(n.index[d], n.begin[d], n.end[d]);
  }
  const auto vectors = find_vectors(n, 16);
  if (const auto turn = passes::plan_byte_turn(s);
      turn && vectors && vectors->width == passes::turned_columns) {
    turn_bytes(*turn, [&] { flat(n, type, names, nullptr); });
    return out_.close();
  }
  either(
      vectors ? vectors->conditions : Texts{}, [&] { flat(n, type, names, vectors ? &*vectors : nullptr); },
      [&] { flat(n, type, names, nullptr); });
  out_.close();
}

void CudaGridPrinter::flat(const For& n, const std::string& type, const Texts& extents,
                           const Vectors* vectors) {
  if (vectors && moves_pieces(n, *vectors)) return move_pieces(n, *vectors);
  const int width = vectors ? vectors->width : 1;
  const auto pieces = [&](std::size_t d) {
    return d + 1 == extents.size() && width > 1 ? fmt::format("({} / {})", extents[d], width) : extents[d];
  };
  std::string count;
  for (std::size_t d = 0; d < extents.size(); ++d) count += (d == 0 ? "" : " * ") + pieces(d);
  const std::string f = names_.unique("f");
  out_.open(fmt::format("for ({0} {1} = {2}; {1} < {3}; {1} += {4}) {{", type, f, team_.thread, count,
                        team_.threads));
  std::string inner;
  for (std::size_t d = extents.size(); d-- > 0;) {
    std::string text = inner.empty() ? f : fmt::format("{} / ({})", f, inner);
    if (d > 0) text += " % " + pieces(d);
    if (d + 1 == extents.size() && width > 1) text = fmt::format("{} * {}", text, width);
    out_.line(
        fmt::format("const {} {} = {};", scalar_type(n.index[d]->type), name_variable(n.index[d]), text));
    inner += (inner.empty() ? "" : " * ") + pieces(d);
  }
  loop_ = ElementLoop{&n, nullptr, ""};
  if (rows_found_) row_exists_ = find_row(*rows_found_);
  if (vectors) {
    const std::string first = variable_text(n.index.back());
    by_vectors(n, *vectors, "", [&] {
      out_.line(fmt::format("const {} {} = {} + e;", scalar_type(n.index.back()->type),
                            name_variable(n.index.back()), first));
    });
  } else {
    if (!row_exists_.empty()) out_.open(fmt::format("if ({}) {{", row_exists_));
    body(n.body);
    if (!row_exists_.empty()) out_.close();
  }
  loop_.reset();
  row_exists_.clear();
  out_.close();
}

void CudaGridPrinter::convert_elements(const For& loop) {
  Texts extents;
  for (const Expr& end : loop.end) extents.push_back(value(end));
  out_.line("#pragma unroll 1");  // else it would take the registers that the other way needs
  flat(loop, "int", extents, nullptr);
}

FragmentTile CudaGridPrinter::converted(const BufferPtr& buffer, const Layout& layout, bool with_contents,
                                        const Loc& at) {
  const FragmentTile own = fragments_.at(buffer.get());
  FragmentTile result{names_.unique(buffer->name), layout};
  out_.code();
  declare_fragment(result.name, buffer->type, layout, at);
  if (!with_contents) return result;
  const SharedTile tile = stage(buffer->name, buffer->elements(), buffer->type);
  to_shared(own, tile, at);
  from_shared(tile, result, at);
  release(tile);
  notes_.of_conversion(*buffer, at);
  return result;
}

}  // namespace tegula::codegen
