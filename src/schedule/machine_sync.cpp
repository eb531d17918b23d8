// Barriers of rings, barriers among threads, fences, registers.
#include <fmt/format.h>

#include "schedule/machine.hpp"

namespace tegula::schedule {

int Machine::barrier_of(const Actor& a, Side side, const Place& place, int cta) const {
  const Ring& ring = schedule_.rings[place.ring];
  const int slot = (use_of(a, place) % ring.depth + ring.depth) % ring.depth;
  return model_.barrier(cta, place.ring, side, instance_of(a, place.instance, ring.instances), slot);
}

std::string Machine::barrier_name(int barrier) const {
  for (int cta = 0; cta < model_.ctas(); ++cta)
    for (int r = 0; r < static_cast<int>(schedule_.rings.size()); ++r) {
      const Ring& ring = schedule_.rings[r];
      if (!ring.barriers) continue;
      const int first = model_.barrier(cta, r, Side::full, 0, 0), n = ring.instances * ring.depth;
      if (barrier < first || barrier >= first + 2 * n) continue;
      const int i = (barrier - first) % n;
      std::string name = barrier - first < n ? "full " : "empty ";
      name += ring.name;
      if (ring.instances > 1) name += fmt::format(" of group {}", i / ring.depth);
      if (ring.depth > 1) name += fmt::format("[{}]", i % ring.depth);
      return name + (model_.ctas() > 1 ? fmt::format(" in CTA {}", cta) : "");
    }
  return "?";
}

void Machine::check_ready(const Actor& a, const Event& e, const Knowledge& knowledge, int cta) {
  const Init& init = init_[cta];
  if (init.time == 0) fail(Rule::init, a, e, "the barriers are not initialised yet");
  if (knowledge.seen[init.component] < init.time)
    fail(Rule::init, a, e, "nothing orders it after the initialisation of the barriers");
  const bool remote = cta != a.id.cta || std::holds_alternative<Load>(e.what);
  if (remote && (init.fenced == 0 || knowledge.seen[init.component] < init.fenced))
    fail(Rule::init, a, e, "the initialisation is not fenced for other CTAs and the copy engine");
}

bool Machine::wait(Actor& a, const Event& e, Side side, const Place& place) {
  const int use = use_of(a, place), depth = schedule_.rings[place.ring].depth;
  const int phase = (use - (use < 0 ? depth - 1 : 0)) / depth - (side == Side::empty ? 1 : 0);
  const int index = barrier_of(a, side, place, a.id.cta);
  MBarrier& barrier = barriers_[index];
  check_ready(a, e, of(a, e), a.id.cta);
  const bool passes = ((barrier.phase ^ phase) & 1) != 0;
  if (barrier.phase > phase + 1)
    fail(Rule::lapped, a, e,
         fmt::format("{} is {} phases ahead: the parity came round again", barrier_name(index),
                     barrier.phase - phase));
  if (passes && barrier.phase != phase + 1)
    fail(Rule::phase, a, e,
         fmt::format("waits for phase {} of {}, which is at {}: the parity lets it pass early", phase,
                     barrier_name(index), barrier.phase));
  if (!passes) return false;
  if (phase < 0) return true;
  learn(a, e, barrier.done);
  const Queue queue = e.who == Who::all ? Queue::reads : Queue::lane;
  barrier.waiters.emplace_back(model_.component(a.index, queue), a.now);
  return true;
}

bool Machine::on(Actor& a, const Event& e, const WaitFull& x) { return wait(a, e, Side::full, x.place); }
bool Machine::on(Actor& a, const Event& e, const Acquire& x) { return wait(a, e, Side::empty, x.place); }

void Machine::arrive(const Actor& a, const Event& e, int index, int phase, int count,
                     const Knowledge& knowledge) {
  MBarrier& barrier = barriers_[index];
  if (barrier.phase != phase || barrier.missing < count)
    fail(Rule::phase, a, e,
         fmt::format("arrives for phase {} at {}, which is in phase {} with {} arrivals missing", phase,
                     barrier_name(index), barrier.phase, barrier.missing));
  if (knowledge.seen[model_.barrier_component(index)] < static_cast<Time>(phase))
    fail(Rule::phase, a, e,
         fmt::format("arrives for phase {} at {}, but nothing orders it after the end of phase {}", phase,
                     barrier_name(index), phase - 1));
  barrier.missing -= count;
  barrier.gathered.join(knowledge);
  complete(index);
}

void Machine::complete(int index) {
  MBarrier& barrier = barriers_[index];
  if (barrier.missing != 0 || barrier.bytes != 0) return;
  const int component = model_.barrier_component(index);
  ++barrier.phase;
  std::swap(barrier.done, barrier.gathered);
  barrier.gathered.clear();
  barrier.done.seen[component] = static_cast<Time>(barrier.phase);
  for (const auto& [who, time] : barrier.waiters)
    if (barrier.done.seen[who] < time) {
      const Actor& a = actors_[model_.warp_of(who)];
      fail(Rule::lapped, a, *(*a.program)[a.step].event,
           fmt::format("{} can complete phase {} before {} has seen the phase before", barrier_name(index),
                       barrier.phase - 1, who_is(a.index)));
    }
  barrier.waiters.clear();
  barrier.missing = barrier.arrivals;
}

// Loads that the values of registers come from have arrived, and those before them: what all threads did when
// they last met.
void Machine::arrive_behind(Actor& a, const Arrive& x) {
  for (const int buffer : x.behind) a.arrived = std::max(a.arrived, a.made[buffer]);
  if (x.behind.empty()) return;
  const int reads = model_.component(a.index, Queue::reads);
  a.lane.fenced[reads] = std::max(a.lane.fenced[reads], std::min(a.arrived, a.lane.seen[reads]));
}

bool Machine::on(Actor& a, const Event& e, const Arrive& x) {
  const Ring& ring = schedule_.rings[x.place.ring];
  const int phase = use_of(a, x.place) / ring.depth;
  const int count = e.who == Who::all ? 32 : 1;
  arrive_behind(a, x);
  // Threads of one warp that arrive at different CTAs know in common only what all threads know.
  Knowledge& knowledge = published(a, e);
  if (x.whole_cluster) {
    knowledge = a.all;
    knowledge.seen[model_.component(a.index, Queue::lane)] = a.now;
  }
  for (int i = 0; i < (x.whole_cluster ? model_.ctas() : 1); ++i) {
    const int cta = x.whole_cluster ? i : a.id.cta;
    check_ready(a, e, knowledge, cta);
    arrive(a, e, barrier_of(a, x.side, x.place, cta), phase, count, knowledge);
    if (cta != a.id.cta) remote_.push_back({cta, model_.component(a.index, Queue::lane), a.now, &e, a.index});
  }
  return true;
}

bool Machine::on(Actor& a, const Event& e, const Expect& x) {
  const int index = barrier_of(a, Side::full, x.place, a.id.cta);
  const Knowledge& knowledge = published(a, e);
  check_ready(a, e, knowledge, a.id.cta);
  barriers_[index].bytes += x.bytes;
  arrive(a, e, index, use_of(a, x.place) / schedule_.rings[x.place.ring].depth, e.who == Who::all ? 32 : 1,
         knowledge);
  return true;
}

bool Machine::on(Actor& a, const Event&, const Advance& x) {
  a.cursors[x.ring] += x.back ? -1 : 1;
  return true;
}

bool Machine::on(Actor& a, const Event& e, const ProxyFence& x) {
  const auto raise = [&](Knowledge& k) { join(x.global ? k.fenced_global : k.fenced, k.seen); };
  raise(a.lane);
  if (e.who == Who::all) {
    raise(a.all);
    if (!x.global) a.fenced = a.arrived = a.now;
  }
  const int lane = model_.component(a.index, Queue::lane);
  if (!x.global) a.lane.fenced[lane] = a.now;
  if (x.global) a.lane.seen[model_.component(a.index, Queue::store_writes)] = a.stores_done;
  return true;
}

bool Machine::on(Actor& a, const Event&, const WarpSync&) {
  collect(a);
  return true;
}

bool Machine::on(Actor& a, const Event& e, const Barrier& x) {
  if (a.waits == Waits::arrived) return false;
  if (a.waits == Waits::released) {
    a.waits = Waits::no;
    return true;
  }
  const int groups = schedule_.roles[a.id.role].groups;
  const int id = x.id + (x.per_group ? (a.id.group + x.rotate) % groups : 0);
  NamedBarrier& b = named_[a.id.cta * named_barriers + id];
  const int component = model_.named_component(a.id.cta, id);
  collect(a);
  if (b.arrived > 0 && b.threads != x.threads)
    fail(Rule::barrier, a, e,
         fmt::format("barrier {} is used by {} and by {} threads in one round", id, b.threads, x.threads));
  if (std::find(b.members.begin(), b.members.end(), a.index) != b.members.end())
    fail(Rule::barrier, a, e, fmt::format("meets barrier {} twice in one round", id));
  if (a.all.seen[component] < static_cast<Time>(b.round))
    fail(Rule::barrier, a, e,
         fmt::format("meets round {} of barrier {}, but nothing orders it after the round before", b.round,
                     id));
  b.threads = x.threads;
  b.arrived += 32;
  b.members.push_back(a.index);
  b.gathered.join(a.all);
  if (b.arrived < x.threads) {
    if (!x.wait) return true;
    b.waiting.push_back(a.index);
    a.waits = Waits::arrived;
    return false;
  }
  b.gathered.seen[component] = static_cast<Time>(++b.round);
  if (x.wait) {
    a.all.join(b.gathered);
    a.lane.join(b.gathered);
  }
  end_round(b);
  return true;
}

// Those that wait go on, and know what all that arrived knew.
void Machine::end_round(NamedBarrier& b) {
  for (const int w : b.waiting) {
    actors_[w].all.join(b.gathered);
    actors_[w].lane.join(b.gathered);
    actors_[w].waits = Waits::released;
  }
  b.arrived = 0;
  b.members.clear();
  b.waiting.clear();
  b.gathered.clear();
}

bool Machine::on(Actor& a, const Event&, const ClusterBarrier&) {
  if (a.waits == Waits::arrived) return false;
  if (a.waits == Waits::released) {
    a.waits = Waits::no;
    return true;
  }
  collect(a);
  cluster_.gathered.join(a.all);
  cluster_.waiting.push_back(a.index);
  a.waits = Waits::arrived;
  release_cluster();
  if (a.waits != Waits::released) return false;
  a.waits = Waits::no;
  return true;
}

// Threads that have ended count as arrived.
void Machine::release_cluster() {
  if (cluster_.waiting.empty()) return;
  std::size_t running = 0;
  for (const Actor& a : actors_) running += a.ended ? 0 : 1;
  if (cluster_.waiting.size() < running) return;
  end_round(cluster_);
}

bool Machine::on(Actor& a, const Event&, const InitBarriers&) {
  Init& init = init_[a.id.cta];
  init.component = model_.component(a.index, Queue::lane);
  init.time = a.now;
  a.lane.seen[init.component] = a.now;
  return true;
}

bool Machine::on(Actor& a, const Event&, const InitFence&) {
  Init& init = init_[a.id.cta];
  if (init.time != 0) init.fenced = a.now;
  return true;
}

bool Machine::on(Actor& a, const Event&, const SetRegisters& x) {
  int& free = registers_free_[a.id.cta];
  const int more = 32 * (x.count - a.registers);
  if (more > free) return false;
  free -= more;
  a.registers = x.count;
  return true;
}

}  // namespace tegula::schedule
