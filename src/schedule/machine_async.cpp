// Asynchronous work: warpgroup gemms, the copy engine, copies by threads, stores; and what travels with
// tiles.
#include <fmt/format.h>

#include "schedule/machine.hpp"

namespace tegula::schedule {

bool Machine::on(Actor& a, const Event& e, const Operation& x) {
  for (const Access& access : x.accesses) touch_by_threads(a, e, access);
  take(a, x);
  a.loaded = {e.stmt.get(), a.now};
  return true;
}

// ------------------------------------------------------------------------------------- warpgroup gemms
bool Machine::on(Actor& a, const Event& e, const Gemm& x) {
  converge(a);
  if (a.gemm_fence == 0) fail(Rule::gemm_fence, a, e, "no gemm fence comes before the role's first gemm");
  for (const Access& access : x.accesses)
    touch_in_queue(a, e, access, Queue::gemm, a.gemms.committed + 1, true);
  for (const Access& access : x.accesses)
    if (x.last == 16 && access.touch == Touch::read &&
        schedule_.buffers[access.buffer].space == Space::registers)
      a.arrived = std::max(a.arrived, a.made[access.buffer]);
  if (e.stmt && a.loaded.first == e.stmt.get()) a.arrived = std::max(a.arrived, a.loaded.second);
  a.gemms.open = true;
  return true;
}

bool Machine::on(Actor& a, const Event&, const GemmFence&) {
  converge(a);
  a.gemm_fence = a.now;
  return true;
}

bool Machine::on(Actor& a, const Event&, const GemmCommit&) {
  converge(a);
  ++a.gemms.committed;
  a.gemms.open = false;
  return true;
}

bool Machine::on(Actor& a, const Event& e, const GemmWait& x) {
  converge(a);
  const Time pending = static_cast<Time>(x.pending);
  if (a.gemms.committed >= pending)
    learn(a, e, model_.component(a.index, Queue::gemm), a.gemms.committed - pending);
  return true;
}

// ------------------------------------------------------------------------------------- copy engine
bool Machine::on(Actor& a, const Event& e, const Load& x) {
  const Ring& ring = schedule_.rings[x.place.ring];
  const int phase = use_of(a, x.place) / ring.depth;
  const Knowledge& k = of(a, e);
  for (int cta = 0; cta < model_.ctas(); ++cta) {
    if (cta != a.id.cta && !x.multicast) continue;
    check_ready(a, e, k, cta);
    const int barrier = barrier_of(a, Side::full, x.place, cta);
    const int component = model_.barrier_component(barrier);
    if (barriers_[barrier].phase > phase)
      fail(Rule::phase, a, e,
           fmt::format("loads for phase {} of {}, which is over", phase, barrier_name(barrier)));
    touch(a, e, x.to, cta,
          {parts_of(a, x.to), component, static_cast<Time>(phase + 1), x.to.touch, true, 0, a.index, &e});
    transfers_.push_back({barrier, phase, x.bytes, k.seen, &e, a.index});
    remote_.push_back({cta, component, static_cast<Time>(phase + 1), &e, a.index});
  }
  return true;
}

void Machine::deliver(const Transfer& t) {
  MBarrier& barrier = barriers_[t.barrier];
  const Actor& a = actors_[t.warp];
  if (barrier.phase != t.phase)
    fail(Rule::phase, a, *t.event,
         fmt::format("{} bytes for phase {} reach {} in phase {}", t.bytes, t.phase, barrier_name(t.barrier),
                     barrier.phase));
  // Only the phases of barriers, of all that the issuer knows, are passed on with the bytes.
  for (int c = model_.barrier_component(0); c < model_.barrier_component(model_.barriers()); ++c)
    barrier.gathered.seen[c] = std::max(barrier.gathered.seen[c], t.issued[c]);
  barrier.bytes -= t.bytes;
  complete(t.barrier);
}

// What the threads wrote is published by the arrival.
bool Machine::on(Actor& a, const Event& e, const Complete& x) {
  const int barrier = barrier_of(a, Side::full, x.place, a.id.cta);
  const int phase = use_of(a, x.place) / schedule_.rings[x.place.ring].depth;
  check_ready(a, e, of(a, e), a.id.cta);
  if (barriers_[barrier].phase != phase)
    fail(Rule::phase, a, e,
         fmt::format("{} bytes for phase {} reach {} in phase {}", x.bytes, phase, barrier_name(barrier),
                     barriers_[barrier].phase));
  barriers_[barrier].bytes -= x.bytes;
  complete(barrier);
  return true;
}

bool Machine::on(Actor& a, const Event& e, const Store& x) {
  touch_in_queue(a, e, x.from, Queue::store_reads, a.stores.committed + 1, true);
  if (x.to) touch_in_queue(a, e, resolved(a, *x.to), Queue::store_writes, a.stores.committed + 1, true);
  a.stores.open = true;
  return true;
}

bool Machine::on(Actor& a, const Event&, const StoreCommit&) {
  ++a.stores.committed;
  a.stores.open = false;
  return true;
}

bool Machine::on(Actor& a, const Event&, const StoreWait& x) {
  const Time pending = static_cast<Time>(x.pending);
  if (a.stores.committed < pending) return true;
  const Time done = a.stores.committed - pending;
  const auto raise = [&](Time& t) { t = std::max(t, done); };
  raise(a.lane.seen[model_.component(a.index, Queue::store_reads)]);
  if (!x.reads_only) raise(a.stores_done);
  return true;
}

// ------------------------------------------------------------------------------------- copies by threads
bool Machine::on(Actor& a, const Event& e, const CopyAsync& x) {
  for (const Access& access : x.accesses) touch_by_threads(a, e, access);
  if (!x.accesses.empty()) a.arrived = a.now;  // addresses are made of them
  check_read(a, e, x.to);
  touch_in_queue(a, e, x.to, Queue::copies, a.copies.committed + 1, false);
  a.copies.open = true;
  return true;
}

bool Machine::on(Actor& a, const Event&, const CopyCommit&) {
  ++a.copies.committed;
  a.copies.open = false;
  return true;
}

bool Machine::on(Actor& a, const Event& e, const CopyWait& x) {
  const Time pending = static_cast<Time>(x.pending);
  if (a.copies.committed >= pending)
    learn(a, e, model_.component(a.index, Queue::copies), a.copies.committed - pending);
  return true;
}

bool Machine::on(Actor& a, const Event& e, const CopyArrive& x) {
  ++a.copies.committed;
  a.copies.open = false;
  Knowledge& knowledge = published(a, e);
  knowledge.seen[model_.component(a.index, Queue::copies)] = a.copies.committed;
  check_ready(a, e, knowledge, a.id.cta);
  arrive(a, e, barrier_of(a, Side::full, x.place, a.id.cta),
         use_of(a, x.place) / schedule_.rings[x.place.ring].depth, e.who == Who::all ? 32 : 1, knowledge);
  return true;
}

// ------------------------------------------------------------------------------------- tiles and turns
bool Machine::on(Actor& a, const Event&, const NextTile&) {
  begin_tile(a, next_tile_ < trial_.tiles ? next_tile_++ : -1);
  return true;
}

bool Machine::on(Actor& a, const Event& e, const SendTile& x) {
  touch_by_threads(a, e, x.to);
  mailbox_[cell_of(a, x.to, a.id.cta)] = {a.tile, x.pair};
  return true;
}

bool Machine::on(Actor& a, const Event& e, const ReceiveTile& x) {
  touch_by_threads(a, e, x.from);
  const Message& message = mailbox_[cell_of(a, x.from, a.id.cta)];
  a.pair = message.pair;
  begin_tile(a, message.tile);
  return true;
}

// Whether the role that takes the turns of the tile has begun a later tile.
bool Machine::is_over(const Actor& a, int tile) const {
  for (const Actor& other : actors_)
    if (other.id.cta == owners_[tile] && other.id.role == a.id.role && other.id.group == a.id.group &&
        other.id.warp == a.id.warp)
      return other.ended || other.tile > tile || other.tile == -1;
  return false;
}

bool Machine::on(Actor& a, const Event& e, const WaitTurn& x) {
  Turn& turn = turns_[cell_of(a, resolved(a, x.of), a.id.cta)];
  for (int tile = 0; tile < a.tile; ++tile)
    if (!turn.passed.contains(tile) && !is_over(a, tile)) return false;
  turn.waited.emplace(a.tile, &e);
  learn(a, e, turn.done);
  return true;
}

bool Machine::on(Actor& a, const Event& e, const PassTurn& x) {
  Turn& turn = turns_[cell_of(a, resolved(a, x.of), a.id.cta)];
  if (!turn.waited.contains(a.tile))
    fail(Rule::turn, a, e, fmt::format("passes the turn of tile {}, which has not waited for it", a.tile));
  turn.passed.insert(a.tile);
  turn.done.join(published(a, e));
  return true;
}

}  // namespace tegula::schedule
