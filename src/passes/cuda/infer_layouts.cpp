#include "passes/cuda/infer_layouts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/effects.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/fragment_axes.hpp"
#include "passes/cuda/lane_sums.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/memory_of_loops.hpp"

namespace tegula::passes {

using namespace ir;
using layout::Layout;

namespace {

constexpr int held_depth = 1 << 20;     // deeper than any product
constexpr int most_bytes_anywhere = 4;  // of elements whose rows may end within a piece

// A fragment, or a loop; those of one class have one layout.
struct Node {
  int parent;
  layout::Coordinates shape;
  int threads = 0;
  int vector = 1;          // elements of memory that a thread best takes at a time
  bool is_whole = false;   // in pieces of rows that exist or do not, as tiles in shared memory have them
  bool is_stored = false;  // to tensors
  std::optional<Layout> fixed;
  int depth = -1;  // of the product that fixed it
};

// layout(child) = projected(layout(parent), axes)
struct Edge {
  int parent, child, depth;
  std::vector<int> axes;
  const Reduce* sum = nullptr;  // that makes the child of the parent
};

// A loop that meets the fragment through a reshaped view, or several elements at a time.
struct LoopAround {
  int fragment, loop;
  const For* statement;
  const Access* access;
};

std::size_t count_mentions(const Body& body, const Buffer* tile) {
  std::size_t count = 0;
  for_each_stmt(body, [&](const Stmt& s) {
    for_each_view(s, [&](const View& view) { count += view.buffer.get() == tile ? 1 : 0; });
  });
  return count;
}

layout::Coordinates shape_of(const std::vector<Expr>& extents) {
  layout::Coordinates result;
  for (const Expr& e : extents) result.push_back(constant_value(e));
  return result;
}

class Inference {
 public:
  Inference(const CudaTarget& target, const HeldFragments& held,
            const std::unordered_set<const Buffer*>& anywhere)
      : target_(target), held_(held), anywhere_(anywhere) {}
  void collect(const Body& body, int threads, int depth);
  Layouts solve(const Body& body, bool cuts_rows);

 private:
  int node(const layout::Coordinates& shape, int threads);
  int find(int n);
  void keep_whole(int n) { nodes_[static_cast<std::size_t>(find(n))].is_whole = true; }
  void join(int a, int b);
  void anchor(const Buffer* buffer, const Layout& layout, int depth);
  void loop(const Stmt& s, const For& n, int threads, int depth);
  void around_held(int self, const For& n, const Access& access);
  void copy(const Copy& n);
  void fix(int n, const Layout& layout);
  bool propagate(const Body& body);
  std::optional<layout::LaneShares> shared(const Edge& edge, const Layout& sums, const Body& body);
  bool propagate_around();
  bool goes_with_sums(int n);
  bool waits_for_memory(int n);
  int choose();

  const CudaTarget& target_;
  const HeldFragments& held_;
  const std::unordered_set<const Buffer*>& anywhere_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<LoopAround> around_;
  std::vector<std::pair<int, int>> sums_;  // fragments that are reduced, and where to
  std::unordered_map<const Buffer*, int> fragments_;
  std::unordered_map<const StmtNode*, int> loops_;
  std::vector<std::pair<int, const For*>> statements_;  // of the loops
  std::unordered_map<const Buffer*, std::vector<layout::Halving>> shares_;
};

int Inference::node(const layout::Coordinates& shape, int threads) {
  const int n = static_cast<int>(nodes_.size());
  nodes_.push_back({n, shape, threads, 1, false, false, std::nullopt, -1});
  return n;
}

int Inference::find(int n) {
  while (nodes_[static_cast<std::size_t>(n)].parent != n) n = nodes_[static_cast<std::size_t>(n)].parent;
  return n;
}

void Inference::join(int a, int b) {
  a = find(a), b = find(b);
  if (a == b) return;
  Node &to = nodes_[static_cast<std::size_t>(a)], &from = nodes_[static_cast<std::size_t>(b)];
  if (to.shape != from.shape || to.threads != from.threads) return;
  if (to.depth >= held_depth && from.depth >= held_depth && to.fixed != from.fixed) return;
  from.parent = a;
  to.vector = std::max(to.vector, from.vector);
  to.is_whole |= from.is_whole;
  to.is_stored |= from.is_stored;
  if (from.depth > to.depth) to.fixed = from.fixed, to.depth = from.depth;
}

// If two products require different layouts, the inner one decides.
void Inference::anchor(const Buffer* buffer, const Layout& layout, int depth) {
  const auto found = fragments_.find(buffer);
  if (found == fragments_.end()) return;
  Node& n = nodes_[static_cast<std::size_t>(find(found->second))];
  if (n.depth >= depth || n.threads != layout.thread_count()) return;
  n.fixed = layout, n.depth = depth;
}

void Inference::loop(const Stmt& s, const For& n, int threads, int depth) {
  bool constant = true, uses_fragments = false;
  for (const Expr& e : n.end) constant &= is_constant(e) && constant_value(e) > 0;
  for_each_stmt(n.body, [&](const Stmt& inner) { uses_fragments |= fragment_access(inner) != nullptr; });
  if (!constant || !uses_fragments) return;
  const int self = node(shape_of(n.end), threads);
  loops_.emplace(s.get(), self);
  statements_.emplace_back(self, &n);
  for_each_stmt(n.body, [&](const Stmt& inner) {
    const Access* access = fragment_access(inner);
    if (!access) {
      nodes_[static_cast<std::size_t>(find(self))].is_stored |= as<Store>(inner) || as<Atomic>(inner);
      if (const auto* load = as<Load>(inner); load && is_spread(n, load->from)) return;
      for_each_view(inner, [&](const View& view) {
        nodes_[static_cast<std::size_t>(find(self))].is_whole |=
            (view.is_tile() && !anywhere_.contains(view.buffer.get())) || !is_own_shape(view) ||
            view.buffer->type.bytes() > most_bytes_anywhere;
        // Where the loop reads a fragment first, elements of a byte alone decide that are stored by pieces.
        const bool decides = view.buffer->type.bytes() == 1 && contains(n.body, inner);
        int& vector = nodes_[static_cast<std::size_t>(decides ? find(self) : self)].vector;
        if (!view.buffer->shape.empty()) vector = std::max(vector, 16 / view.buffer->type.bytes());
      });
      return;
    }
    const auto axes = loop_axes(n, *access);
    const auto fragment = fragments_.find(access->view.buffer.get());
    if (!axes) around_held(self, n, *access);
    if (!axes && fragment != fragments_.end()) around_.push_back({fragment->second, self, &n, access});
    if (!axes) keep_whole(self), keep_whole(fragment != fragments_.end() ? fragment->second : self);
    if (!axes || fragment == fragments_.end()) return;
    std::vector<int> identity(n.index.size());
    std::iota(identity.begin(), identity.end(), 0);
    if (*axes == identity)
      join(fragment->second, self);
    else
      edges_.push_back({self, fragment->second, depth, *axes});
  });
}

// The loop lies as a fragment does of which each iteration touches several elements.
void Inference::around_held(int self, const For& n, const Access& access) {
  const auto held = held_.find(access.view.buffer.get());
  if (held == held_.end()) return;
  const auto layout = layout_around(n, access, held->second);
  Node& own = nodes_[static_cast<std::size_t>(find(self))];
  if (!layout || own.depth >= held_depth) return;
  own.fixed = *layout;
  own.depth = held_depth;
}

void Inference::collect(const Body& body, int threads, int depth) {
  for (const Stmt& s : body) {
    if (const auto* n = as<Declare>(s); n && n->tile->space == Space::fragment) {
      const int own = node(shape_of(n->tile->shape), threads);
      fragments_.emplace(n->tile.get(), own);
      if (const auto held = held_.find(n->tile.get()); held != held_.end())
        nodes_.back().fixed = held->second, nodes_.back().depth = held_depth;
    }
    if (const auto* n = as<Reduce>(s)) {
      std::vector<int> axes;
      for (int d = 0; d < n->from.rank(); ++d)
        if (d != n->dim) axes.push_back(d);
      sums_.emplace_back(fragments_.at(n->from.buffer.get()), fragments_.at(n->to.buffer.get()));
      edges_.push_back(
          {fragments_.at(n->from.buffer.get()), fragments_.at(n->to.buffer.get()), depth, axes, n});
    }
    if (const auto* n = as<Scan>(s)) {
      const int from = fragments_.at(n->from.buffer.get());
      keep_whole(from);
      join(from, fragments_.at(n->to.buffer.get()));
      if (n->starts) join(from, fragments_.at(n->starts->buffer.get()));
    }
    if (const auto* n = as<Gemm>(s)) {
      const GemmPlan plan = plan_gemm(*n, threads, target_);
      anchor(n->c.buffer.get(), plan.accumulator, 2 * depth + 1);
      if (plan.a_in_registers) anchor(n->a.buffer.get(), plan.operand_a, 2 * depth);
    }
    const auto* n = as<For>(s);
    if (n && n->kind == LoopKind::parallel) {
      loop(s, *n, threads, depth);
      continue;
    }
    const bool repeats = n != nullptr || as<While>(s) != nullptr;
    for_each_body(s, [&](const Body& inner) {
      collect(inner, n ? threads_of(*n, threads) : threads, depth + (repeats ? 1 : 0));
    });
  }
}

// The slices of what is fixed, innermost uses first. False if there are none.
bool Inference::propagate(const Body& body) {
  const Edge* best = nullptr;
  for (const Edge& edge : edges_) {
    const Node& parent = nodes_[static_cast<std::size_t>(find(edge.parent))];
    const Node& child = nodes_[static_cast<std::size_t>(find(edge.child))];
    if (!parent.fixed || child.fixed || parent.threads != child.threads) continue;
    if (!best || edge.depth > best->depth) best = &edge;
  }
  if (!best) return false;
  const Layout& parent = *nodes_[static_cast<std::size_t>(find(best->parent))].fixed;
  Layout own = projected(parent, best->axes);
  if (auto lanes = shared(*best, own, body)) {
    shares_.emplace(best->sum->to.buffer.get(), std::move(lanes->steps));
    own = std::move(lanes->layout);
  }
  nodes_[static_cast<std::size_t>(find(best->child))].fixed = std::move(own);
  return true;
}

// Sums that lanes of a warp add up, and that are met in loops alone which store to tensors.
std::optional<layout::LaneShares> Inference::shared(const Edge& edge, const Layout& sums, const Body& body) {
  if (!edge.sum || !edge.sum->overwrite) return std::nullopt;
  const int own = find(edge.child);
  const Buffer* tile = edge.sum->to.buffer.get();
  const Layout& from = *nodes_[static_cast<std::size_t>(find(edge.parent))].fixed;
  const bool alone =
      std::none_of(edges_.begin(), edges_.end(),
                   [&](const Edge& other) {
                     return find(other.parent) == own || (find(other.child) == own && &other != &edge);
                   }) &&
      std::none_of(around_.begin(), around_.end(), [&](const LoopAround& other) {
        return find(other.fragment) == own || find(other.loop) == own;
      });
  const Parting divided = parting(from, edge.sum->dim);
  if (!alone || divided.lanes.size() != 1 || !divided.parts.empty()) return std::nullopt;
  int along = -1;
  std::size_t met = 1;  // where it is made
  for (const auto& [loop, statement] : statements_) {
    if (find(loop) != own) continue;
    along = std::max(along, along_stored_rows(*statement));
    met += count_mentions(statement->body, tile);
  }
  if (along < 0 || met != count_mentions(body, tile)) return std::nullopt;
  return layout::share_among_lanes(sums, along);
}

// A loop that meets fragments by other numbers of their elements, as a sum over parts of rows does, lies as
// they do; those that it also meets one by one have a say if it touches memory. False if there is none left.
bool Inference::propagate_around() {
  for (const LoopAround& own : around_) {
    const Node& fragment = nodes_[static_cast<std::size_t>(find(own.fragment))];
    Node& loop = nodes_[static_cast<std::size_t>(find(own.loop))];
    const bool alone = std::none_of(fragments_.begin(), fragments_.end(),
                                    [&](const auto& other) { return find(other.second) == find(own.loop); });
    if (!alone && touches_memory(*own.statement)) continue;
    if (!fragment.fixed || loop.fixed || fragment.threads != loop.threads) continue;
    loop.fixed = layout_around(*own.statement, *own.access, *fragment.fixed);
    if (loop.fixed) return true;
  }
  return false;
}

// Whether the class is reduced, or goes with what is.
bool Inference::goes_with_sums(int n) {
  return std::any_of(sums_.begin(), sums_.end(), [&](const auto& sum) {
    const auto [from, to] = sum;
    return find(from) == n || std::any_of(edges_.begin(), edges_.end(), [&](const Edge& edge) {
             return find(edge.parent) == n && find(edge.child) == find(to);
           });
  });
}

// Whether sums over parts of rows lie as a fragment that memory fills, or takes, by longer pieces than
// theirs.
bool Inference::waits_for_memory(int n) {
  return goes_with_sums(n) && std::any_of(around_.begin(), around_.end(), [&](const LoopAround& own) {
           const Node& fragment = nodes_[static_cast<std::size_t>(find(own.fragment))];
           return find(own.loop) == n && !fragment.fixed &&
                  fragment.vector > nodes_[static_cast<std::size_t>(n)].vector;
         });
}

// The largest class of those that are not slices of others which are open too, and do not wait.
int Inference::choose() {
  int best = -1;
  std::int64_t most = -1;
  for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
    const Node& candidate = nodes_[static_cast<std::size_t>(n)];
    if (find(n) != n || candidate.fixed || waits_for_memory(n)) continue;
    std::int64_t elements = static_cast<std::int64_t>(candidate.shape.size()) << 40;
    for (const std::int64_t extent : candidate.shape) elements += extent;
    if (elements > most) best = n, most = elements;
  }
  return best;
}

Layouts Inference::solve(const Body& body, bool cuts_rows) {
  for (;;) {
    if (propagate(body) || propagate_around()) continue;
    const int open = choose();
    if (open < 0) break;
    Node& n = nodes_[static_cast<std::size_t>(open)];
    const bool may_be_cut = cuts_rows && !n.is_whole;
    // What a thread stores of its own row would be less than what memory takes at a time.
    if (may_be_cut && !n.is_stored) n.fixed = layout::rows_of_threads(n.threads, n.shape, n.vector);
    if (!n.fixed) n.fixed = layout::in_pieces(n.threads, n.shape, n.vector, may_be_cut);
  }
  Layouts result;
  for (const auto& [buffer, n] : fragments_)
    result.fragments.emplace(buffer, *nodes_[static_cast<std::size_t>(find(n))].fixed);
  for (const auto& [loop, n] : loops_)
    result.loops.emplace(loop, *nodes_[static_cast<std::size_t>(find(n))].fixed);
  result.shares = std::move(shares_);
  return result;
}

}  // namespace

Layouts infer_layouts(const Body& body, int threads, const CudaTarget& target, const HeldFragments& held,
                      bool has_products, const std::unordered_set<const Buffer*>& anywhere) {
  Inference inference(target, held, anywhere);
  inference.collect(body, threads, 0);
  for_each_stmt(body, [&](const Stmt& s) { has_products |= as<Gemm>(s) != nullptr; });
  return inference.solve(body, !has_products);
}

}  // namespace tegula::passes
