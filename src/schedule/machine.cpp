#include "schedule/machine.hpp"

#include <fmt/format.h>

namespace tegula::schedule {
namespace {

constexpr long endless = 1 << 18;  // steps of one trial
// Steps of a loop, a multiple of the usual depths of rings: of more than two such rounds one and the
// remainder are run.
constexpr int round_of_rings = 240;

struct Found {
  Finding finding;
};

// Whether a branch of a step is taken: the variable says in which of the steps.
int taken_at(int value, int asked) { return value == 1 || (value > 1 && asked % 2 == value % 2); }

}  // namespace

Machine::Machine(const Model& model, const Trial& trial)
    : model_(model),
      schedule_(model.schedule()),
      trial_(trial),
      memory_(model.cells()),
      barriers_(model.barriers()),
      named_(static_cast<std::size_t>(model.ctas()) * named_barriers),
      turns_(model.has_turns() ? model.cells() : 0),
      mailbox_(model.cells()),
      init_(model.ctas()),
      registers_free_(model.ctas(), 0),
      random_(trial.seed) {
  const Knowledge nothing(model.components(), model.has_turns());
  owners_.assign(std::max(trial.tiles, 1), -1);
  published_ = nothing;
  for (int i = 0; i < static_cast<int>(model.warps().size()); ++i) {
    Actor& a = actors_.emplace_back();
    a.index = i;
    a.id = model.warps()[i];
    a.program = &model.program(a.id.role);
    a.cursors.assign(schedule_.rings.size(), 0);
    a.made.assign(schedule_.buffers.size(), 0);
    a.asked.assign(schedule_.variables.size(), 0);
    a.turns.assign(schedule_.buffers.size(), 0);
    a.all = a.lane = nothing;
    a.registers = schedule_.launch_registers;
  }
  for (int r = 0; r < static_cast<int>(schedule_.rings.size()); ++r) {
    const Ring& ring = schedule_.rings[r];
    if (!ring.barriers) continue;
    for (int cta = 0; cta < model.ctas(); ++cta)
      for (int i = 0; i < ring.instances * ring.depth; ++i)
        for (const Side side : {Side::full, Side::empty}) {
          MBarrier& b = barriers_[model.barrier(cta, r, side, i / ring.depth, i % ring.depth)];
          b.arrivals = b.missing = side == Side::full ? ring.full_arrivals : ring.empty_arrivals;
          b.gathered = b.done = nothing;
        }
  }
  for (NamedBarrier& b : named_) b.gathered = nothing;
  cluster_.gathered = nothing;
  for (Turn& t : turns_) t.done = nothing;
}

std::string Machine::who_is(int warp) const {
  const WarpId& id = model_.warps()[warp];
  const Role& role = schedule_.roles[id.role];
  std::string name = role.name;
  if (role.groups > 1) name += fmt::format(" {}", id.group);
  if (role.warps > 1) name += fmt::format(" warp {}", id.warp);
  if (model_.ctas() > 1) name += fmt::format(" of CTA {}", id.cta);
  return name;
}

void Machine::fail(Rule rule, const Actor& a, const Event& e, const std::string& what) const {
  std::string text =
      fmt::format("{}: {}, `{}`: {}", schedule_.name, who_is(a.index), print(schedule_, e), what);
  if (e.at) text += fmt::format(" ({})", short_location(*e.at));
  throw Found{{rule, text + fmt::format(". Rule: {}.", meaning_of(rule))}};
}

bool Machine::takes_part(const Actor& a, const Event& e) const {
  switch (e.who) {
    case Who::all:
    case Who::each_warp:
      return true;
    case Who::leader:
      return a.id.warp == 0;
    case Who::one:
      return a.step < model_.prologue_steps() ? a.id.in_cta == 0 : a.id.group == 0 && a.id.warp == e.warp;
  }
  return false;
}

int Machine::value(const Count& count, Actor& a) {
  int sum = count.constant;
  for (const auto& term : count.terms) {
    int product = term.factor;
    for (const int v : term.variables) {
      const auto& of_tile = trial_.values[v];
      const int own = of_tile[std::max(a.tile, 0) % of_tile.size()];
      product *= schedule_.variables[v].per_step ? taken_at(own, a.asked[v]++) : own;
    }
    sum += product;
  }
  if (sum > 2 * round_of_rings) return round_of_rings + sum % round_of_rings;
  return std::max(sum, 0);
}

int Machine::steps(const Loop& loop, Actor& a) {
  const int count = value(loop.count, a);
  switch (loop.share) {
    case Share::all:
      return count;
    case Share::first:
      return a.id.group == 0 ? count : 0;
    case Share::pairs:
      return (count + a.id.group) / 2;
    case Share::left_over:
      return (count + a.id.group) % 2;
  }
  return 0;
}

// The index in the counted loops inside the innermost loop over tiles.
int Machine::index_of(const Actor& a) const {
  int index = 0;
  for (const Frame& frame : a.frames) index = frame.counted ? index * 32 + frame.index : 0;
  return index;
}

bool Machine::guard_holds(const Actor& a, const Event& e) const {
  const Guard& guard = std::get<Guard>(e.what);
  switch (guard.kind) {
    case Guard::Kind::not_first:
      return !a.frames.empty() && a.frames.back().index > 0;
    case Guard::Kind::not_last:
      return !a.frames.empty() && a.frames.back().index + 1 < a.frames.back().count;
    case Guard::Kind::last_group:
      return a.id.group + 1 == schedule_.roles[a.id.role].groups;
    case Guard::Kind::chosen:
      return takes_part(a, e);
    case Guard::Kind::data:
    case Guard::Kind::engine:
    case Guard::Kind::threads:
      break;
  }
  bool holds = trial_.guards == Guards::all;
  if (trial_.guards == Guards::alternating) holds = (index_of(a) + std::max(a.tile, 0)) % 2 == 0;
  return holds != (guard.kind == Guard::Kind::threads);
}

// Only turns depend on the order of tiles: their CTAs have different tiles.
int Machine::apart() const { return model_.has_turns() ? model_.ctas() : 1; }
int Machine::first_tile(const Actor& a) const { return model_.has_turns() ? a.id.cta : 0; }

void Machine::begin_tile(Actor& a, int tile) {
  if (tile != a.tile) std::fill(a.turns.begin(), a.turns.end(), 0);
  a.tile = tile;
  if (tile >= 0) owners_[tile] = a.id.cta;
}

bool Machine::enter_loop(Actor& a, const Step& step) {
  const Loop& loop = std::get<Loop>(step.event->what);
  Frame frame{a.step, 0, 0, loop.kind == Loop::Kind::counted};
  switch (loop.kind) {
    case Loop::Kind::counted:
      frame.count = steps(loop, a);
      break;
    case Loop::Kind::tiles:
      frame.count = (trial_.tiles + apart() - 1 - first_tile(a)) / apart();
      begin_tile(a, frame.count > 0 ? first_tile(a) : -1);
      break;
    case Loop::Kind::forever:
      frame.count = -1;
      break;
  }
  if (frame.count == 0) {
    a.step = step.jump;
  } else {
    a.frames.push_back(frame);
    ++a.step;
  }
  return true;
}

bool Machine::again(Actor& a, const Step& step) {
  Frame& frame = a.frames.back();
  ++frame.index;
  if (std::get<Loop>(step.event->what).kind == Loop::Kind::tiles)  // behind the last one there is none
    begin_tile(a, frame.index < frame.count ? first_tile(a) + frame.index * apart() : -1);
  if (frame.index == frame.count) {
    a.frames.pop_back();
    ++a.step;
  } else {
    a.step = step.jump + 1;
  }
  return true;
}

void Machine::leave(Actor& a, const Leave& what) {
  if (what.variable >= 0) {
    const auto& of_tile = trial_.values[what.variable];
    const bool now = a.frames.back().index == of_tile[std::max(a.tile, 0) % of_tile.size()];
    a.step = now ? (*a.program)[a.frames.back().step].jump : a.step + 1;
    if (now) a.frames.pop_back();
    return;
  }
  if (a.tile == -2) fail(Rule::order, a, *(*a.program)[a.step].event, "no tile number was sent");
  if (a.tile >= 0) {
    ++a.step;
    return;
  }
  a.step = (*a.program)[a.frames.back().step].jump;
  a.frames.pop_back();
}

bool Machine::advance(Actor& a) {
  const Step& step = (*a.program)[a.step];
  const Event& e = *step.event;
  if (++steps_ > endless) fail(Rule::structure, a, e, "a loop without end");
  const auto in_flight = [&] {
    return a.gemms.open || a.all.seen[model_.component(a.index, Queue::gemm)] < a.gemms.committed;
  };
  switch (step.kind) {
    case Step::Kind::loop:
      return enter_loop(a, step);
    case Step::Kind::again:
      return again(a, step);
    case Step::Kind::guard: {
      const bool holds = guard_holds(a, e);
      if (holds && step.has_gemm && in_flight()) fail(Rule::drained, a, e, "begins with a gemm in flight");
      a.step = holds ? a.step + 1 : step.jump;
      return true;
    }
    case Step::Kind::end_guard:
      if (step.has_gemm && in_flight()) fail(Rule::drained, a, e, "ends with a gemm in flight");
      ++a.step;
      return true;
    case Step::Kind::event:
      break;
  }
  if (const auto* what = std::get_if<Leave>(&e.what)) {
    leave(a, *what);
    return true;
  }
  if (takes_part(a, e)) {
    if (a.waits == Waits::no) ++a.now;
    if (!perform(a, e)) return false;
  }
  // A turn may be passed on behalf of others, which are then past it.
  if (const auto* passed = std::get_if<PassTurn>(&e.what)) ++a.turns[resolved(a, passed->of).buffer];
  ++a.step;
  return true;
}

bool Machine::perform(Actor& a, const Event& e) {
  const int needed = a.step < model_.prologue_steps() ? 0 : schedule_.roles[a.id.role].registers;
  if (needed > a.registers &&
      (std::holds_alternative<Operation>(e.what) || std::holds_alternative<Gemm>(e.what)))
    fail(Rule::resources, a, e, fmt::format("its code needs {} registers, it has {}", needed, a.registers));
  return std::visit([&](const auto& what) { return on(a, e, what); }, e.what);
}

void Machine::end(Actor& a) {
  const Event& e = *a.program->back().event;
  if (a.gemms.open || a.all.seen[model_.component(a.index, Queue::gemm)] < a.gemms.committed)
    fail(Rule::drained, a, e, "ends with a gemm in flight");
  const Time read = std::max(a.lane.seen[model_.component(a.index, Queue::store_reads)], a.stores_done);
  if (a.stores.open || read < a.stores.committed)
    fail(Rule::exit, a, e, "ends while its stores still read shared memory");
  a.ended = true;
  a.end_time = ++a.now;
  release_cluster();
}

// Lets every warp (or only the preferred ones) run until it blocks; false: nobody could.
bool Machine::pass(bool all) {
  const int last = static_cast<int>(schedule_.roles.size()) - 1;
  bool progress = false;
  for (Actor& a : actors_) {
    bool preferred = true;
    switch (trial_.order) {
      case Order::round_robin:
        break;
      case Order::last_role_first:
        preferred = a.id.role == last;
        break;
      case Order::slow_warp:
        preferred = a.id.warp != static_cast<int>(trial_.seed % 4) || a.id.role != 0;
        break;
      case Order::slow_group:
        preferred = a.id.group != static_cast<int>(trial_.seed % 2) || a.id.role != 0;
        break;
      case Order::random:
        preferred = random_() % 2 == 0;
        break;
    }
    if (a.ended || !(all || preferred)) continue;
    int budget = trial_.order == Order::random ? 1 + static_cast<int>(random_() % 8) : 1 << 30;
    while (budget-- > 0 && a.step < static_cast<int>(a.program->size()) && advance(a)) progress = true;
    if (a.step < static_cast<int>(a.program->size())) continue;
    end(a);
    progress = true;
  }
  return progress;
}

std::optional<Finding> Machine::run() {
  try {
    for (;;) {
      while (pass(false)) {}
      if (!transfers_.empty()) {  // copies take their time: one that was issued at random comes first
        std::swap(transfers_[random_() % transfers_.size()], transfers_.back());
        const Transfer transfer = std::move(transfers_.back());
        transfers_.pop_back();
        deliver(transfer);
      } else if (!pass(true)) {
        break;
      }
    }
    for (const Actor& a : actors_)
      if (!a.ended) deadlock();
    final_checks();
  } catch (Found& found) { return std::move(found.finding); }
  return std::nullopt;
}

void Machine::final_checks() {
  for (const Turn& turn : turns_)
    for (const auto& [tile, event] : turn.waited)
      if (!turn.passed.contains(tile))
        fail(Rule::turn, actors_[0], *event,
             fmt::format("tile {} has waited for its turn, and keeps it", tile));
  for (const RemoteUse& use : remote_) {
    bool known = false;
    for (const Actor& a : actors_) known |= a.id.cta == use.cta && a.lane.seen[use.component] >= use.time;
    if (!known)
      fail(Rule::exit, actors_[use.warp], *use.event,
           fmt::format("CTA {} can end before this has arrived in it", use.cta));
  }
}

}  // namespace tegula::schedule
