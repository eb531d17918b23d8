#include "passes/cuda/fragments_ahead.hpp"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

#include "ir/visit.hpp"
#include "passes/cuda/copy_rings.hpp"
#include "passes/cuda/elements.hpp"
#include "passes/plain_control.hpp"

namespace tegula::passes {

using namespace ir;

namespace {

// A loop over all elements of a fragment that takes each from a tensor, perhaps with another value outside.
struct FragmentLoad {
  const For* loop = nullptr;
  const Load* load = nullptr;
  const Store* store = nullptr;
};

// The element at the loop's own indices; one of a single step is 0.
bool is_index(const Access& access, const For& loop) {
  if (access.index.size() != loop.index.size()) return false;
  for (std::size_t d = 0; d < access.index.size(); ++d) {
    const bool one = is_constant(loop.end[d], 1) && is_constant(access.index[d], 0);
    if (!one && !is_variable(access.index[d], loop.index[d])) return false;
  }
  return true;
}

std::optional<FragmentLoad> fragment_load(const Stmt& s) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.empty() || loop->body.size() != 2)
    return std::nullopt;  // a loop without indices is for one element
  const auto* load = as<Load>(loop->body[0]);
  const auto* store = as<Store>(loop->body[1]);
  if (!load || !store || load->from.view.is_tile()) return std::nullopt;
  if (store->to.view.buffer->space != Space::fragment || !is_whole(store->to.view)) return std::nullopt;
  if (!is_index(load->from, *loop) || !is_index(store->to, *loop)) return std::nullopt;
  for (std::size_t d = 0; d < loop->end.size(); ++d)
    if (!is_constant(loop->end[d]) || !is_constant(loop->begin[d], 0)) return std::nullopt;
  const int bytes = load->from.view.buffer->type.bytes();
  if (bytes > 4 || constant_value(loop->end.back()) * bytes % 16 != 0) return std::nullopt;
  return FragmentLoad{loop, load, store};
}

bool has_products(const Body& body) {
  bool found = false;
  for_each_stmt(body, [&](const Stmt& s) { found |= as<Gemm>(s) != nullptr; });
  return found;
}

// The condition with the indices at their ends: where it holds there, no element is missing. Nothing if the
// condition is no conjunction of comparisons.
Expr of_corners(const Expr& e, const For& loop) {
  if (e->op == Op::logical_and) {
    const Expr a = of_corners(e->args[0], loop), b = of_corners(e->args[1], loop);
    return a && b ? make(Op::logical_and, boolean, {a, b}, e->at) : nullptr;
  }
  if (e->op != Op::lt && e->op != Op::ge) return nullptr;
  Substitution by;
  for (std::size_t d = 0; d < loop.index.size(); ++d) {
    const std::int64_t last = constant_value(loop.end[d]) - 1;
    by.emplace(loop.index[d], constant(loop.index[d]->type, e->op == Op::lt ? last : 0, e->at));
  }
  return substitute(e, by);
}

// The elements from the tile. Where all of them exist, none is asked.
Body from_tile(const FragmentLoad& n, const BufferPtr& tile, const Stmt& s) {
  For loop = *n.loop;
  loop.body[0] = statement(Load{n.load->variable, {whole(tile), n.load->from.index}}, loop.body[0]->at);
  const Stmt asking = statement(loop, s->at);
  const Expr& value = n.store->value;
  const Expr whole = value->op == Op::select ? of_corners(value->args[0], loop) : nullptr;
  if (!whole) return {asking};
  Store store = *n.store;
  store.value = value->args[1];
  loop.body[1] = statement(store, loop.body[1]->at);
  const Body all = fresh_copy({statement(loop, s->at)});
  return {statement(If{whole, all, {asking}}, s->at)};
}

using Statements = std::unordered_set<const StmtNode*>;

// A tile that was put between a tensor and a fragment, with the loop and the load as they were.
struct TileBetween {
  BufferPtr tile;
  const StmtNode *loop, *load;
};

class Rewriting {
 public:
  explicit Rewriting(const Statements& staying) : staying_(staying) {}

  Body body(const Body& statements) {
    Body result;
    for (const Stmt& s : statements) result.push_back(stmt(s));
    return result;
  }
  const std::vector<TileBetween>& tiles() const { return tiles_; }

 private:
  Stmt stmt(const Stmt& s) {
    const auto* loop = as<For>(s);
    if (loop && loop->kind != LoopKind::serial && loop->kind != LoopKind::unrolled &&
        loop->kind != LoopKind::pipelined)
      return s;
    const bool wanted = loop && loop->kind == LoopKind::pipelined && loop->stages != 1 &&
                        !has_one_step(*loop) && !has_products(loop->body) && !staying_.contains(s.get());
    if (wanted) return statement(with_tiles(*loop, s), s->at);
    Mapping mapping;
    mapping.body = [&](const Body& inner) { return body(inner); };
    return map(s, mapping);
  }

  For with_tiles(const For& loop, const Stmt& s) {
    For result = loop;
    result.body.clear();
    for (const Stmt& own : loop.body) {
      const auto found = fragment_load(own);
      if (!found || staying_.contains(own.get())) {
        result.body.push_back(own);
        continue;
      }
      const View& from = found->load->from.view;
      const BufferPtr tile = new_tile("ahead", Space::shared, from.buffer->type, found->loop->end, own->at);
      tiles_.push_back({tile, s.get(), own.get()});
      result.body.push_back(statement(Declare{tile}, own->at));
      result.body.push_back(statement(Copy{from, whole(tile), nullptr}, own->at));
      for (const Stmt& part : from_tile(*found, tile, own)) result.body.push_back(part);
    }
    return result;
  }

  const Statements& staying_;  // loops, or single loads, that are as they were
  std::vector<TileBetween> tiles_;
};

// Whether the loop's other tiles are those that a loop before it has left.
bool goes_back(const StmtNode* loop, const std::vector<TileBetween>& tiles, const CopyRings& rings) {
  return std::any_of(rings.loops.begin(), rings.loops.end(), [&](const auto& entry) {
    const std::vector<BufferPtr>& own = entry.second.tiles;
    return entry.second.goes_back && std::any_of(tiles.begin(), tiles.end(), [&](const TileBetween& n) {
             return n.loop == loop && std::find(own.begin(), own.end(), n.tile) != own.end();
           });
  });
}

// Whether tiles of the loop, or of one inside it, have slots in `before` and not all of them in `after`.
bool loses_slots(const StmtNode* loop, const CopyRings& before, const CopyRings& after) {
  const auto loses = [&](const StmtNode* any) {
    const auto own = before.loops.find(any);
    return own != before.loops.end() &&
           std::any_of(own->second.tiles.begin(), own->second.tiles.end(),
                       [&](const BufferPtr& tile) { return !after.tiles.contains(tile.get()); });
  };
  bool result = loses(loop);
  for_each_stmt(std::get<For>(loop->node).body, [&](const Stmt& s) { result |= loses(s.get()); });
  return result;
}

}  // namespace

void bring_fragments_ahead(Kernel& kernel, std::size_t number, const CudaTarget& target) {
  Statements staying;
  const CopyRings before = plan_copy_rings(kernel, number, target);
  for (;;) {
    Rewriting rewriting(staying);
    Kernel ahead = kernel;
    ahead.grids[number].body = rewriting.body(kernel.grids[number].body);
    if (rewriting.tiles().empty()) return;
    const CopyRings rings = plan_copy_rings(ahead, number, target);
    const std::size_t known = staying.size();
    for (const auto& [tile, loop, load] : rewriting.tiles())
      if (!rings.tiles.contains(tile.get()) || loses_slots(loop, before, rings))
        staying.insert(goes_back(loop, rewriting.tiles(), rings) ? load : loop);
    if (staying.size() > known) continue;
    kernel = std::move(ahead);
    return;
  }
}

}  // namespace tegula::passes
