#include <fmt/format.h>

#include "schedule/machine.hpp"

namespace tegula::schedule {

void Machine::learn(Actor& a, const Event& e, const Knowledge& what) {
  if (e.who == Who::all) a.all.join(what);
  a.lane.join(what);
}

void Machine::learn(Actor& a, const Event& e, int component, Time time) {
  if (e.who == Who::all) a.all.seen[component] = std::max(a.all.seen[component], time);
  a.lane.seen[component] = std::max(a.lane.seen[component], time);
}

void Machine::converge(Actor& a) {
  const int reads = model_.component(a.index, Queue::reads);
  a.all.seen[reads] = a.lane.seen[reads] = a.now;
  a.all.fenced[reads] = a.lane.fenced[reads] = a.arrived;
}

// Loads of a warp from shared memory arrive in order; their values have arrived when a product or a store
// takes what was made of them.
void Machine::take(Actor& a, const Operation& x) {
  const auto is_in = [&](const Access& access, Space space) {
    return schedule_.buffers[access.buffer].space == space;
  };
  Time value = 0;
  for (const Access& access : x.accesses) {
    if (access.touch == Touch::write) continue;
    if (is_in(access, Space::shared)) value = a.now;
    if (is_in(access, Space::registers)) value = std::max(value, a.made[access.buffer]);
  }
  for (const Access& access : x.accesses) {
    if (access.touch == Touch::read) continue;
    if (is_in(access, Space::registers)) a.made[access.buffer] = value;
    if (is_in(access, Space::shared)) a.arrived = std::max(a.arrived, value);
  }
}

void Machine::collect(Actor& a) {
  converge(a);
  const int writes = model_.component(a.index, Queue::writes), lane = model_.component(a.index, Queue::lane);
  a.lane.seen[writes] = a.lane.seen[lane] = a.now;
  a.lane.fenced[writes] = std::max(a.lane.fenced[writes], a.fenced);
  a.all.join(a.lane);
  a.lane.join(a.all);
}

// What others learn from an arrival of the executing threads.
Knowledge& Machine::published(const Actor& a, const Event& e) {
  Knowledge& k = published_;
  k = e.who == Who::all ? a.all : a.lane;
  if (e.who == Who::all) {
    const int writes = model_.component(a.index, Queue::writes);
    const int reads = model_.component(a.index, Queue::reads);
    k.seen[writes] = k.seen[reads] = a.now;
    k.fenced[reads] = std::max(k.fenced[reads], a.arrived);
    k.fenced[writes] = std::max(k.fenced[writes], a.fenced);
  } else {
    k.seen[model_.component(a.index, Queue::lane)] = a.now;
  }
  return k;
}

int Machine::slot_of(const Actor& a, const Slot& slot, int slots) const {
  switch (slot.kind) {
    case Slot::Kind::fixed:
      return slot.value % slots;
    case Slot::Kind::cursor: {  // which a loop that goes back too far may leave below zero
      const int rest = (a.cursors[slot.value] + slot.shift) % slots;
      return rest < 0 ? rest + slots : rest;
    }
    case Slot::Kind::turn:
      return a.turns[slot.value] % slots;
  }
  return 0;
}

int Machine::instance_of(const Actor& a, const Instance& instance, int instances) const {
  switch (instance.kind) {
    case Instance::Kind::own:
      return a.id.group % instances;
    case Instance::Kind::fixed:
      return instance.value % instances;
  }
  return 0;
}

std::uint64_t Machine::parts_of(const Actor& a, const Access& access) const {
  const Buffer& buffer = schedule_.buffers[access.buffer];
  const Parts& p = access.parts;
  const std::uint64_t all = buffer.parts == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << buffer.parts) - 1;
  const int by = p.per_group * a.id.group + p.per_warp * a.id.warp + p.per_cta * a.id.cta;
  return (p.mask << by) & all;
}

Access Machine::resolved(const Actor& a, Access access) const {
  if (!access.told) return access;
  constexpr int buffers_of_pair = 2;
  access.buffer += buffers_of_pair * a.pair;
  if (access.slot.kind == Slot::Kind::turn) access.slot.value += buffers_of_pair * a.pair;
  return access;
}

int Machine::cell_of(const Actor& a, const Access& access, int cta) const {
  const Buffer& b = schedule_.buffers[access.buffer];
  const int slots = b.space == Space::global ? global_slots : b.slots;
  return model_.cell(a.index, cta, access.buffer, instance_of(a, access.instance, b.instances),
                     slot_of(a, access.slot, slots));
}

std::string Machine::place_name(const Actor& a, const Access& access) const {
  const Buffer& b = schedule_.buffers[access.buffer];
  std::string name = b.name;
  if (b.instances > 1) name += fmt::format(" of group {}", instance_of(a, access.instance, b.instances));
  if (b.space == Space::global || b.slots > 1)
    name += fmt::format("[{}]", slot_of(a, access.slot, b.space == Space::global ? global_slots : b.slots));
  return name;
}

namespace {
bool conflict(Touch a, Touch b) {
  if (a == Touch::read && b == Touch::read) return false;
  return !(a == Touch::add && b == Touch::add);
}
const char* verb(Touch touch) {
  switch (touch) {
    case Touch::read:
      return "reads";
    case Touch::write:
      return "writes";
    case Touch::update:
      return "updates";
    case Touch::add:
      return "adds to";
  }
  return "";
}
}  // namespace

void Machine::compare(const Actor& a, const Event& e, const Access& access, const Record& old,
                      const Record& made) {
  const Space space = schedule_.buffers[access.buffer].space;
  const Knowledge& k = e.who == Who::all ? a.all : a.lane;
  const bool old_gemm = old.component == model_.component(old.warp, Queue::gemm);
  const auto report = [&](Rule rule, const char* why) {
    fail(rule, a, e,
         fmt::format("{} {} while `{}` of {} {} it: {}", verb(made.touch), place_name(a, access),
                     print(schedule_, *old.event), who_is(old.warp), verb(old.touch), why));
  };
  if (space == Space::registers) {
    if (!old.async && !made.async) return;
    if (old.async && made.async && old.touch != Touch::read && made.touch != Touch::read) return;
    if (!old.async) {
      if (old.time > a.gemm_fence) report(Rule::gemm_fence, "no gemm fence is between them");
      return;
    }
  }
  if (k.seen[old.component] < old.time)
    report(old_gemm ? Rule::in_flight : Rule::order,
           old_gemm ? "that gemm is still in flight" : "nothing orders them");
  if (!made.async) return;
  if (old.touch == Touch::read) {
    if (space == Space::shared && std::holds_alternative<Load>(e.what) &&
        old.component == model_.component(old.warp, Queue::reads) && k.fenced[old.component] < old.time)
      report(Rule::proxy, "its values may be on their way, and no proxy fence is between them");
    return;
  }
  if (space == Space::shared && !old.async && k.fenced[old.component] < old.time)
    report(Rule::proxy, "no proxy fence is between them");
  if (space == Space::global && model_.has_turns() && k.fenced_global[old.component] < old.time)
    report(Rule::proxy, "no proxy fence for global memory is between them");
}

void Machine::touch(Actor& a, const Event& e, const Access& access, int cta, const Record& made) {
  std::vector<Record>& records = memory_[cell_of(a, access, cta)];
  for (const Record& old : records)
    if ((old.parts & made.parts) != 0 && conflict(old.touch, made.touch) &&
        !(old.mapping != 0 && old.mapping == made.mapping))
      compare(a, e, access, old, made);
  const bool replaces = made.touch == Touch::write || made.touch == Touch::update;
  std::erase_if(records, [&](Record& old) {
    const bool of_others = old.mapping != 0 && old.mapping == made.mapping && old.warp != made.warp;
    if (replaces && !of_others) {
      old.parts &= ~made.parts;
      return old.parts == 0;
    }
    return old.component == made.component && old.touch == made.touch && old.parts == made.parts &&
           old.mapping == made.mapping;
  });
  records.push_back(made);
}

// For slots without barriers, whose phases would reveal the error.
void Machine::check_read(const Actor& a, const Event& e, const Access& access) {
  if (access.slot.kind != Slot::Kind::cursor || schedule_.rings[access.slot.value].barriers) return;
  const std::uint64_t parts = parts_of(a, access);
  bool written = false, read = false;
  for (const Record& old : memory_[cell_of(a, access, a.id.cta)]) {
    if ((old.parts & parts) == 0) continue;
    (old.touch == Touch::read ? read : written) = true;
  }
  if (written && !read)
    fail(Rule::unread, a, e, fmt::format("fills {} again, which nobody has read", place_name(a, access)));
}

void Machine::touch_by_threads(Actor& a, const Event& e, const Access& access) {
  const bool reads = access.touch == Touch::read;
  const Queue queue = e.who != Who::all ? Queue::lane : reads ? Queue::reads : Queue::writes;
  const int component = model_.component(a.index, queue);
  touch(a, e, access, a.id.cta,
        {parts_of(a, access), component, a.now, access.touch, false, access.mapping, a.index, &e});
  if (queue == Queue::lane) a.lane.seen[component] = a.now;  // one thread knows what it has done
}

void Machine::touch_in_queue(Actor& a, const Event& e, const Access& access, Queue queue, Time time,
                             bool async) {
  touch(a, e, access, a.id.cta,
        {parts_of(a, access), model_.component(a.index, queue), time, access.touch, async, access.mapping,
         a.index, &e});
}

}  // namespace tegula::schedule
