#include "schedule/cursors.hpp"

#include <type_traits>

namespace tegula::schedule {

namespace {

// Where a ring advances; the last event of that list that uses the ring.
struct Advances {
  const Events* list = nullptr;
  std::size_t at = 0, last_use = 0;
  int count = 0;
};

class Search {
 public:
  explicit Search(std::size_t rings) : advances_(rings) {}

  void walk(const Events& events) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (const auto* n = std::get_if<Advance>(&events[i].what)) {
        Advances& own = advances_[static_cast<std::size_t>(n->ring)];
        own = {&events, i, 0, own.count + 1};
      }
      if (const auto* n = std::get_if<Loop>(&events[i].what)) walk(n->body);
      if (const auto* n = std::get_if<Guard>(&events[i].what)) walk(n->body);
    }
  }

  std::vector<Advances> run(const Events& events) {
    walk(events);
    for (std::size_t ring = 0; ring < advances_.size(); ++ring) {
      Advances& own = advances_[ring];
      for (std::size_t i = 0; own.list && i < own.list->size(); ++i) {
        if (uses((*own.list)[i], static_cast<int>(ring))) own.last_use = i;
      }
    }
    return advances_;
  }

 private:
  static bool uses(const Access& access, int ring) {
    return access.slot.kind == Slot::Kind::cursor && access.slot.value == ring;
  }

  static bool uses(const Event& event, int ring) {
    return std::visit(
        [&](const auto& n) {
          using T = std::decay_t<decltype(n)>;
          bool found = false;
          if constexpr (requires { n.place; }) found |= n.place.ring == ring;
          if constexpr (requires { n.accesses; })
            for (const Access& access : n.accesses) found |= uses(access, ring);
          if constexpr (std::is_same_v<T, Load> || std::is_same_v<T, SendTile> ||
                        std::is_same_v<T, CopyAsync>)
            found |= uses(n.to, ring);
          if constexpr (std::is_same_v<T, Store> || std::is_same_v<T, ReceiveTile>)
            found |= uses(n.from, ring);
          if constexpr (std::is_same_v<T, Loop> || std::is_same_v<T, Guard>)
            for (const Event& inner : n.body) found |= uses(inner, ring);
          return found;
        },
        event.what);
  }

  std::vector<Advances> advances_;
};

}  // namespace

std::vector<int> shared_cursors(const Schedule& schedule, const Role& role) {
  const std::vector<Advances> advances = Search(schedule.rings.size()).run(role.events);
  std::vector<int> result(advances.size());
  for (std::size_t ring = 0; ring < advances.size(); ++ring) {
    const Advances& own = advances[ring];
    result[ring] = static_cast<int>(ring);
    for (std::size_t other = 0; other < ring && result[ring] == static_cast<int>(ring); ++other) {
      const Advances& first = advances[other];
      const bool leads = result[other] == static_cast<int>(other);
      const bool together = own.list && own.list == first.list && own.count == 1 && first.count == 1 &&
                            schedule.rings[ring].depth == schedule.rings[other].depth;
      if (leads && together && own.last_use <= own.at && first.last_use <= first.at)
        result[ring] = static_cast<int>(other);
    }
  }
  return result;
}

}  // namespace tegula::schedule
