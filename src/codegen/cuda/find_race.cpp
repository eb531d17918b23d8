// The printed function as a graph of its steps. From every step that touches memory all ways are followed as
// far as the next barrier.
#include <set>
#include <tuple>

#include "codegen/cuda/sync_rules.hpp"
#include "ir/lists.hpp"
#include "tegula/error.hpp"

namespace tegula::codegen {
namespace {

struct Edge {
  int to;
  int again;  // the loop whose next step begins; -1: none
};

struct Node {
  std::string line;
  std::vector<MemoryTouch> touches = {};
  bool stops = false;           // a barrier
  std::vector<int> loops = {};  // around it, the innermost last
  std::vector<Edge> next = {};
};

class Graph {
 public:
  Graph(const std::vector<Step>& steps, std::string barrier) : barrier_(std::move(barrier)) {
    add(steps, node(""));
  }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Step& loop(int number) const { return *loops_[static_cast<std::size_t>(number)]; }

 private:
  int node(std::string line) {
    nodes_.push_back({std::move(line)});
    nodes_.back().loops = around_;
    return static_cast<int>(nodes_.size()) - 1;
  }
  Node& at(int number) { return nodes_[static_cast<std::size_t>(number)]; }
  void link(int from, int to, int again = -1) { at(from).next.push_back({to, again}); }

  // The last node of the steps, which begin behind `from`.
  int add(const std::vector<Step>& steps, int from) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      if (step.kind == StepKind::otherwise) continue;  // with the branch, or the choice of rows
      if (step.kind == StepKind::loop)
        from = add_loop(step, from);
      else if (step.kind == StepKind::branch)
        from = add_branch(steps, i, from);
      else
        from = add_code(steps, i, from);
    }
    return from;
  }
  int add_code(const std::vector<Step>& steps, std::size_t i, int from) {
    const Step& step = steps[i];
    const int own = node(step.lines.empty() ? "" : step.lines.front());
    at(own).touches = touches_of(steps, i);
    at(own).stops = step.is_barrier || (step.kind == StepKind::code && step.lines == std::vector{barrier_});
    link(from, own);
    if (step.leaves && !left_.empty()) left_.back().push_back(own);
    return own;
  }
  int add_branch(const std::vector<Step>& steps, std::size_t i, int from) {
    const int taken = add(steps[i].body, from);
    const bool has_other = i + 1 < steps.size() && steps[i + 1].kind == StepKind::otherwise;
    const int other = has_other ? add(steps[i + 1].body, from) : from;
    const int behind = node("");
    link(taken, behind);
    link(other, behind);
    return behind;
  }
  int add_loop(const Step& step, int from) {
    const int number = static_cast<int>(loops_.size());
    loops_.push_back(&step);
    around_.push_back(number);
    left_.emplace_back();
    const int begin = node("");
    link(from, begin);
    link(add(step.body, begin), begin, number);
    around_.pop_back();
    const int behind = node("");
    link(begin, behind);
    for (const int leaving : left_.back()) link(leaving, behind);
    left_.pop_back();
    return behind;
  }

  std::string barrier_;
  std::vector<Node> nodes_;
  std::vector<const Step*> loops_;
  std::vector<int> around_;
  std::vector<std::vector<int>> left_;  // nodes that leave each of these loops
};

// Where a way has come, and what it means for the touch at its begin.
struct Place {
  int node;
  int half;   // as later steps count them: a loop that begins again goes on with the other half
  int apart;  // the loop of which another step has come, to whose places the touch does not belong; or -1

  bool operator<(const Place& other) const {
    return std::tie(node, half, apart) < std::tie(other.node, other.half, other.apart);
  }
};

class Ways {
 public:
  explicit Ways(const Graph& graph) : graph_(graph) {}

  std::optional<Race> find() {
    for (std::size_t i = 0; i < graph_.nodes().size(); ++i)
      for (const MemoryTouch& touch : graph_.nodes()[i].touches)
        if (const auto race = follow(static_cast<int>(i), touch)) return race;
    return std::nullopt;
  }

 private:
  const Node& at(int number) const { return graph_.nodes()[static_cast<std::size_t>(number)]; }

  std::optional<Race> follow(int begin, const MemoryTouch& touch) {
    std::set<Place> seen;
    std::vector<Place> open;
    const auto go_on = [&](const Place& from) {
      for (const Edge& edge : at(from.node).next)
        if (const Place next = come(from, edge, touch); seen.insert(next).second) open.push_back(next);
    };
    go_on({begin, touch.half, -1});
    while (!open.empty()) {
      const Place place = open.back();
      open.pop_back();
      const Node& here = at(place.node);
      MemoryTouch first = touch;
      first.half = place.half;
      for (const MemoryTouch& second : here.touches)
        if (place.apart < 0 && conflict(first, second)) return Race{at(begin).line, here.line};
      if (!here.stops) go_on(place);
    }
    return std::nullopt;
  }

  Place come(const Place& from, const Edge& edge, const MemoryTouch& touch) const {
    Place next{edge.to, from.half, from.apart};
    const std::vector<int>& around = at(edge.to).loops;
    if (next.apart >= 0 && !ir::contains(around, next.apart)) next.apart = -1;
    if (edge.again < 0) return next;
    const Step& loop = graph_.loop(edge.again);
    if (next.half >= 0 && ir::contains(loop.alternating, touch.memory.begin)) next.half ^= 1;
    if (next.apart < 0 && touch.memory.tensor >= 0 && ir::contains(loop.apart, touch.memory.tensor))
      next.apart = edge.again;
    return next;
  }

  const Graph& graph_;
};

// In what the instances of a group run, whose barriers are their own. An instance runs again and again.
std::optional<Race> race_of_groups(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    std::optional<Race> race;
    if (step.kind == StepKind::group) {
      Step again = step;
      again.kind = StepKind::loop;
      race = find_race({again}, step.barrier);
    } else {
      race = race_of_groups(step.body);
    }
    if (race) return race;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Race> find_race(const std::vector<Step>& steps, const std::string& barrier) {
  const Graph graph(steps, barrier);
  if (const auto race = Ways(graph).find()) return race;
  return race_of_groups(steps);
}

std::vector<Step> place_sync_checked(const std::vector<Step>& steps, const std::string& barrier) {
  std::vector<Step> placed = place_sync(steps, barrier);
  if (const auto race = find_race(placed, barrier))
    throw InternalError("no barrier stands between '" + race->first + "' and '" + race->second + "'");
  return placed;
}

}  // namespace tegula::codegen
