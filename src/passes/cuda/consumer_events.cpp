#include <algorithm>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/role_events.hpp"
#include "passes/cuda/store_events.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Event;
using schedule::Events;
using schedule::Touch;
using schedule::Who;

namespace {

// The issue of a step's products by one warp group after the other, each while others do the rest of it.
void ping_pong(Events& body) {
  std::size_t first = 0, last = 0;
  while (first < body.size() && !std::holds_alternative<schedule::GemmFence>(body[first].what)) ++first;
  for (last = first; last < body.size() && !std::holds_alternative<schedule::GemmWait>(body[last].what);)
    ++last;
  if (last == body.size()) return;
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(last), {ping_pong_barrier(1, false)});
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(first), {ping_pong_barrier(0, true)});
}

// The events of each part, in its order: what it awaits, what it does, what it lets go.
class Consumer {
 public:
  Consumer(ScheduleNames& names, StoreEvents& stores, const Roles& roles, const ConsumerProgram& program)
      : names_(names), stores_(stores), roles_(roles), program_(program) {}

  // `loop`: whose steps they are, if any.
  Events events(const StepParts& parts, const Stmt& loop) {
    Events out;
    for (const StepPart& part : parts) {
      await(part, loop, out);
      does(part, out);
      if (part.left) out.push_back({schedule::GemmWait{*part.left}});
      let_go(part, loop, out);
    }
    return out;
  }

 private:
  void await(const StepPart& part, const Stmt& loop, Events& out) {
    meet(part.meeting, out);
    for (const int ring : part.awaited_before) out.push_back({schedule::WaitFull{{ring, -1}}});
    for (const int ring : part.advanced) out.push_back({schedule::Advance{ring}});
    for (const int ring : part.awaited) {
      if (roles_.is_told(ring)) {
        out.push_back({schedule::Acquire{{ring}}});
        continue;
      }
      out.push_back({schedule::WaitFull{{ring}}});
      // What threads copied becomes visible to the tensor cores.
      const RingPlan& own = roles_.rings[static_cast<std::size_t>(ring)];
      if (own.by_rows && !own.by_transposer) out.push_back({schedule::ProxyFence{}});
    }
    if (!part.awaited_next.empty()) {
      schedule::Guard guard{schedule::Guard::Kind::not_last, {}};
      for (const int ring : part.awaited_next) guard.body.push_back({schedule::WaitFull{{ring, 1}}});
      out.push_back(event_of(std::move(guard), loop));
    }
    if (part.in_flight) out.push_back({schedule::GemmWait{*part.in_flight}});
    for (const Release& own : part.landed) release(own, out);
  }

  void meet(Meeting meeting, Events& out) const {
    const int both = dealt_groups * threads_of_group;
    switch (meeting) {
      case Meeting::none:
        return;
      case Meeting::receive:
        return out.push_back({schedule::Barrier{message_barrier, true, 0, both, true}});
      case Meeting::own:
        return out.push_back({schedule::Barrier{group_barrier, true, 0, threads_of_group, true}});
      case Meeting::send:
        out.push_back({schedule::ProxyFence{}});
        return out.push_back({schedule::Barrier{message_barrier, true, 1, both, false}});
      case Meeting::all:
        return out.push_back({schedule::Barrier{consumer_barrier, false, 0, roles_.consumers, true}});
    }
  }

  void does(const StepPart& part, Events& out) {
    switch (part.does) {
      case StepPart::Does::nothing:
        return;
      case StepPart::Does::work:
        return work(part, out);
      case StepPart::Does::product:
        return product(part, out);
      case StepPart::Does::branch:
        return branch(part, out);
      case StepPart::Does::loop:
        return loop(part, out);
    }
  }

  void let_go(const StepPart& part, const Stmt& loop, Events& out) {
    if (!part.released_but_first.empty()) {
      schedule::Guard guard{schedule::Guard::Kind::not_first, {}};
      for (const int ring : part.released_but_first) guard.body.push_back(slot_before_is_empty(ring));
      out.push_back(event_of(std::move(guard), loop));
    }
    for (const Release& own : part.released) release(own, out);
  }

  Event slot_before_is_empty(int ring) const {
    return {schedule::Arrive{schedule::Side::empty, {ring, -1}, in_pairs()}, Who::each_warp};
  }

  // Only products read the slots of a step before, and each warp has awaited its own.
  void release(const Release& own, Events& out) {
    if (own.slot == Release::Slot::before) return out.push_back(slot_before_is_empty(own.ring));
    if (own.slot == Release::Slot::own) {
      const bool fills = roles_.is_told(own.ring) || roles_.is_relayed(own.ring);
      if (roles_.is_relayed(own.ring)) out.push_back({schedule::ProxyFence{}});  // for tensor cores
      out.push_back({schedule::WarpSync{}});
      const auto side = fills ? schedule::Side::full : schedule::Side::empty;
      out.push_back({schedule::Arrive{side, {own.ring}, in_pairs()}, Who::each_warp});
    }
    out.push_back({schedule::Advance{own.ring}});
  }

  void work(const StepPart& part, Events& out) {
    const Stmt& s = part.stmt;
    if (const auto leave = names_.leaves(s)) return out.push_back(event_of(*leave, s));
    if (is_engine_store(s)) return append(out, stores_.store(s));
    if (as<Turn>(s)) return append(out, stores_.turn(s));
    if (has_stores(s)) return nested(s, out);
    for (const Buffer* tile : told_by(s))
      if (!told_.insert(tile).second) meet(Meeting::all, out);
    schedule::Operation own{accesses(part), part.first, part.last, part.holds};
    for (const schedule::Access& access : stores_.in_turn(s)) own.accesses.push_back(access);
    out.push_back(event_of(std::move(own), s));
  }

  // Tiles for the producer that the statement writes, each once however often: a thread writes elements of
  // its own.
  std::unordered_set<const Buffer*> told_by(const Stmt& s) const {
    std::unordered_set<const Buffer*> result;
    for (const Region& r : all_effects(s).regions)
      if (is_write(r.touch) && names_.is_told(r.view->buffer.get())) result.insert(r.view->buffer.get());
    return result;
  }

  static bool is_of_teams(LoopKind kind) { return kind == LoopKind::warps || kind == LoopKind::warp_groups; }

  static void append(Events& to, Events from) {
    for (Event& e : from) to.push_back(std::move(e));
  }

  // Whether events of their own stand in a body of the statement.
  static bool has_stores(const Stmt& s) {
    const auto* loop = as<For>(s);
    if (loop && (loop->kind == LoopKind::parallel || is_of_teams(loop->kind))) return false;
    bool found = false;
    for_each_body(s, [&](const Body& inner) {
      for_each_stmt(inner, [&](const Stmt& n) { found |= is_engine_store(n) || as<Turn>(n); });
    });
    return found;
  }

  void nested(const Stmt& s, Events& out) {
    const auto inside = [&](const Body& body) {
      Events events;
      for (const Stmt& inner : body) {
        StepPart part;
        part.stmt = inner;
        work(part, events);
      }
      return events;
    };
    const auto repeat = [&](const schedule::Count& count, const Body& body) {
      out.push_back(event_of(schedule::Loop{schedule::Loop::Kind::counted, count, inside(body)}, s));
    };
    if (const auto* loop = as<For>(s)) return repeat(names_.steps(*loop), loop->body);
    if (const auto* loop = as<While>(s)) return repeat(names_.repeated(*s), loop->body);
    const auto& branch = *as<If>(s);
    repeat(names_.taken(branch), branch.then);
    if (branch.otherwise.empty()) return;
    out.push_back(event_of(schedule::Guard{schedule::Guard::Kind::data, inside(branch.otherwise)}, s));
  }

  std::vector<schedule::Access> accesses(const StepPart& part) {
    std::vector<schedule::Access> result;
    std::unordered_set<const Buffer*> told = told_by(part.stmt);
    for (const Region& r : all_effects(part.stmt).regions) {
      const BufferPtr& b = r.view->buffer;
      if (b->space != Space::fragment && !names_.is_ring(b.get()) && !names_.is_message(b.get())) continue;
      // The team's own barriers order what consumers read of each other.
      if (names_.is_told(b.get()) && (!is_write(r.touch) || told.erase(b.get()) == 0)) continue;
      const Touch touch = !is_write(r.touch) ? Touch::read : is_read(r.touch) ? Touch::update : Touch::write;
      result.push_back(b == part.in_parts && touch != Touch::read
                           ? names_.part(b, Touch::write, part.first, part.last)
                           : names_.access(b, touch));
    }
    return result;
  }

  std::vector<schedule::Access> accesses_of_product(const StepPart& part) {
    const auto& gemm = *as<Gemm>(part.stmt);
    std::vector<schedule::Access> result;
    for (const View* operand : {&gemm.a, &gemm.b}) {
      if (operand->buffer == part.in_parts)
        result.push_back(names_.part(operand->buffer, Touch::read, part.first, part.last));
      else if (operand->buffer->space == Space::fragment || names_.is_ring(operand->buffer.get()) ||
               names_.is_message(operand->buffer.get()))
        result.push_back(names_.access(operand->buffer, Touch::read));
    }
    const bool writes = gemm.overwrite && part.first == 0;
    result.push_back(names_.access(gemm.c.buffer, writes ? Touch::write : Touch::update));
    return result;
  }

  void product(const StepPart& part, Events& out) {
    if (part.ping_pong) out.push_back(ping_pong_barrier(0, true));
    const auto& gemm = *as<Gemm>(part.stmt);
    if (gemm.metadata && names_.is_ring(gemm.metadata->buffer.get()))  // threads read it
      out.push_back(
          event_of(schedule::Operation{{names_.access(gemm.metadata->buffer, Touch::read)}}, part.stmt));
    out.push_back(event_of(schedule::GemmFence{part.pins}, part.stmt));
    out.push_back(
        event_of(schedule::Gemm{accesses_of_product(part), part.only, part.first, part.last}, part.stmt));
    if (part.last == 16) out.push_back({schedule::GemmCommit{}});
    if (part.ping_pong) out.push_back(ping_pong_barrier(1, false));
  }

  void branch(const StepPart& part, Events& out) {
    const auto peeled = program_.non_empty.find(part.stmt.get());
    const schedule::Share share = share_of(part.stmt);
    const schedule::Count count = share == schedule::Share::first       ? schedule::Count{1}
                                  : share == schedule::Share::left_over ? steps_
                                  : peeled == program_.non_empty.end()
                                      ? names_.taken(*as<If>(part.stmt))
                                      : names_.first(std::get<For>(peeled->second->node));
    Events then = events(part.inner, nullptr);
    out.push_back(
        event_of(schedule::Loop{schedule::Loop::Kind::counted, count, std::move(then), share}, part.stmt));
    if (as<If>(part.stmt)->otherwise.empty()) return;
    Events otherwise = events(part.otherwise, nullptr);
    out.push_back(event_of(schedule::Guard{schedule::Guard::Kind::data, std::move(otherwise)}, part.stmt));
  }

  schedule::Share share_of(const Stmt& s) const {
    if (!roles_.dealt) return schedule::Share::all;
    const auto found = roles_.dealt->shares.find(s.get());
    return found == roles_.dealt->shares.end() ? schedule::Share::all : found->second;
  }

  // Each group runs the same, steps that are dealt apart.
  void dealt(const StepPart& part, Events& out) {
    const auto& own = *as<For>(part.stmt);
    const schedule::Share share = share_of(part.stmt);
    if (share == schedule::Share::pairs) steps_ = names_.rest(own);
    Events inner = events(part.inner, part.stmt);
    const schedule::Count count = share == schedule::Share::pairs ? steps_ : schedule::Count{1};
    out.push_back(event_of(schedule::Loop{schedule::Loop::Kind::counted, count, std::move(inner), share},
                           part.stmt, Who::all, own.index[0]->name));
  }

  void loop(const StepPart& part, Events& out) {
    const auto* own_loop = as<For>(part.stmt);
    if (own_loop && (own_loop->kind == LoopKind::warp_groups || share_of(part.stmt) != schedule::Share::all))
      return dealt(part, out);
    if (const auto* own = as<While>(part.stmt)) {
      Events inner = events(part.inner, part.stmt);
      return out.push_back(event_of(
          schedule::Loop{schedule::Loop::Kind::counted, names_.steps(*own), std::move(inner)}, part.stmt));
    }
    const auto& own = *as<For>(part.stmt);
    const auto shape = program_.shapes.find(part.stmt.get());
    const bool is_delayed = shape != program_.shapes.end() && shape->second == LoopShape::delayed;
    const bool has_own_count = shape != program_.shapes.end();
    const bool is_whole =
        has_own_count && (shape->second == LoopShape::deep || shape->second == LoopShape::early);
    const schedule::Count count = is_whole        ? schedule::Count{1} + names_.rest(own)
                                  : has_own_count ? names_.rest(own)
                                                  : names_.steps(own);
    Events inner = events(part.inner, part.stmt);
    const bool exchanges = std::any_of(part.inner.begin(), part.inner.end(),
                                       [](const StepPart& inner_part) { return inner_part.exchanges; });
    if (is_delayed && ping_pong_pays(roles_.consumers) && !exchanges) ping_pong(inner);
    out.push_back(event_of(schedule::Loop{schedule::Loop::Kind::counted, count, std::move(inner)}, part.stmt,
                           Who::all, own.index[0]->name));
  }

  bool in_pairs() const { return roles_.cluster() > 1; }

  ScheduleNames& names_;
  StoreEvents& stores_;
  const Roles& roles_;
  const ConsumerProgram& program_;
  std::unordered_set<const Buffer*> told_;  // tiles for the producer that an earlier part wrote
  schedule::Count steps_;                   // behind the first one, of the last loop whose steps are dealt
};

}  // namespace

Events consumer_events(ScheduleNames& names, StoreEvents& stores, const Roles& roles,
                       const ConsumerProgram& program, const StepParts& parts) {
  return Consumer(names, stores, roles, program).events(parts, nullptr);
}

}  // namespace tegula::passes
