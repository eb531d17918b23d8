// Loops over elements: by the registers that each thread holds, or by a number that is dealt to the threads.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/element_loops.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The sum over digits along a dimension: digit = number / step % extent.
std::string coordinate_text(const layout::Digits& digits, std::size_t dim, const std::string& number) {
  std::vector<std::string> terms;
  std::int64_t step = 1, count = 1;
  for (const layout::Digit& digit : digits) count *= digit.extent;
  for (const layout::Digit& digit : digits) {
    if (digit.stride[dim] != 0) {
      terms.push_back(times(digit_text(number, step, digit.extent, count), digit.stride[dim]));
    }
    step *= digit.extent;
  }
  return terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "));
}

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

std::int64_t run_along_rows(const layout::Layout& layout) {
  if (layout.rank() == 0) return 1;
  const auto last = static_cast<std::size_t>(layout.rank() - 1);
  for (int d = 0; d < layout.rank(); ++d) {
    if (layout.overhangs(d)) return 1;
  }
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
  return run;
}

std::string CudaGridPrinter::first_replica(const Layout& layout) const {
  Texts terms;
  std::int64_t step = 1;
  for (const layout::Digit& digit : layout.threads()) {
    if (digit.is_replica())
      terms.push_back(fmt::format("{} == 0", digit_text(team_.thread, step, digit.extent)));
    step *= digit.extent;
  }
  return terms.empty() ? "" : fmt::format("{}", fmt::join(terms, " && "));
}

CudaGridPrinter::Texts CudaGridPrinter::base_coordinates(const Layout& layout) {
  Texts result;
  for (std::size_t d = 0; d < layout.shape().size(); ++d) {
    result.push_back(names_.unique("base"));
    out_.define("int", result.back(), coordinate_text(layout.threads(), d, team_.thread));
  }
  return result;
}

Coordinates CudaGridPrinter::register_coordinates(const Layout& layout, const Texts& base) {
  Coordinates result;
  Texts inside;
  for (std::size_t d = 0; d < layout.shape().size(); ++d) {
    result.names.push_back(names_.unique("x"));
    const std::string steps = coordinate_text(layout.registers(), d, "r");
    out_.define("int", result.names.back(), plus(base[d], steps));
    if (layout.overhangs(static_cast<int>(d)))
      inside.push_back(fmt::format("{} < {}", result.names.back(), layout.shape()[d]));
  }
  result.inside = fmt::format("{}", fmt::join(inside, " && "));
  return result;
}

passes::Computing CudaGridPrinter::computing() const {
  return {team_.threads, layouts_, plan_.operands, target_};
}

void CudaGridPrinter::elements(const For& n, const Stmt& s) {
  if (const auto found = passes::conversion(s, layouts_);
      found && plan_.forms.packed.contains(found->to.get()))
    return pack(*found, s->at);
  if (exchange(n, s)) return;
  const auto row_plan = passes::plan_rows(s);
  if (row_plan) return rows(*row_plan, false);
  notes_.add(passes::NoteKind::by_elements, row_plan.reason(), s->at);
  if (const auto own = passes::plan_conversion(s); own && pieces_of_thread(*own) > 0)
    return convert_rows(*own);
  if (const auto found = passes::matrix_store(s, computing()); found && is_registers_of_pairs(*found))
    return store_matrices(*found, as<Store>(n.body.back())->to.view, s->at);
  if (const auto found = matrix_load(s))
    return load_matrices(*found, as<Load>(n.body.front())->from.view, s->at);
  if (const Access* to = row_store(s)) return store_rows(n, *to, s->at);
  const auto found = layouts_.loops.find(s.get());
  const Layout* layout = found == layouts_.loops.end() ? nullptr : &found->second;
  if (layout && layout->replicas() > 1 && passes::reads_what_it_writes(n)) layout = nullptr;
  // Fragments that are not as the loop goes are read and written in shared memory.
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
  for (const auto& [buffer, written] : moved) {
    const SharedTile tile = stage(buffer->name, buffer->elements(), buffer->type);
    to_shared(fragments_.at(buffer.get()), buffer->type, tile, s->at);
    shared_[buffer.get()] = tile;
    notes_.of_conversion(
        *buffer, "the loop accesses it in another layout than that in which its threads hold it", s->at);
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
    if (written) from_shared(tile, buffer->type, fragments_.at(buffer.get()), s->at);
    release(tile);
  }
}

void CudaGridPrinter::touch_all(const Body& statements) {
  for (const Region& region : all_effects(statements).regions) {
    const MemoryUse use = region.touch == Touch::read      ? MemoryUse::read
                          : region.touch == Touch::combine ? MemoryUse::combine
                                                           : MemoryUse::write;
    touch(*region.view, use, false);
  }
}

void CudaGridPrinter::by_register(const For& n, const Stmt& s) {
  out_.code();
  touch_all(n.body);
  register_loop(n, s);
}

void CudaGridPrinter::add_indices(const For& n) {
  for (std::size_t d = 0; d < n.index.size(); ++d) facts_.add_index(n.index[d], n.begin[d], n.end[d]);
}

std::optional<Vectors> CudaGridPrinter::vectors_of(const For& n, const Layout& layout) {
  const std::int64_t run = part_.is_all() ? run_along_rows(layout) : 1;
  return run > 1 ? find_vectors(n, run) : std::nullopt;
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
}

void CudaGridPrinter::register_loop(const For& n, const Stmt& s) {
  const Layout& layout = layouts_.loops.at(s.get());
  bool in_two_ways = false;
  in_register_loop(n, s, [&](const std::string& first) {
    const auto vectors = vectors_of(n, layout);
    in_two_ways = vectors && !vectors->conditions.empty();
    either(
        vectors ? vectors->conditions : Texts{},
        [&] { registers(n, layout, first, vectors ? &*vectors : nullptr); },
        [&] { registers(n, layout, first, nullptr); });
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
  const auto name = [&] {
    const Coordinates at = register_coordinates(layout, base);
    for (std::size_t d = 0; d < n.index.size(); ++d) values_.set(n.index[d], at.names[d]);
    return at.inside;
  };
  loop_ = ElementLoop{&n, &layout, first};
  out_.line("#pragma unroll");
  if (vectors) {
    out_.open(fmt::format("for (int g = {}; g < {}; g += {}) {{", begin, end, vectors->width));
    out_.line("const int r = g;");
    name();
    by_vectors(n, *vectors, [&] {
      out_.line("const int r = g + e;");
      name();
    });
  } else {
    out_.open(fmt::format("for (int r = {}; r < {}; ++r) {{", begin, end));
    const std::string inside = name();
    if (!inside.empty()) out_.open(fmt::format("if ({}) {{", inside));
    body(n.body);
    if (!inside.empty()) out_.close();
  }
  loop_.reset();
  out_.close();
}

// The iterations are numbered, and dealt to the threads in turn.
void CudaGridPrinter::by_flat_index(const For& n, const Stmt& s) {
  out_.code();
  touch_all(n.body);
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
  either(
      vectors ? vectors->conditions : Texts{}, [&] { flat(n, type, names, vectors ? &*vectors : nullptr); },
      [&] { flat(n, type, names, nullptr); });
  out_.close();
}

void CudaGridPrinter::flat(const For& n, const std::string& type, const Texts& extents,
                           const Vectors* vectors) {
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
  if (vectors) {
    const std::string first = variable_text(n.index.back());
    by_vectors(n, *vectors, [&] {
      out_.line(fmt::format("const {} {} = {} + e;", scalar_type(n.index.back()->type),
                            name_variable(n.index.back()), first));
    });
  } else {
    body(n.body);
  }
  loop_.reset();
  out_.close();
}

SharedTile CudaGridPrinter::stage(const std::string& name, std::int64_t elements, DType type) {
  const std::int64_t bytes = elements * type.bytes(), each = (bytes + 15) / 16 * 16;
  const std::int64_t begin = memory_.allocate(
      each * team_.count, 128, fmt::format("{}[{}] on their way between threads", type.name(), elements));
  SharedTile tile{names_.unique(name + "_staged"), {}, {-1, begin, begin + each * team_.count}};
  const std::string offset =
      team_.slot.empty() ? std::to_string(begin) : fmt::format("{} + {} * {}", begin, team_.slot, each);
  out_.code();
  out_.line(
      fmt::format("{0}* const {1} = ({0}*)(shared_memory + {2});", element_type(type), tile.name, offset));
  return tile;
}

void CudaGridPrinter::release(const SharedTile& tile) { memory_.free(tile.memory.begin); }

void CudaGridPrinter::to_shared(const FragmentTile& from, DType type, const SharedTile& to, const Loc& at) {
  out_.code();
  out_.touch({to.memory, MemoryUse::write});
  out_.open(fmt::format("{{  // {}: to shared memory", location_in_folder(at)));
  const Texts base = base_coordinates(from.layout);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", from.layout.register_count()));
  const Coordinates x = register_coordinates(from.layout, base);
  Texts guards;
  if (!x.inside.empty()) guards.push_back(x.inside);
  if (const std::string first = first_replica(from.layout); !first.empty()) guards.push_back(first);
  Texts terms;
  std::int64_t stride = 1;
  for (std::size_t d = x.names.size(); d-- > 0; stride *= from.layout.shape()[d])
    terms.push_back(times(x.names[d], stride));
  out_.line(fmt::format("{}tg::store({} + {}, {}[r]);",
                        guards.empty() ? "" : fmt::format("if ({}) ", fmt::join(guards, " && ")), to.name,
                        terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + ")), from.name));
  out_.close();
  out_.close();
  (void)type;
}

void CudaGridPrinter::from_shared(const SharedTile& from, DType type, const FragmentTile& to, const Loc& at) {
  out_.code();
  out_.touch({from.memory, MemoryUse::read});
  out_.open(fmt::format("{{  // {}: from shared memory", location_in_folder(at)));
  const Texts base = base_coordinates(to.layout);
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int r = 0; r < {}; ++r) {{", to.layout.register_count()));
  const Coordinates x = register_coordinates(to.layout, base);
  Texts terms;
  std::int64_t stride = 1;
  for (std::size_t d = x.names.size(); d-- > 0; stride *= to.layout.shape()[d])
    terms.push_back(times(x.names[d], stride));
  out_.line(fmt::format("{}{}[r] = tg::load({} + {});",
                        x.inside.empty() ? "" : fmt::format("if ({}) ", x.inside), to.name, from.name,
                        terms.empty() ? "0" : fmt::format("{}", fmt::join(terms, " + "))));
  out_.close();
  out_.close();
  (void)type;
}

FragmentTile CudaGridPrinter::converted(const BufferPtr& buffer, const Layout& layout, bool with_contents,
                                        const Loc& at) {
  const FragmentTile own = fragments_.at(buffer.get());
  FragmentTile result{names_.unique(buffer->name), layout};
  out_.code();
  declare_fragment(result.name, buffer->type, layout, at);
  if (!with_contents) return result;
  const SharedTile tile = stage(buffer->name, buffer->elements(), buffer->type);
  to_shared(own, buffer->type, tile, at);
  from_shared(tile, buffer->type, result, at);
  release(tile);
  notes_.of_conversion(*buffer,
                       "the statement uses it in another layout than that in which its threads hold it", at);
  return result;
}

}  // namespace tegula::codegen
