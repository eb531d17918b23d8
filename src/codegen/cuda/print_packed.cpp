// Fragments of 16-bit floats that feed products from registers: held as words of two, which are made where
// they are converted, stored to shared memory as they are, and otherwise only read.
#include <fmt/format.h>

#include <numeric>

#include "codegen/cuda/grid_printer.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

// The fragment that the loop stores as a whole, element by element, and the tile of its shape that gets it.
std::optional<CudaGridPrinter::Conversion> CudaGridPrinter::whole_store(const Stmt& s) const {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 2) return std::nullopt;
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.buffer->space != Space::fragment) return std::nullopt;
  const BufferPtr &from = load->from.view.buffer, &to = store->to.view.buffer;
  if (!to->is_tile()) return std::nullopt;
  const bool is_cast = store->value->op == Op::cast && store->value->type == to->type;
  const Expr& value = is_cast ? store->value->args[0] : store->value;
  if (value->op != Op::variable || value->variable != load->variable) return std::nullopt;
  const auto a = passes::loop_axes(*loop, load->from), b = passes::loop_axes(*loop, store->to);
  if (!a || !b || !layouts_.fragments.contains(from.get())) return std::nullopt;
  const bool turned = *a == std::vector<int>{b->rbegin(), b->rend()} && b->size() == 2;
  if (*a != *b && !turned) return std::nullopt;
  return Conversion{from, to, turned};
}

// To a fragment of 16-bit floats, of which each thread has pairs.
std::optional<CudaGridPrinter::Conversion> CudaGridPrinter::conversion(const Stmt& s) const {
  const auto found = whole_store(s);
  if (!found || found->turned || found->from->type != f32 || found->to->space != Space::fragment ||
      found->to->type.bits() != 16)
    return std::nullopt;
  const auto to_layout = layouts_.fragments.find(found->to.get());
  if (to_layout == layouts_.fragments.end() || to_layout->second.register_count() % 2 != 0 ||
      to_layout->second != layouts_.fragments.at(found->from.get()))
    return std::nullopt;
  return found;
}

// Whether a loop over elements only reads the fragment, each thread its own registers.
bool CudaGridPrinter::reads_words(const Stmt& s, const Buffer& fragment) const {
  const auto& loop = *as<For>(s);
  const auto own = layouts_.fragments.find(&fragment);
  const auto layout = layouts_.loops.find(s.get());
  if (own == layouts_.fragments.end() || layout == layouts_.loops.end()) return false;
  bool result = layout->second == own->second && own->second.replicas() == 1;
  std::vector<int> identity(loop.index.size());
  std::iota(identity.begin(), identity.end(), 0);
  for_each_stmt(loop.body, [&](const Stmt& inner) {
    const Access* access = passes::fragment_access(inner);
    if (!access || access->view.buffer.get() != &fragment) return;
    result &= as<Load>(inner) && passes::loop_axes(loop, *access) == identity;
  });
  return result;
}

void CudaGridPrinter::find_packed(const Body& body) {
  packed_.clear();
  std::unordered_set<const Buffer*> other;  // used in another way
  const std::function<void(const Body&)> walk = [&](const Body& statements) {
    for (const Stmt& s : statements) {
      if (const auto found = conversion(s)) {
        packed_.insert(found->to.get());
        other.insert(found->from.get());
        continue;
      }
      if (matrix_store(s)) continue;  // takes words as they are
      const auto* gemm = as<Gemm>(s);
      const bool is_loop = as<For>(s) && as<For>(s)->kind == LoopKind::parallel;
      const Effects e = is_loop ? all_effects(s) : effects(s);
      for (const Region& r : e.regions) {
        const Buffer* buffer = r.view->buffer.get();
        if (gemm && buffer == gemm->a.buffer.get()) {
          const passes::GemmPlan plan = passes::plan_gemm(*gemm, team_.threads, target_);
          const auto layout = layouts_.fragments.find(buffer);
          const bool takes_words = plan.instruction == passes::GemmInstruction::wgmma || gemm->hints.by_warp;
          if (takes_words && plan.a_in_registers && layout != layouts_.fragments.end() &&
              layout->second == plan.operand_a)
            continue;
        }
        if (is_loop && reads_words(s, *buffer)) continue;
        other.insert(buffer);
      }
      if (!is_loop) for_each_body(s, walk);
    }
  };
  walk(body);
  std::erase_if(packed_, [&](const Buffer* buffer) { return other.contains(buffer); });
}

// Whether whoever reads the fragment in the loop stores its elements as they are in memory of its type, which
// rounds.
bool CudaGridPrinter::rounds_again(const For& loop, const Buffer& fragment) const {
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

// Fragments of small floats whose every reader rounds: a product, which takes pairs, or a store. They hold
// what was computed, so that it is rounded once, and in pairs.
void CudaGridPrinter::find_unrounded(const Body& body) {
  unrounded_.clear();
  std::unordered_set<const Buffer*> other;  // read as they are held
  const std::function<void(const Body&)> walk = [&](const Body& statements) {
    for (const Stmt& s : statements) {
      if (const auto* declared = as<Declare>(s)) {
        const Buffer& tile = *declared->tile;
        if (tile.space == Space::fragment && tile.type.is_floating() && tile.type.bits() < 32)
          unrounded_.insert(&tile);
        continue;
      }
      const auto* gemm = as<Gemm>(s);
      const auto* loop = as<For>(s);
      const bool is_loop = loop && loop->kind == LoopKind::parallel;
      const Effects e = is_loop ? all_effects(s) : effects(s);
      for (const Region& r : e.regions) {
        const Buffer* buffer = r.view->buffer.get();
        const bool product = gemm && buffer == gemm->a.buffer.get() && buffer != gemm->c.buffer.get() &&
                             passes::plan_gemm(*gemm, team_.threads, target_).a_in_registers;
        if (!product && !(is_loop && rounds_again(*loop, *buffer))) other.insert(buffer);
      }
      if (!is_loop) for_each_body(s, walk);
    }
  };
  walk(body);
  std::erase_if(unrounded_, [&](const Buffer* b) { return other.contains(b) || packed_.contains(b); });
}

void CudaGridPrinter::pack(const Conversion& n, const Loc& at) {
  const FragmentTile &from = fragments_.at(n.from.get()), &to = fragments_.at(n.to.get());
  out_.code();
  out_.line("#pragma unroll");
  const std::int64_t words = to.layout.register_count() / 2;
  out_.line(fmt::format("for (int r = {}; r < {}; ++r) {}[r] = tg::pair<{}>({}[2 * r], {}[2 * r + 1]);",
                        words * part_.first / 16, words * part_.last / 16, to.name, element_type(n.to->type),
                        from.name, from.name),
            at);
}

}  // namespace tegula::codegen
