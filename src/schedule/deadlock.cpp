// Names the waits of a deadlock, one line for all warps that wait alike, and the circle of roles.
#include <fmt/format.h>

#include <map>
#include <set>

#include "schedule/machine.hpp"

namespace tegula::schedule {
namespace {

struct Waited {
  const Place* place = nullptr;
  Side side = Side::full;
};

Waited waited_for(const Event& e) {
  if (const auto* x = std::get_if<WaitFull>(&e.what)) return {&x->place, Side::full};
  if (const auto* x = std::get_if<Acquire>(&e.what)) return {&x->place, Side::empty};
  return {};
}

bool arrives_at(const Event& e, int ring, Side side) {
  if (const auto* x = std::get_if<Arrive>(&e.what)) return x->place.ring == ring && x->side == side;
  if (side == Side::empty) return false;
  if (const auto* x = std::get_if<Expect>(&e.what)) return x->place.ring == ring;
  if (const auto* x = std::get_if<Load>(&e.what)) return x->place.ring == ring;
  if (const auto* x = std::get_if<Complete>(&e.what)) return x->place.ring == ring;
  if (const auto* x = std::get_if<CopyArrive>(&e.what)) return x->place.ring == ring;
  return false;
}

}  // namespace

std::string Machine::wait_of(const Actor& a) const {
  const Event& e = *(*a.program)[a.step].event;
  std::string words = fmt::format("waits in `{}`", print(schedule_, e));
  const Waited waited = waited_for(e);
  if (waited.place != nullptr) {
    const int index = barrier_of(a, waited.side, *waited.place, a.id.cta);
    const MBarrier& b = barriers_[index];
    words += fmt::format(" for {}: {} of {} arrivals and {} bytes missing", barrier_name(index), b.missing,
                         b.arrivals, b.bytes);
  }
  if (std::holds_alternative<SetRegisters>(e.what))
    words += fmt::format(": {} registers are free in its CTA", registers_free_[a.id.cta]);
  return e.at ? words + fmt::format(" ({})", short_location(*e.at)) : words;
}

// From role to role along "waits for an arrival of", until one comes back.
std::string Machine::cycle_of(const Actor& first) const {
  std::string words = schedule_.roles[first.id.role].name;
  std::set<int> met = {first.id.role};
  const Actor* at = &first;
  for (;;) {
    const Waited waited = waited_for(*(*at->program)[at->step].event);
    if (waited.place == nullptr) return "";
    const Actor* next = nullptr;
    for (const Actor& a : actors_) {
      if (a.ended || next != nullptr) continue;
      for (const Step& step : *a.program)
        if (arrives_at(*step.event, waited.place->ring, waited.side) && takes_part(a, *step.event)) next = &a;
    }
    if (next == nullptr) return "";
    words += " -> " + schedule_.roles[next->id.role].name;
    if (!met.insert(next->id.role).second) return words;
    at = next;
  }
}

void Machine::deadlock() {
  const Actor* first = nullptr;
  std::map<std::string, std::set<std::string>> waits;  // by what is waited for
  for (const Actor& a : actors_) {
    if (a.ended) continue;
    if (first == nullptr) first = &a;
    waits[wait_of(a)].insert(who_is(a.index));
  }
  std::string words = "nobody can go on";
  if (const std::string cycle = cycle_of(*first); !cycle.empty()) words += ", in a circle: " + cycle;
  for (const auto& [what, who] : waits) {
    words += fmt::format("; {}", *who.begin());
    if (who.size() > 1) words += fmt::format(" and {} more", who.size() - 1);
    words += " " + what;
  }
  fail(Rule::deadlock, *first, *(*first->program)[first->step].event, words);
}

}  // namespace tegula::schedule
