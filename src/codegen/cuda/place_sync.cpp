// Barriers are placed by walking the steps in order with the list of what has been touched since the last
// one. A loop is walked until its barriers no longer grow, so that an iteration is ordered after the one
// before.
#include <algorithm>
#include <iterator>
#include <numeric>

#include "codegen/cuda/sync_rules.hpp"
#include "ir/lists.hpp"

namespace tegula::codegen {
namespace {

using Pending = std::vector<MemoryTouch>;

bool equal(const MemoryTouch& a, const MemoryTouch& b) {
  return a.use == b.use && a.by_one == b.by_one && a.half == b.half && a.ring == b.ring &&
         a.is_over == b.is_over && a.memory.tensor == b.memory.tensor && a.memory.begin == b.memory.begin &&
         a.memory.end == b.memory.end && passes::are_same(a.memory.places, b.memory.places) &&
         a.memory.part == b.memory.part;
}

bool is_pending(const Pending& pending, const MemoryTouch& touch) {
  return std::any_of(pending.begin(), pending.end(), [&](const MemoryTouch& p) { return equal(p, touch); });
}

void add(Pending& pending, const MemoryTouch& touch) {
  if (!is_pending(pending, touch)) pending.push_back(touch);
}

void add(Pending& pending, const Pending& more) {
  for (const MemoryTouch& touch : more) add(pending, touch);
}

bool conflict(const Pending& pending, const Pending& touches) {
  return std::any_of(pending.begin(), pending.end(), [&](const MemoryTouch& p) {
    return std::any_of(touches.begin(), touches.end(), [&](const MemoryTouch& t) { return conflict(p, t); });
  });
}

class Placement {
 public:
  explicit Placement(std::string barrier) : barrier_(std::move(barrier)) {}

  // The steps with barriers; `pending` becomes what is pending after them, `left` collects what is where a
  // loop is left.
  std::vector<Step> walk(const std::vector<Step>& steps, Pending& pending, Pending& left) {
    std::vector<Step> result;
    Pending before_branch;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      if (step.kind == StepKind::otherwise) {
        result.push_back(step);
        if (i > 0 && steps[i - 1].kind == StepKind::rows) continue;
        Pending here = before_branch;
        result.back().body = walk(step.body, here, left);
        add(pending, here);
        continue;
      }
      const Pending touches = touches_of(steps, i);
      if (conflict(pending, touches)) {
        result.push_back(barrier());
        pending.clear();
      }
      result.push_back(step);
      if (step.kind == StepKind::group) {
        Pending none, nowhere;
        result.back().body = Placement(step.barrier).repeated(step, none, nowhere);
      }
      if (step.kind == StepKind::code || is_apart(step)) {
        if (step.is_barrier) pending.clear();
        add(pending, touches);
        if (step.leaves) add(left, pending);
        continue;
      }
      before_branch = pending;
      if (step.kind == StepKind::branch) {
        Pending here = pending;
        result.back().body = walk(step.body, here, left);
        add(pending, here);
      } else {
        loop(step, result, pending);
      }
    }
    return result;
  }

 private:
  Step barrier() const {
    Step step;
    step.lines.push_back(barrier_);
    return step;
  }

  // Where a barrier of the loop is needed for what comes before the loop alone, it stands in front: a step
  // would wait every time.
  void loop(const Step& step, std::vector<Step>& result, Pending& pending) {
    Pending leaving;
    std::vector<Step> body = repeated(step, pending, leaving);
    if (const std::size_t barriers = count_barriers(body); barriers > 0) {
      Pending own, own_leaving;
      std::vector<Step> behind_one = repeated(step, own, own_leaving);
      if (count_barriers(behind_one) < barriers) {
        stand_in_front(result);
        body = std::move(behind_one), pending = std::move(own), leaving = std::move(own_leaving);
      }
    }
    result.back().body = std::move(body);
    add(pending, leaving);
  }

  // Of the loop that is the last step, and of the pragma that belongs to it.
  void stand_in_front(std::vector<Step>& result) const {
    result.insert(result.end() - 1, barrier());
    if (result.size() < 3) return;
    std::vector<std::string>& before = result[result.size() - 3].lines;
    if (before.empty() || before.back().find("#pragma") == std::string::npos) return;
    Step pragma = barrier();
    pragma.lines = {std::move(before.back())};
    before.pop_back();
    result.insert(result.end() - 1, std::move(pragma));
  }

  std::size_t count_barriers(const std::vector<Step>& steps) const {
    return std::accumulate(steps.begin(), steps.end(), std::size_t{0},
                           [&](std::size_t count, const Step& step) {
                             const bool own = step.kind == StepKind::code && step.lines == barrier().lines;
                             return count + (own ? 1 : 0) + count_barriers(step.body);
                           });
  }

  // The body of a loop that may run any number of times. What its steps touch at places of their own is
  // pending for what follows the loop, but not for the next step.
  std::vector<Step> repeated(const Step& loop, Pending& pending, Pending& left) {
    std::vector<Step> now = loop.body;
    const Pending before = pending;
    const auto is_apart = [&](const MemoryTouch& touch) {
      return touch.memory.tensor >= 0 && ir::contains(loop.apart, touch.memory.tensor) &&
             !is_pending(before, touch);
    };
    for (;;) {
      Pending here = pending, apart;
      const std::size_t known = pending.size();
      now = walk(loop.body, here, left);
      std::copy_if(here.begin(), here.end(), std::back_inserter(apart), is_apart);
      here.erase(std::remove_if(here.begin(), here.end(), is_apart), here.end());
      for (MemoryTouch& touch : here) {
        if (touch.half >= 0 && ir::contains(loop.alternating, touch.memory.begin)) touch.half ^= 1;
      }
      add(pending, here);
      if (pending.size() > known) continue;
      add(pending, apart);
      return now;
    }
  }

  std::string barrier_;
};

}  // namespace

std::vector<Step> place_sync(const std::vector<Step>& steps, const std::string& barrier) {
  Pending pending, left;
  return Placement(barrier).walk(steps, pending, left);
}

}  // namespace tegula::codegen
