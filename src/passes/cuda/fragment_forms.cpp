#include "passes/cuda/fragment_forms.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/element_bits.hpp"
#include "passes/cuda/fragment_axes.hpp"
#include "passes/cuda/operand_place.hpp"
#include "passes/cuda/rows_beside_sums.hpp"
#include "passes/cuda/word_sums.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

constexpr int block_columns = 64;  // of a swizzled block whose rows have 128 bytes

// Whether the value that is stored is the one that was loaded, as it is or rounded to the tile's type.
bool stores_loaded(const Store& store, const Load& load) {
  const bool is_cast = store.value->op == Op::cast && store.value->type == store.to.view.buffer->type;
  const Expr& value = is_cast ? store.value->args[0] : store.value;
  return value->op == Op::variable && value->variable == load.variable;
}

// The fragment that the loop stores as a whole, element by element, and the tile of its shape that gets it.
std::optional<Conversion> whole_store(const Stmt& s, const Layouts& layouts) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 2) return std::nullopt;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.buffer->space != Space::fragment) return std::nullopt;
  const BufferPtr &from = load->from.view.buffer, &to = store->to.view.buffer;
  if (!to->is_tile() || !stores_loaded(*store, *load)) return std::nullopt;
  const auto a = loop_axes(*loop, load->from), b = loop_axes(*loop, store->to);
  if (!a || !b || !layouts.fragments.contains(from.get())) return std::nullopt;
  const bool transposed = *a == std::vector<int>{b->rbegin(), b->rend()} && b->size() == 2;
  if (*a != *b && !transposed) return std::nullopt;
  return Conversion{from, to, transposed};
}

// A load of an element of a fragment and the store of its value, as it is or rounded.
std::optional<std::pair<const Access*, const Access*>> moved_element(const Stmt& first, const Stmt& second) {
  const auto* load = as<Load>(first);
  const auto* store = as<Store>(second);
  if (!load || !store || !fragment_access(first) || !fragment_access(second)) return std::nullopt;
  if (!stores_loaded(*store, *load)) return std::nullopt;
  return std::pair(&load->from, &store->to);
}

// Whether the elements are in equal registers of equal threads.
bool is_in_place(const ElementBits& from, const BitLayout& from_layout, const ElementBits& to,
                 const BitLayout& to_layout) {
  const auto equal = [&](const std::vector<int>& a, const std::vector<int>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](int x, int y) {
      return from[static_cast<std::size_t>(x)] == to[static_cast<std::size_t>(y)];
    });
  };
  return equal(from_layout.threads, to_layout.threads) && equal(from_layout.registers, to_layout.registers);
}

// A loop that stores a fragment as a whole with its elements in another order, but each thread its own
// registers.
std::optional<Conversion> store_in_place(const Stmt& s, const Layouts& layouts) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.empty() || loop->body.size() % 2 != 0)
    return std::nullopt;
  std::optional<Conversion> result;
  std::vector<ElementBits> stored;
  for (std::size_t i = 0; i < loop->body.size(); i += 2) {
    const auto moved = moved_element(loop->body[i], loop->body[i + 1]);
    if (!moved) return std::nullopt;
    const Conversion own{moved->first->view.buffer, moved->second->view.buffer};
    if (result && (own.from != result->from || own.to != result->to)) return std::nullopt;
    result = own;
    if (!layouts.fragments.contains(own.from.get()) || !layouts.fragments.contains(own.to.get()))
      return std::nullopt;
    const auto from = element_bits(*loop, *moved->first), to = element_bits(*loop, *moved->second);
    const auto from_layout = passes::bits_of(layouts.fragments.at(own.from.get())),
               to_layout = passes::bits_of(layouts.fragments.at(own.to.get()));
    if (!from || !to || !from_layout || !to_layout || !is_in_place(*from, *from_layout, *to, *to_layout))
      return std::nullopt;
    if (std::find(stored.begin(), stored.end(), *to) != stored.end()) return std::nullopt;
    stored.push_back(*to);
  }
  std::int64_t elements = static_cast<std::int64_t>(stored.size());
  for (const Expr& end : loop->end) elements *= is_constant(end) ? constant_value(end) : 0;
  return elements == result->to->elements() ? result : std::nullopt;
}

}  // namespace

bool reads_words(const Stmt& s, const Buffer& fragment, const Layouts& layouts) {
  const auto& loop = *as<For>(s);
  const auto own = layouts.fragments.find(&fragment);
  const auto layout = layouts.loops.find(s.get());
  if (own == layouts.fragments.end() || layout == layouts.loops.end()) return false;
  bool result = layout->second == own->second && own->second.replicas() == 1 && fragment.type.bits() == 16;
  std::vector<int> identity(loop.index.size());
  std::iota(identity.begin(), identity.end(), 0);
  for_each_stmt(loop.body, [&](const Stmt& inner) {
    const Access* access = fragment_access(inner);
    if (!access || access->view.buffer.get() != &fragment) return;
    result &= as<Load>(inner) && loop_axes(loop, *access) == identity;
  });
  return result;
}

namespace {

// Whether whoever reads the fragment in the loop stores its elements as they are in memory of its type, which
// rounds.
bool rounds_again(const For& loop, const Buffer& fragment) {
  std::unordered_set<const Variable*> elements;
  bool result = true;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    if (load && load->from.view.buffer.get() == &fragment) {
      elements.insert(load->variable.get());
      return;
    }
    const auto* store = as<Store>(s);
    const bool same = store && store->to.view.buffer->type == fragment.type &&
                      store->value->op == Op::variable && !as<If>(s);
    if (same && elements.contains(store->value->variable.get())) return;
    for (const VariablePtr& v : effects(s).used) result &= !elements.contains(v.get());
  });
  return result;
}

Buffers packed_of(const Body& body, const Computing& own) {
  Buffers packed;
  Buffers other;  // used in another way
  const std::function<void(const Body&)> walk = [&](const Body& statements) {
    for (const Stmt& s : statements) {
      if (const auto found = conversion(s, own.layouts)) {
        packed.insert(found->to.get());
        other.insert(found->from.get());
        continue;
      }
      if (matrix_store(s, own)) continue;  // takes words as they are
      const auto* gemm = as<Gemm>(s);
      const bool is_loop = as<For>(s) && as<For>(s)->kind == LoopKind::parallel;
      const Effects e = is_loop ? all_effects(s) : effects(s);
      for (const Region& r : e.regions) {
        const Buffer* buffer = r.view->buffer.get();
        if (gemm && buffer == gemm->a.buffer.get()) {
          const GemmPlan plan = plan_gemm(*gemm, own.threads, own.target);
          const auto layout = own.layouts.fragments.find(buffer);
          const bool takes_words = plan.instruction == GemmInstruction::wgmma || gemm->hints.by_warp;
          if (takes_words && plan.a_in_registers && layout != own.layouts.fragments.end() &&
              layout->second == plan.operand_a)
            continue;
        }
        if (is_loop && reads_words(s, *buffer, own.layouts)) continue;
        other.insert(buffer);
      }
      if (!is_loop) for_each_body(s, walk);
    }
  };
  walk(body);
  std::erase_if(packed, [&](const Buffer* buffer) { return other.contains(buffer); });
  return packed;
}

// Fragments of small floats whose every reader rounds: a product, which takes pairs, or a store. They hold
// what was computed, so that it is rounded once, and in pairs.
Buffers unrounded_of(const Body& body, const Computing& own, const Buffers& packed) {
  Buffers unrounded;
  Buffers other;  // read as they are held
  const std::function<void(const Body&)> walk = [&](const Body& statements) {
    for (const Stmt& s : statements) {
      if (const auto* declared = as<Declare>(s)) {
        const Buffer& tile = *declared->tile;
        if (tile.space == Space::fragment && tile.type.is_floating() && tile.type.bits() < 32)
          unrounded.insert(&tile);
        continue;
      }
      const auto* gemm = as<Gemm>(s);
      const auto* loop = as<For>(s);
      const bool is_loop = loop && loop->kind == LoopKind::parallel;
      const Effects e = is_loop ? all_effects(s) : effects(s);
      for (const Region& r : e.regions) {
        const Buffer* buffer = r.view->buffer.get();
        const bool product = gemm && buffer == gemm->a.buffer.get() && buffer != gemm->c.buffer.get() &&
                             plan_gemm(*gemm, own.threads, own.target).a_in_registers;
        if (!product && !(is_loop && rounds_again(*loop, *buffer))) other.insert(buffer);
      }
      if (!is_loop) for_each_body(s, walk);
    }
  };
  walk(body);
  std::erase_if(unrounded, [&](const Buffer* b) { return other.contains(b) || packed.contains(b); });
  return unrounded;
}

// Rows that the loop computes from its own, element by element.
bool takes_other_rows(const For& loop, const Access& access) {
  const std::vector<Expr> at = coordinates(access);
  return at.size() == 2 && at[0]->op != Op::variable && !is_constant(at[0]) && at[1]->op == Op::variable &&
         at[1]->variable == loop.index[1];
}

// Words of several elements, in rows of 128 bytes or more: lanes that read the same word of eight rows would
// meet in one bank. The words of shorter rows are neighbours for a thread, which reads several at once if
// they stay where they are.
bool reads_long_words(const For& loop, const Access& access) {
  constexpr std::int64_t words_of_all_banks = 32;
  const Buffer& tile = *access.view.buffer;
  const std::vector<Expr> at = coordinates(access);
  return tile.space == Space::shared && tile.rank() == 2 && tile.type == u32 && at.size() == 2 &&
         tile.extent(1) >= words_of_all_banks && !is_variable(at[1], loop.index[1]) && !is_constant(at[1]);
}

void add_turned(const For& loop, Buffers& result) {
  if (loop.index.size() != 2) return;
  bool has_fragment = false;
  Buffers turned;
  for_each_stmt(loop.body, [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    const auto* store = as<Store>(s);
    const Access* access = load ? &load->from : store ? &store->to : nullptr;
    if (!access || !access->view.buffer->is_tile()) return;
    const Buffer& buffer = *access->view.buffer;
    const auto axes = loop_axes(loop, *access);
    has_fragment |= buffer.space == Space::fragment && axes == std::vector<int>{0, 1};
    if (buffer.space == Space::shared && buffer.type.is_floating() && buffer.type.bits() == 16 &&
        (axes == std::vector<int>{1, 0} || takes_other_rows(loop, *access)))
      turned.insert(&buffer);
    if (load && reads_long_words(loop, *access)) turned.insert(&buffer);
  });
  if (has_fragment) result.merge(turned);
}

}  // namespace

Buffers turned_tiles(const Body& body) {
  Buffers result;
  for_each_stmt(body, [&](const Stmt& s) {
    if (const auto* loop = as<For>(s); loop && loop->kind == LoopKind::parallel) add_turned(*loop, result);
  });
  return result;
}

Buffers operands_of(const Body& body) {
  Buffers result = tiles_with_conflicts(body);
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    if (!gemm) return;
    for (const View* operand : {&gemm->a, &gemm->b}) {
      const bool by_vectors =
          operand->buffer->type == f32 && is_matrix(*operand) && lies_along_k(*gemm, *operand);
      if (is_on_tensor_cores(*gemm) || by_vectors) result.insert(operand->buffer.get());
    }
  });
  return result;
}

Buffers plain_operands(const Body& body) {
  Buffers result;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* gemm = as<Gemm>(s);
    if (gemm && gemm->a.buffer->type.bits() == 32)
      result.insert({gemm->a.buffer.get(), gemm->b.buffer.get()});
  });
  return result;
}

std::optional<Conversion> conversion(const Stmt& s, const Layouts& layouts) {
  if (auto bytes = store_in_place(s, layouts);
      bytes && bytes->from->type == f32 && bytes->to->type.is_floating() && bytes->to->type.bits() == 8 &&
      layouts.fragments.at(bytes->to.get()).register_count() % 8 == 0)
    return bytes;
  const auto found = whole_store(s, layouts);
  if (!found || found->transposed || found->from->type != f32 || found->to->space != Space::fragment ||
      found->to->type.bits() != 16)
    return std::nullopt;
  const auto to_layout = layouts.fragments.find(found->to.get());
  if (to_layout == layouts.fragments.end() || to_layout->second.register_count() % 2 != 0 ||
      to_layout->second != layouts.fragments.at(found->from.get()))
    return std::nullopt;
  return found;
}

namespace {

// A conversion by whole warp groups to a tile of blocks of columns.
std::optional<Conversion> stored_by_matrices(const Stmt& s, const Computing& own) {
  const auto found = whole_store(s, own.layouts);
  if (!found || found->to->space != Space::shared || found->to->rank() != 2) return std::nullopt;
  const BufferPtr &from = found->from, &to = found->to;
  const bool converts = from->type == f32 || from->type == to->type;
  if (!to->type.is_floating() || to->type.bits() != 16 || !converts) return std::nullopt;
  const std::int64_t m = from->extent(0), n = from->extent(1), groups = own.threads / 128;
  if (!own.target.has_wgmma() || own.threads % 128 != 0 || m % (64 * groups) != 0) return std::nullopt;
  if (found->transposed ? n % 16 != 0 || swizzled_order(*to).columns != block_columns
                        : n % block_columns != 0)
    return std::nullopt;
  if (own.layouts.fragments.at(from.get()) != layout::wgmma_accumulator(m, n, {groups, 1}))
    return std::nullopt;
  return found;
}

// Whether the loop touches the elements of its tile along rows, so that it can take 16 bytes at a time.
bool goes_along_rows(const For& loop, const Access& access) {
  const std::vector<Expr> at = coordinates(access);
  return !at.empty() && !loop.index.empty() && is_variable(at.back(), loop.index.back());
}

void add_not_along_rows(const For& loop, Buffers& other) {
  for_each_stmt(loop.body, [&](const Stmt& s) {
    const auto* load = as<Load>(s);
    if (load && goes_along_rows(loop, load->from)) return;
    for (const Region& r : effects(s).regions) other.insert(r.view->buffer.get());
  });
}

}  // namespace

std::optional<Conversion> matrix_store(const Stmt& s, const Computing& own) {
  auto found = stored_by_matrices(s, own);
  if (found && !own.operands.contains(found->to.get())) return std::nullopt;
  return found;
}

Buffers staging_tiles(const Body& body, const Computing& own) {
  Buffers result, other;
  const std::function<void(const Body&)> walk = [&](const Body& statements) {
    for (const Stmt& s : statements) {
      if (const auto found = stored_by_matrices(s, own); found && !found->transposed) {
        result.insert(found->to.get());
        continue;
      }
      const auto* loop = as<For>(s);
      if (loop && loop->kind == LoopKind::parallel) {
        add_not_along_rows(*loop, other);
        continue;
      }
      // Threads store a tile by whole rows.
      if (const auto* copy = as<Copy>(s); copy && !copy->to.is_tile()) continue;
      if (!as<Declare>(s))
        for (const Region& r : effects(s).regions) other.insert(r.view->buffer.get());
      for_each_body(s, walk);
    }
  };
  walk(body);
  std::erase_if(result, [&](const Buffer* b) { return other.contains(b); });
  return result;
}

std::optional<Conversion> matrix_load(const Stmt& s, const Computing& own) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 2 || own.threads % 128 != 0 ||
      !own.target.has_wgmma())
    return std::nullopt;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || !own.operands.contains(load->from.view.buffer.get())) return std::nullopt;
  const BufferPtr &from = load->from.view.buffer, &to = store->to.view.buffer;
  const bool is_value = store->value->op == Op::variable && store->value->variable == load->variable;
  if (!is_value || from->rank() != 2 || to->rank() != 2 || to->space != Space::fragment ||
      !own.layouts.fragments.contains(to.get()))
    return std::nullopt;
  const std::int64_t m = to->extent(0), n = to->extent(1), groups = own.threads / 128;
  const bool is_whole = from->extent(0) == n && from->extent(1) == m && m == 64 * groups && n % 16 == 0 &&
                        loop_axes(*loop, load->from) == std::vector<int>{1, 0} &&
                        loop_axes(*loop, store->to) == std::vector<int>{0, 1};
  if (!is_whole || from->type != to->type || swizzled_order(*from).columns != block_columns ||
      own.layouts.fragments.at(to.get()) != layout::wgmma_accumulator(m, n, {groups, 1}))
    return std::nullopt;
  return Conversion{from, to, true};
}

FragmentForms fragment_forms(const Body& body, const Computing& own) {
  FragmentForms result{packed_of(body, own), {}, {}};
  result.factored = factored_fragments(body, own.layouts, result.packed);
  result.packed.merge(sums_in_words(body, own));
  result.unrounded = unrounded_of(body, own, result.packed);
  return result;
}

}  // namespace tegula::passes
