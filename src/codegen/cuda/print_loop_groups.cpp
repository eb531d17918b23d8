// Loops over elements one after another that load tiles of registers, compute with them and store them. Each
// has a form for elements that exist and are contiguous, and another one. Asked loop by loop, a tile would
// have to arrive before the next one's loads are issued, since both forms leave the same registers; and what
// came packed would be unpacked. So there is one question for all of them.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/cuda/grid_printer.hpp"
#include "passes/cuda/element_loops.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Limit for the tiles whose loads are in flight together, if there are more than two.
constexpr std::int64_t most_registers = 64;

// Whether it computes with registers, or stores them: loads after it would take the place of others.
bool reads_fragments(const For& n) {
  return std::any_of(n.body.begin(), n.body.end(), [](const Stmt& s) {
    const auto* load = as<Load>(s);
    return load && load->from.view.buffer->space == Space::fragment;
  });
}

bool loads_tensors(const For& n) {
  return std::any_of(n.body.begin(), n.body.end(), [](const Stmt& s) {
    const auto* load = as<Load>(s);
    return load && !load->from.view.is_tile();
  });
}

struct MemoryAccess {
  const For* loop;
  const Access* access;
  bool writes;
};

void add_accesses(const For& n, std::vector<MemoryAccess>& result) {
  for (const Stmt& s : n.body) {
    const auto* load = as<Load>(s);
    const auto* store = as<Store>(s);
    const Access* access = load ? &load->from : store ? &store->to : nullptr;
    if (access && access->view.buffer->space != Space::fragment)
      result.push_back({&n, access, store != nullptr});
  }
}

// The smallest or largest value of a sum with constant factors over the indices of the loop.
std::optional<Affine> extreme(const For& n, const Expr& e, bool largest) {
  if (!has_affine_form(e->held())) return std::nullopt;
  Substitution by;
  for (const Affine::Term& term : affine(e).terms) {
    const auto& atom = *term.atom;
    const auto found = std::find(n.index.begin(), n.index.end(), atom.variable);
    if (atom.op != Op::variable || found == n.index.end()) continue;
    const Expr& end = n.end[static_cast<std::size_t>(found - n.index.begin())];
    if (!is_constant(end)) return std::nullopt;
    const std::int64_t last = constant_value(end) - 1;
    by.emplace(atom.variable, constant(atom.type, (term.factor > 0) == largest ? last : 0));
  }
  return affine(substitute(e, by));
}

// Whether no element of one is one of the other, in whatever iterations.
bool apart(const MemoryAccess& a, const MemoryAccess& b) {
  if (!is_own_shape(a.access->view) || !is_own_shape(b.access->view)) return false;
  const std::vector<Expr> x = coordinates(*a.access), y = coordinates(*b.access);
  const auto before = [](const For& m, const Expr& low, const For& n, const Expr& high) {
    const auto last = extreme(m, low, true), first = extreme(n, high, false);
    const auto gap = last && first ? difference(*first, *last) : std::nullopt;
    return gap && gap->terms.empty() && gap->constant > 0;
  };
  for (std::size_t d = 0; d < x.size(); ++d)
    if (before(*a.loop, x[d], *b.loop, y[d]) || before(*b.loop, y[d], *a.loop, x[d])) return true;
  return false;
}

}  // namespace

// The layout by which a loop goes whose elements are in memory or in registers of the thread that has the
// iteration, if nothing better is known for it.
const layout::Layout* CudaGridPrinter::plain_registers(const For& n, const Stmt& s) const {
  const bool is_plain =
      n.kind == LoopKind::parallel && std::all_of(n.body.begin(), n.body.end(), [](const Stmt& inner) {
        return as<Let>(inner) || as<Load>(inner) || as<Store>(inner);
      });
  if (!is_plain || !passes::is_by_register(n, s, layouts_)) return nullptr;
  if (const auto found = passes::conversion(s, layouts_);
      found && plan_.forms.packed.contains(found->to.get()))
    return nullptr;
  if (const auto found = passes::filling(s); found && plan_.forms.packed.contains(found->to.get()))
    return nullptr;
  if (const auto rows = passes::plan_rows(s); rows || !rows.reason().why.empty()) return nullptr;
  if (passes::matrix_store(s, computing()) || matrix_load(s) ||
      passes::plan_row_store(s, layouts_, team_.threads, target_, dealt_group(), facts_))
    return nullptr;
  return &layouts_.loops.at(s.get());
}

// Whether no thread has to wait between the loops before and this one.
bool CudaGridPrinter::goes_with(const For& n, std::span<const Stmt> before) const {
  std::vector<MemoryAccess> others, own;
  for (const Stmt& s : before)
    if (const auto* loop = as<For>(s)) add_accesses(*loop, others);
  add_accesses(n, own);
  const auto same_memory = [&](const Buffer* a, const Buffer* b) {
    return a->is_tile() || b->is_tile() ? a == b : memory_of_.at(a) == memory_of_.at(b);
  };
  for (const MemoryAccess& a : others) {
    for (const MemoryAccess& b : own) {
      const Buffer *x = a.access->view.buffer.get(), *y = b.access->view.buffer.get();
      if ((a.writes || b.writes) && same_memory(x, y) && (x != y || !apart(a, b))) return false;
    }
  }
  return true;
}

// How many statements from `first` on share a question; 0 where fewer than two loops have one.
std::size_t CudaGridPrinter::loops_together(const Body& statements, std::size_t first) const {
  if (loop_ || is_ahead_ || any_products_ || !part_.is_all()) return 0;
  std::size_t loops = 0, end = first;
  std::int64_t loaded = 0;
  bool computes = false;
  for (std::size_t i = first; i < statements.size(); ++i) {
    const auto* declared = as<Declare>(statements[i]);
    if (loops > 0 && declared && declared->tile->space == Space::fragment) continue;
    const auto* n = as<For>(statements[i]);
    const Layout* layout = n ? plain_registers(*n, statements[i]) : nullptr;
    if (!layout || !goes_with(*n, std::span(statements).subspan(first, i - first))) break;
    if (computes && loads_tensors(*n)) break;
    computes |= reads_fragments(*n);
    const auto along = run_along_rows(*layout, true) > 1 ? row_accesses(*n) : std::nullopt;
    if (along && !along->empty()) {
      loaded += loads_tensors(*n) ? layout->register_count() : 0;
      if (loops > 1 && loaded > most_registers) break;
      ++loops, end = i + 1;
    }
    if (loops == 0) break;
  }
  return loops > 1 ? end - first : 0;
}

void CudaGridPrinter::print_together(std::span<const Stmt> statements) {
  std::vector<const Stmt*> loops;
  for (const Stmt& s : statements) {
    if (as<Declare>(s))
      stmt(s);
    else
      loops.push_back(&s);
  }
  out_.code();
  for (const Stmt* s : loops) touch_all(as<For>(*s)->body);
  out_.open("{");
  const Facts before = facts_;
  std::vector<std::optional<Vectors>> vectors;
  Texts conditions;
  for (const Stmt* s : loops) {
    const auto& n = *as<For>(*s);
    add_indices(n);
    vectors.push_back(vectors_of(n, layouts_.loops.at(s->get())));
    for (const std::string& condition : vectors.back() ? vectors.back()->conditions : Texts{})
      if (std::find(conditions.begin(), conditions.end(), condition) == conditions.end())
        conditions.push_back(condition);
    facts_ = before;
  }
  const auto each = [&](bool all_exist) {
    for (std::size_t i = 0; i < loops.size(); ++i) {
      const auto& n = *as<For>(*loops[i]);
      if (all_exist)
        register_loop(n, *loops[i], vectors[i] ? &*vectors[i] : nullptr);
      else
        register_loop(n, *loops[i]);
      facts_ = before;
    }
  };
  either(
      conditions, [&] { each(true); }, [&] { each(false); });
  out_.close();
}

}  // namespace tegula::codegen
