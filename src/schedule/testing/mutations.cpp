#include "schedule/testing/mutations.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tegula::schedule {
namespace {

struct Change {
  std::string words;
  std::optional<Event> event;  // nothing: removed
};

class Changes {
 public:
  Changes(const Event& event, int groups) : event_(event), groups_(groups) {
    std::visit([&](const auto& what) { of(what); }, event.what);
  }
  std::vector<Change> all;

 private:
  template <class T>
  void change(std::string words, T what) {
    Event changed = event_;
    changed.what = std::move(what);
    all.push_back({std::move(words), std::move(changed)});
  }
  template <class T, class F>
  void change(std::string words, T what, F&& edit) {
    edit(what);
    change(std::move(words), std::move(what));
  }
  void remove() { all.push_back({"removed", std::nullopt}); }
  template <class T>
  void shifted(const T& what) {
    change("one slot earlier", what, [](T& x) { --x.place.shift; });
    change("one slot later", what, [](T& x) { ++x.place.shift; });
  }
  template <class T>
  void weaker(const T& what) {
    remove();
    change("one more pending", what, [](T& x) { ++x.pending; });
  }

  void of(const GemmWait& x) { weaker(x); }
  void of(const CopyWait& x) { weaker(x); }
  void of(const StoreWait& x) {
    weaker(x);
    if (!x.reads_only) change("for reads only", x, [](StoreWait& y) { y.reads_only = true; });
  }
  void of(const WaitFull& x) {
    remove();
    shifted(x);
  }
  void of(const Acquire& x) {  // a slot later would wait for more than it needs
    remove();
    change("one slot earlier", x, [](Acquire& y) { --y.place.shift; });
  }
  void of(const Arrive& x) {
    remove();
    shifted(x);
    if (x.whole_cluster) change("in its own CTA only", x, [](Arrive& y) { y.whole_cluster = false; });
    if (!x.behind.empty()) change("behind nothing", x, [](Arrive& y) { y.behind.clear(); });
  }
  void of(const Expect& x) {
    remove();
    shifted(x);
    change("16 bytes less", x, [](Expect& y) { y.bytes -= 16; });
    change("16 bytes more", x, [](Expect& y) { y.bytes += 16; });
  }
  void of(const Load& x) {
    remove();
    shifted(x);
    if (x.multicast) change("to its own CTA only", x, [](Load& y) { y.multicast = false; });
  }
  void of(const Complete& x) {
    remove();
    shifted(x);
    change("16 bytes less", x, [](Complete& y) { y.bytes -= 16; });
    change("16 bytes more", x, [](Complete& y) { y.bytes += 16; });
  }
  void of(const Barrier& x) {
    remove();
    change("32 threads less", x, [](Barrier& y) { y.threads -= 32; });
    change("32 threads more", x, [](Barrier& y) { y.threads += 32; });
    if (x.per_group && groups_ > 1)
      change("one number for all groups", x, [](Barrier& y) { y.per_group = false; });
    change(x.wait ? "without waiting" : "waiting", x, [](Barrier& y) { y.wait = !y.wait; });
  }
  void of(const SetRegisters& x) {
    remove();
    change("8 more", x, [](SetRegisters& y) { y.count += 8; });
    change("4 less", x, [](SetRegisters& y) { y.count -= 4; });
  }
  void of(const ProxyFence& x) {
    remove();
    change("of the other memory", x, [](ProxyFence& y) { y.global = !y.global; });
  }
  void of(const GemmFence&) { remove(); }
  void of(const GemmCommit&) { remove(); }
  void of(const Advance&) { remove(); }
  void of(const StoreCommit&) { remove(); }
  void of(const CopyCommit&) { remove(); }
  void of(const CopyArrive&) { remove(); }
  void of(const WarpSync&) { remove(); }
  void of(const ClusterBarrier&) { remove(); }
  void of(const InitBarriers&) { remove(); }
  void of(const InitFence&) { remove(); }
  void of(const NextTile&) { remove(); }
  void of(const SendTile&) { remove(); }
  void of(const ReceiveTile&) { remove(); }
  void of(const WaitTurn&) { remove(); }
  void of(const PassTurn&) { remove(); }
  void of(const Operation&) {}
  void of(const Gemm&) {}
  void of(const Store&) {}
  void of(const CopyAsync&) {}
  void of(const Loop& x) {
    if (x.share != Share::all) change("by all groups alike", x, [](Loop& y) { y.share = Share::all; });
  }
  void of(const Leave&) {}
  void of(const Guard& x) {
    if (x.kind == Guard::Kind::not_last)
      change("in the last step too", x, [](Guard& y) { y.kind = Guard::Kind::data; });
    if (x.kind != Guard::Kind::not_first) return;
    change("in the first step too", x, [](Guard& y) { y.kind = Guard::Kind::data; });
  }

  const Event& event_;
  const int groups_;
};

// Calls f(list, place in it, number in the role).
template <class F>
void each_event(Events& events, int& number, const F& f) {
  for (std::size_t i = 0; i < events.size(); ++i) {
    f(events, i, number++);
    if (auto* loop = std::get_if<Loop>(&events[i].what)) each_event(loop->body, number, f);
    if (auto* guard = std::get_if<Guard>(&events[i].what)) each_event(guard->body, number, f);
  }
}

Events& list_of(Schedule& schedule, std::size_t list) {
  return list == 0 ? schedule.prologue : schedule.roles[list - 1].events;
}

void mutate_events(const Schedule& schedule, std::size_t list, std::vector<Mutation>& made) {
  Schedule original = schedule;
  const std::string where = list == 0 ? "prologue" : schedule.roles[list - 1].name;
  const int groups = list == 0 ? 1 : schedule.roles[list - 1].groups;
  int number = 0;
  each_event(list_of(original, list), number, [&](Events& events, std::size_t i, int at) {
    for (Change& change : Changes(events[i], groups).all) {
      Mutation m{fmt::format("{} {}: {}, {}", where, at, print(schedule, events[i]), change.words), schedule};
      int other = 0;
      bool done = false;
      each_event(list_of(m.schedule, list), other, [&](Events& copy, std::size_t j, int number) {
        if (done || number != at) return;
        done = true;
        if (change.event)
          copy[j] = std::move(*change.event);
        else
          copy[j] = Event{Operation{}, Who::all, "nothing", nullptr, std::nullopt};
      });
      made.push_back(std::move(m));
    }
  });
}

void mutate_rings(const Schedule& schedule, std::vector<Mutation>& made) {
  for (std::size_t r = 0; r < schedule.rings.size(); ++r) {
    const auto change = [&](const std::string& words, const auto& edit) {
      made.push_back({fmt::format("ring {}: {}", schedule.rings[r].name, words), schedule});
      edit(made.back().schedule.rings[r]);
    };
    change("one stage more than its buffers", [](Ring& x) { ++x.depth; });
    if (!schedule.rings[r].barriers) continue;
    change("one full arrival less", [](Ring& x) { --x.full_arrivals; });
    change("one full arrival more", [](Ring& x) { ++x.full_arrivals; });
    change("one empty arrival less", [](Ring& x) { --x.empty_arrivals; });
    change("one empty arrival more", [](Ring& x) { ++x.empty_arrivals; });
  }
}

// Slots released by one warp a group instead of by every warp: others can be lapped.
void mutate_releases(const Schedule& schedule, std::vector<Mutation>& made) {
  for (std::size_t list = 1; list <= schedule.roles.size(); ++list) {
    const Role& role = schedule.roles[list - 1];
    if (role.warps == 1) continue;
    Mutation m{role.name + ": released by one warp a group", schedule};
    std::vector<int> rings;
    int number = 0;
    each_event(list_of(m.schedule, list), number, [&](Events& events, std::size_t i, int) {
      auto* arrive = std::get_if<Arrive>(&events[i].what);
      if (arrive == nullptr || events[i].who != Who::each_warp || arrive->side != Side::empty) return;
      events[i].who = Who::leader;
      Ring& ring = m.schedule.rings[arrive->place.ring];
      if (ring.empty_arrivals == schedule.rings[arrive->place.ring].empty_arrivals)
        ring.empty_arrivals /= role.warps;
    });
    bool any = false;
    for (std::size_t r = 0; r < schedule.rings.size(); ++r)
      any |= m.schedule.rings[r].empty_arrivals != schedule.rings[r].empty_arrivals;
    if (any) made.push_back(std::move(m));
  }
}

bool touches_memory(const Event& e) {
  return std::visit(
      [](const auto& what) {
        if constexpr (requires { what.accesses; }) return !what.accesses.empty();
        return requires { what.from; }
        || requires { what.to; };
      },
      e.what);
}

bool synchronises(const Event& e) {
  const What& what = e.what;
  return std::holds_alternative<WaitFull>(what) || std::holds_alternative<Acquire>(what) ||
         std::holds_alternative<GemmWait>(what) || std::holds_alternative<StoreWait>(what) ||
         std::holds_alternative<CopyWait>(what) || std::holds_alternative<Barrier>(what) ||
         std::holds_alternative<ProxyFence>(what) || std::holds_alternative<WaitTurn>(what);
}

void move_events(const Schedule& schedule, std::size_t list, std::vector<Mutation>& made) {
  Schedule original = schedule;
  const std::string where = schedule.roles[list - 1].name;
  int number = 0;
  each_event(list_of(original, list), number, [&](Events& events, std::size_t i, int at) {
    if (!synchronises(events[i])) return;
    const auto first = events.begin() + static_cast<std::ptrdiff_t>(i);
    const auto next = std::find_if(first + 1, events.end(), touches_memory);
    if (next == events.end()) return;
    Mutation m{
        fmt::format("{} {}: {}, behind {}", where, at, print(schedule, *first), print(schedule, *next)),
        schedule};
    const auto distance = next - first;
    int other = 0;
    bool done = false;
    each_event(list_of(m.schedule, list), other, [&](Events& copy, std::size_t j, int n) {
      if (done || n != at) return;
      done = true;
      const auto begin = copy.begin() + static_cast<std::ptrdiff_t>(j);
      std::rotate(begin, begin + 1, begin + distance + 1);
    });
    made.push_back(std::move(m));
  });
}

}  // namespace

std::vector<Mutation> moves(const Schedule& schedule) {
  std::vector<Mutation> made;
  for (std::size_t list = 1; list <= schedule.roles.size(); ++list) move_events(schedule, list, made);
  return made;
}

std::vector<Mutation> mutations(const Schedule& schedule) {
  std::vector<Mutation> made;
  for (std::size_t list = 0; list <= schedule.roles.size(); ++list) mutate_events(schedule, list, made);
  mutate_rings(schedule, made);
  mutate_releases(schedule, made);
  return made;
}

}  // namespace tegula::schedule
