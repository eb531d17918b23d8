#include "schedule/verify.hpp"

#include <algorithm>
#include <cstdint>
#include <set>

#include "schedule/machine.hpp"
#include "schedule/statics.hpp"

namespace tegula::schedule {
namespace {

// 0, 1, 2 and what is around one and two rounds of every ring.
std::vector<int> trip_counts(const Schedule& s, const Variable& variable) {
  if (variable.per_step) return {0, 1, 2, 3};
  std::set<int> counts = {0, 1, 2};
  for (const Ring& ring : s.rings)
    for (const int n : {ring.depth, ring.depth + 1, 2 * ring.depth + 1}) counts.insert(n);
  std::vector<int> allowed;
  for (const int n : counts)
    if (n >= variable.minimum && (variable.maximum == 0 || n <= variable.maximum)) allowed.push_back(n);
  if (allowed.empty()) allowed.push_back(variable.minimum);
  return allowed;
}

using Combination = std::vector<int>;  // a value per variable

// All of them, or every k-th, never more than `most` and the last one. A program of many loops has more than
// memory holds, so only those that are chosen are made: of each the values are the digits of its number.
std::vector<Combination> combinations(const Schedule& s, int most) {
  constexpr std::uint64_t enough = std::uint64_t{1} << 48;
  std::vector<std::vector<int>> values;
  std::uint64_t total = 1;
  for (const Variable& variable : s.variables) {
    values.push_back(trip_counts(s, variable));
    total = std::min(total * values.back().size(), enough);
  }
  const std::uint64_t step = (total + most - 1) / most;
  std::vector<Combination> chosen;
  for (std::uint64_t first = 0; first < total; first += step) {
    Combination& own = chosen.emplace_back(values.size());
    std::uint64_t position = first;
    for (std::size_t v = values.size(); v-- > 0; position /= values[v].size())
      own[v] = values[v][position % values[v].size()];
  }
  Combination last;
  for (const std::vector<int>& counts : values) last.push_back(counts.back());
  if (chosen.back() != last) chosen.push_back(last);
  return chosen;
}

// Tile i takes the values of combination first + i * stride.
Trial trial_of(const Schedule& s, const std::vector<Combination>& all, std::size_t first, std::size_t stride,
               int tiles) {
  Trial trial;
  trial.tiles = tiles;
  for (std::size_t v = 0; v < s.variables.size(); ++v) {
    auto& values = trial.values.emplace_back();
    for (std::size_t i = 0; i < static_cast<std::size_t>(std::max(tiles, 1)); ++i)
      values.push_back(all[(first + (s.variables[v].per_tile ? i * stride : 0)) % all.size()][v]);
  }
  return trial;
}

bool has_guards(const Events& events) {
  for (const Event& e : events) {
    if (const auto* guard = std::get_if<Guard>(&e.what))
      if (guard->kind == Guard::Kind::data || guard->kind == Guard::Kind::engine || has_guards(guard->body))
        return true;
    if (const auto* loop = std::get_if<Loop>(&e.what))
      if (has_guards(loop->body)) return true;
  }
  return false;
}

class Verifier {
 public:
  Verifier(const Schedule& schedule, const Thoroughness& how) : model_(schedule), how_(how) {
    for (const Role& role : schedule.roles) guarded_ |= has_guards(role.events);
  }

  std::optional<Finding> run() {
    const Schedule& s = model_.schedule();
    const auto all = combinations(s, how_.combinations);
    if (auto found = orders(trial_of(s, all, 0, 1, 0))) return found;
    for (std::size_t i = 0; i < all.size(); ++i)
      for (const int tiles : {1, 3})
        if (auto found = orders(trial_of(s, all, i, 1 + i % 5, tiles))) return found;
    return std::nullopt;
  }

 private:
  std::optional<Finding> orders(Trial trial) {
    for (const Guards guards : {Guards::all, Guards::none, Guards::alternating}) {
      if (guards != Guards::all && !guarded_) break;
      trial.guards = guards;
      constexpr int known = 5;
      for (int i = 0; i < (how_.all_orders ? known + 2 : 2); ++i) {
        const int order = how_.all_orders ? std::min(i, known - 1)
                          : i == 0        ? round_++ % (known - 1)
                                          : known - 1;
        trial.order = static_cast<Order>(order);
        trial.seed = seed_++;
        if (auto found = Machine(model_, trial).run()) return found;
      }
    }
    return std::nullopt;
  }

  Model model_;
  Thoroughness how_;
  bool guarded_ = false;
  unsigned seed_ = 0;
  int round_ = 0;
};

}  // namespace

std::optional<Finding> verify(const Schedule& schedule, const Thoroughness& how) {
  if (auto found = check_statically(schedule)) return found;
  return Verifier(schedule, how).run();
}

// With turns every trial has two CTAs, and takes several times as long.
void check(const Schedule& schedule) {
  Thoroughness how;
  if (Model(schedule).has_turns()) how.combinations = 4;
  if (const auto found = verify(schedule, how)) throw Error(found->message);
}

}  // namespace tegula::schedule
