// Loops over elements, several elements of a row at a time where they are contiguous.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "codegen/cuda/arithmetic.hpp"
#include "codegen/cuda/element_limits.hpp"
#include "codegen/cuda/element_printer.hpp"
#include "ir/lists.hpp"
#include "ir/simplify.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

constexpr int values_of_part = 8;  // of 16 bits

bool is_index(const For& n, const VariablePtr& v) {
  return std::find(n.index.begin(), n.index.end(), v) != n.index.end();
}

// A sum that no index makes smaller, of things that are known before the loop.
bool grows(const For& n, const Expr& e) {
  if (!has_affine_form(e->held())) return false;
  bool outer = true;
  for_each_variable(e, [&](const VariablePtr& v) { outer &= is_index(n, v) || !defines(n.body, v); });
  if (!outer) return false;
  for (const Affine::Term& term : affine(e).terms) {
    const bool own = term.atom->op == Op::variable && is_index(n, term.atom->variable);
    if (own && term.factor < 0) return false;
    bool hidden = false;
    if (!own) for_each_variable(term.atom, [&](const VariablePtr& v) { hidden |= is_index(n, v); });
    if (hidden) return false;
  }
  return true;
}

// Whether one iteration accesses two elements of a tensor, as far as their coordinates say: halves of a row.
bool are_apart(const Access& a, const Access& b) {
  if (a.view.buffer != b.view.buffer || a.view.is_tile()) return false;
  if (!is_own_shape(a.view) || !is_own_shape(b.view)) return false;
  const std::vector<Expr> left = coordinates(a), right = coordinates(b);
  for (std::size_t d = 0; d < left.size(); ++d) {
    const auto distance = difference(affine(left[d]), affine(right[d]));
    if (distance && distance->is_constant() && distance->constant != 0) return true;
  }
  return false;
}

// By what may be 0, or -1, which the smallest integer is not to be divided by.
bool divides_integers(const Expr& e) {
  constexpr Op divisions[] = {Op::div, Op::mod, Op::floordiv, Op::floormod, Op::ceildiv};
  const bool own =
      !e->held().is_floating() &&
      std::find(std::begin(divisions), std::end(divisions), e->op) != std::end(divisions) &&
      (!is_constant(e->args[1]) || constant_value(e->args[1]) == 0 || constant_value(e->args[1]) == -1);
  return own || std::any_of(e->args.begin(), e->args.end(), divides_integers);
}

}  // namespace

// Additions to rows that are looked up, by the instructions of Hopper GPUs for elements in a row. Sums of 16
// bits add rounded values.
bool ElementPrinter::adds_vectors(const Stmt& s) const {
  const auto* atomic = as<Atomic>(s);
  if (!atomic || !rows_found_ || !target_.has_wgmma() || atomic->op != AtomicOp::add) return false;
  const DType type = atomic->to.view.buffer->type;
  const bool rounds = atomic->value->op == Op::cast && atomic->value->type == type;
  return type == f32 || ((type == bf16 || type == f16) && rounds);
}

// Along the last index, by single steps in the last dimension; other dimensions do not depend on it.
bool ElementPrinter::goes_along_row(const For& n, const Access& access) const {
  const View& view = access.view;
  if (view.buffer->space == Space::fragment || view.buffer->rank() == 0 || !is_own_shape(view)) return false;
  const std::vector<Expr> at = coordinates(access);
  for (std::size_t d = 0; d < at.size(); ++d) {
    if (!grows(n, at[d])) return false;
    std::int64_t factor = 0;
    for (const Affine::Term& term : affine(at[d]).terms) {
      if (term.atom->op == Op::variable && term.atom->variable == n.index.back()) factor = term.factor;
    }
    if (factor != (d + 1 == at.size() ? 1 : 0)) return false;
    if (view.is_tile() &&
        !(values_.is_at_least(corner(n, at[d], false), 0) && values_.is_less(at[d], view.shape[d])))
      return false;
  }
  return true;
}

// Whether every `width`-th element of the loop is a multiple of so many from where its row begins.
bool ElementPrinter::begins_aligned_in_row(const For& n, const Access& access, int width) const {
  auto rest =
      difference(affine(coordinates(access).back()), affine(variable(n.index.back(), n.index.back()->at)));
  if (!rest) return false;
  Facts facts = facts_;
  for (std::size_t d = 0; d + 1 < n.index.size(); ++d) facts.add_multiple(n.index[d], 1);
  const std::int64_t step = divisor(*rest, facts);
  return step == 0 || step % width == 0;
}

// Whether every `width`-th element of a row is where such a piece may begin, as far as that is not asked when
// the loop runs.
bool ElementPrinter::is_aligned(const For& n, const Access& access, int width) const {
  const View& view = access.view;
  if (!begins_aligned_in_row(n, access, width) || plan_.copy_rings.runs.contains(view.buffer.get()))
    return false;
  if (!view.is_tile()) return true;
  const SharedTile& tile = shared_.at(view.buffer.get());
  if (tile.order.is_swizzled()) return 16 / view.buffer->type.bytes() % width == 0;
  return view.buffer->extent(view.buffer->rank() - 1) % width == 0;
}

// Whether the elements make up several whole pieces of 16 bytes of a swizzled tile, which are rounded values.
bool ElementPrinter::is_stored_in_parts(const For& n, const StmtNode& s, int width) const {
  const auto* store = std::get_if<Store>(&s.node);
  if (!store || !store->to.view.is_tile()) return false;
  const DType type = store->to.view.buffer->type;
  const TileOrder& order = shared_.at(store->to.view.buffer.get()).order;
  return (type == bf16 || type == f16) && order.is_swizzled() && width % values_of_part == 0 &&
         width > values_of_part && order.columns % width == 0 && store->value->held() == f32 &&
         is_aligned(n, store->to, values_of_part);
}

// The accesses along rows; nothing if the loop is of another kind, or elements depend on each other's order.
std::optional<std::vector<const Stmt*>> ElementPrinter::row_accesses(const For& n) const {
  std::vector<const Stmt*> result;
  for (const Stmt& s : n.body) {
    const Access* access = access_of(s);
    const bool computes = as<Let>(s) || as<DeclareVar>(s) || as<Assign>(s);
    if ((!access && !computes) || (as<Atomic>(s) && !adds_vectors(s))) return std::nullopt;
    if (access && goes_along_row(n, *access)) result.push_back(&s);
  }
  const auto memory = [&](const Access& a) {
    const Buffer* buffer = a.view.buffer.get();
    return a.view.is_tile() ? std::pair(buffer, -1)
                            : std::pair<const Buffer*, int>(nullptr, memory_of_.at(buffer));
  };
  // Iterations have no element in common that one of them writes, so that only the order within one counts.
  const auto are_along = [&](const Stmt& a, const Stmt& b) {
    return contains(result, &a) && contains(result, &b);
  };
  for (std::size_t i = 0; i < n.body.size(); ++i) {
    const auto* store = as<Store>(n.body[i]);
    if (!store || store->to.view.buffer->space == Space::fragment) continue;
    for (std::size_t k = 0; k < n.body.size(); ++k) {
      const Access* other = access_of(n.body[k]);
      if (k == i || !other || memory(*other) != memory(store->to)) continue;
      if (are_along(n.body[i], n.body[k]) && are_apart(*other, store->to)) continue;
      if (k > i || !as<Load>(n.body[k]) || !same_place(*other, store->to)) return std::nullopt;
    }
  }
  return result;
}

// With products, the text for tensors that are elsewhere would do without the copy engine, too. Workspaces
// have the rows of the program, whatever the caller gives.
bool ElementPrinter::supposes_alignment(const Buffer& tensor) const {
  if (has_whole_rows(tensor)) return true;
  return target_.copy_engine && !any_products_ && !tensor.is_tile() && tensor.role != Role::workspace;
}

// Whether an iteration stores several elements of a tensor, and not all of them by pieces: neighbouring
// threads store neighbouring elements better than a thread those of a piece one by one.
bool ElementPrinter::stores_beside(const For& n, const std::vector<const Stmt*>& pieces) const {
  std::unordered_map<const Buffer*, int> stores, by_pieces;
  for (const Stmt& s : n.body) {
    const auto* store = as<Store>(s);
    if (!store || store->to.view.buffer->space != Space::global) continue;
    const Buffer* tensor = store->to.view.buffer.get();
    ++stores[tensor], by_pieces[tensor] += contains(pieces, &s);
  }
  return std::any_of(stores.begin(), stores.end(),
                     [&](const auto& own) { return own.second > 1 && by_pieces[own.first] < own.second; });
}

std::optional<Vectors> ElementPrinter::find_vectors(const For& n, std::int64_t most, const Layout* layout) {
  const auto found = row_accesses(n);
  if (!found || found->empty()) return std::nullopt;
  int least = most_bytes;
  for (const Stmt* s : *found) least = std::min(least, access_of(*s)->view.buffer->type.bytes());
  Vectors result;
  result.width = static_cast<int>(std::min<std::int64_t>(most, most_bytes / least));
  const Expr& end = n.end.back();
  if (is_constant(end)) {
    while (result.width > 1 && constant_value(end) % result.width != 0) result.width /= 2;
  } else {
    result.conditions.push_back(fmt::format("{} % {} == 0", value(end), result.width));
  }
  std::vector<const Stmt*> kept;
  for (const Stmt* s : *found) {
    if (layout && asks_for_no_place(n, *s, result.width)) {
      add_anywhere(*layout, *s, result);
      continue;
    }
    const bool in_parts = is_stored_in_parts(n, **s, result.width);
    if (in_parts) result.in_parts.insert(s->get());
    if (in_parts || is_aligned(n, *access_of(*s), result.width)) kept.push_back(s);
  }
  if (!result.anywhere.empty() && !runs_outside(n, &result)) return find_vectors(n, most);
  if (stores_beside(n, kept)) return std::nullopt;
  if ((kept.empty() && result.anywhere.empty()) || result.width < 2) return std::nullopt;
  for (const Stmt* s : kept) {
    result.names.emplace(s->get(), names_.unique("pack"));
    const Access& access = *access_of(*s);
    if (!dims_of_cut_pieces(n, access, result.width).empty())
      for (const Expr& end : {end_of_row(access), access.view.shape.back()}) {
        const std::string whole = fmt::format("{} % {} == 0", value(end), result.width);
        const bool known = divisor(affine(end), facts_) % result.width == 0;
        if (!known && !contains(result.conditions, whole)) result.conditions.push_back(whole);
      }
    add_conditions(n, access, result.width, result.conditions, dims_limited_by_piece(n, *s, result.width));
  }
  return result;
}

// A pointer to the element `first` positions after the one at the indices.
std::string ElementPrinter::part_pointer(const Access& access, int first) {
  Access own = access;
  Expr& last = own.index[static_cast<std::size_t>(access.view.dims.back().axis)];
  if (first > 0) last = make(Op::add, last->held(), {last, constant(last->held(), first)}, last->at);
  return address(own).pointer;
}

// Whether the statements may be run for elements that do not exist: all that they read or write are
// registers, and pieces that are loaded and stored only where they exist. Integers are divided by constants
// alone.
bool ElementPrinter::runs_outside(const For& n, const Vectors* vectors) const {
  bool result = true;
  for (const Stmt& s : n.body) {
    const Access* access = access_of(s);
    const bool in_registers = as<Let>(s) || (access && access->view.buffer->space == Space::fragment);
    result &= in_registers || (vectors && vectors->names.contains(s.get()));
    for_each_expr(s, [&](const Expr& e) { result &= !divides_integers(e); });
  }
  return result;
}

// Loads the pieces that the statement loads, or declares those that it stores; what stores them is given
// back. Only where a piece exists, which `exists` says if it is not empty, it is loaded and stored.
ElementPrinter::Texts ElementPrinter::begin_pieces(const For& n, const Vectors& vectors, const Stmt& s,
                                                   const std::string& exists) {
  if (vectors.anywhere.contains(s.get())) return begin_piece_anywhere(n, vectors, s, exists);
  const Access& access = *access_of(s);
  const std::string type = element_type(access.view.buffer->type), &name = vectors.names.at(s.get());
  if (vectors.in_parts.contains(s.get())) {
    out_.line(fmt::format("tg::Values<{}, {}> {};", type, vectors.width, name));
    Texts stores;
    for (int x = 0; x < vectors.width; x += values_of_part)
      stores.push_back(fmt::format("{}tg::store_part({}, {}, {});",
                                   exists.empty() ? "" : fmt::format("if ({}) ", exists),
                                   part_pointer(access, x), name, x));
    return stores;
  }
  if (supposes_alignment(*access.view.buffer)) aligned_ = access.view.buffer.get();
  unlimited_ = dims_known_before(n, access);
  const std::vector<std::size_t> own_limits = dims_limited_by_piece(n, s, vectors.width);
  for (const std::size_t d : own_limits) std::erase(unlimited_, d);
  const auto [pointer, within_limits] = address(access);
  const std::string is_inside = both(exists, own_limits.empty() ? std::string() : within_limits);
  unlimited_.clear();
  aligned_ = nullptr;
  if (as<Load>(s)) {
    const std::string asked = is_inside.empty() ? "" : ", " + is_inside;
    out_.line(fmt::format("const auto {} = tg::load_pack{}<{}>({}{});", name, asked.empty() ? "" : "_if",
                          vectors.width, pointer, asked));
    return {};
  }
  const bool is_moved = vectors.moved.contains(s.get());
  if (!is_moved) out_.line(fmt::format("tg::Pack<{}, {}> {};", type, vectors.width, name));
  const std::string asked = both(both(is_inside, only_one()), row_exists_);
  return {fmt::format("{}tg::{}({}, {});", asked.empty() ? "" : fmt::format("if ({}) ", asked),
                      as<Atomic>(s) ? "add_pack"
                      : is_moved    ? "store_piece"
                                    : "store_pack",
                      pointer, name)};
}

// What iterations of the loop load by pieces of tensors that are aligned.
void ElementPrinter::find_pieces(const For& n) {
  pieces_ = rows_found_ ? passes::PieceLoads{} : passes::piece_loads(n.body, facts_);
  std::erase_if(pieces_.loads, [&](const auto& load) {
    return !supposes_alignment(*pieces_.pieces[load.second.piece].first.view.buffer);
  });
}

// The name of the piece; the first of its loads brings it.
const std::string& ElementPrinter::loaded_piece(std::size_t number) {
  if (!pieces_in_front_.empty()) return pieces_in_front_[number];
  piece_names_.resize(pieces_.pieces.size());
  std::string& name = piece_names_[number];
  if (!name.empty()) return name;
  const auto& [first, width] = pieces_.pieces[number];
  require_aligned(first.view.buffer);
  aligned_ = first.view.buffer.get();
  const auto [pointer, guard] = address(first);
  aligned_ = nullptr;
  name = names_.unique("piece");
  out_.line(fmt::format("const auto {} = tg::load_pack{}<{}>({}{});", name, guard.empty() ? "" : "_if", width,
                        pointer, guard.empty() ? "" : ", " + guard));
  return name;
}

// The names of the indices are those of the first element; `element` names those of element `e` from there.
void ElementPrinter::by_vectors(const For& n, const Vectors& vectors, const std::string& exists,
                                const std::function<void()>& element) {
  Texts stores;
  for (const Stmt& s : n.body) {
    if (vectors.steady.contains(s.get())) body({s});
    if (!vectors.names.contains(s.get())) continue;
    for (std::string& store : begin_pieces(n, vectors, s, exists)) stores.push_back(std::move(store));
  }
  out_.line("#pragma unroll");
  out_.open(fmt::format("for (int e = 0; e < {}; ++e) {{", vectors.width));
  element();
  vectors_ = &vectors;
  body(n.body);
  vectors_ = nullptr;
  out_.close();
  for (const std::string& store : stores) out_.line(store);
}

void ElementPrinter::either(const Texts& conditions, const std::function<void()>& fast,
                            const std::function<void()>& slow) {
  if (conditions.empty()) return fast();
  out_.open(fmt::format("if ({}) {{", fmt::join(conditions, " && ")));
  fast();
  if (slow) out_.reopen("} else {"), slow();
  out_.close();
}

}  // namespace tegula::codegen
