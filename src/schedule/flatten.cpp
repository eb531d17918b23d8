#include "schedule/flatten.hpp"

namespace tegula::schedule {
namespace {

class Flattener {
 public:
  std::vector<Step> steps;

  void add(const Events& events) {
    for (const Event& event : events) {
      if (const auto* loop = std::get_if<Loop>(&event.what)) {
        nest(event, loop->body, Step::Kind::loop, Step::Kind::again);
      } else if (const auto* guard = std::get_if<Guard>(&event.what)) {
        nest(event, guard->body, Step::Kind::guard, Step::Kind::end_guard);
      } else {
        if (std::holds_alternative<Gemm>(event.what)) ++gemms_;
        steps.push_back({Step::Kind::event, &event});
      }
    }
  }

 private:
  void nest(const Event& event, const Events& body, Step::Kind open, Step::Kind close) {
    const std::size_t first = steps.size();
    const int gemms = gemms_;
    steps.push_back({open, &event});
    add(body);
    steps.push_back({close, &event, static_cast<int>(first)});
    steps[first].jump = static_cast<int>(steps.size());
    steps[first].has_gemm = steps.back().has_gemm = gemms_ != gemms;
  }

  int gemms_ = 0;
};

}  // namespace

std::vector<Step> flatten(const Events& prologue, const Events& events) {
  Flattener flattener;
  flattener.add(prologue);
  flattener.add(events);
  return std::move(flattener.steps);
}

}  // namespace tegula::schedule
