#include "passes/cuda/store_events.hpp"

#include <algorithm>
#include <numeric>

#include "ir/effects.hpp"
#include "ir/lists.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/plan_stores.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Access;
using schedule::Event;
using schedule::Events;
using schedule::What;
using schedule::Who;

namespace {

constexpr int most_parts = 64;  // of a buffer
constexpr int handover_bytes = 64, most_groups_with_adders = producer_threads / 32 - 1;

bool has_turns(const Accumulate* sum) { return sum && sum->turn; }

// Whether one thread adds both alike, told the place and the word of each.
bool are_added_alike(const Accumulate& a, const Accumulate& b) {
  const Buffer &x = *a.tile.buffer, &y = *b.tile.buffer;
  const auto whole = [](const View& tile) { return is_matrix(tile) && !is_transposed(tile); };
  const bool same_boxes = whole(a.tile) && whole(b.tile) && x.type == y.type && x.extent(0) == y.extent(0) &&
                          x.extent(1) == y.extent(1);
  const bool along_same = std::equal(a.to.dims.begin(), a.to.dims.end(), b.to.dims.begin(), b.to.dims.end(),
                                     [](const ViewDim& p, const ViewDim& q) { return p.axis == q.axis; });
  return a.to.buffer == b.to.buffer && along_same && a.overwrite == b.overwrite &&
         has_turns(&a) == has_turns(&b) && same_boxes;
}

// The first sum that a warp group can hand over, since its buffers have room for all of it, and those like
// it: one that has turns, or is formed in steps of a loop.
Body handed_over(const Body& body, int consumers) {
  Body result;
  const auto look = [&](const Body& statements, bool turns) {
    for_each_stmt(statements, [&](const Stmt& s) {
      const auto* sum = as<Accumulate>(s);
      if (!sum || has_turns(sum) != turns || boxes_of_store(s, consumers) > store_buffers) return;
      if (ir::contains(result, s)) return;
      if (result.empty() || are_added_alike(*as<Accumulate>(result[0]), *sum)) result.push_back(s);
    });
  };
  look(body, true);
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (loop && loop->kind == LoopKind::pipelined &&
        (result.empty() || !has_turns(as<Accumulate>(result[0]))))
      look(loop->body, false);
  });
  return result;
}

}  // namespace

bool is_engine_store(const Stmt& s) {
  const auto* copy = as<Copy>(s);
  return as<Accumulate>(s) || (copy && copy->from.buffer->space == Space::fragment);
}

int boxes_of_store(const Stmt& s, int consumers) {
  const auto* sum = as<Accumulate>(s);
  const View &from = sum ? sum->tile : as<Copy>(s)->from, &to = sum ? sum->to : as<Copy>(s)->to;
  const std::int64_t columns = row_bytes / to.buffer->type.bytes(), groups = consumers / 128;
  if (is_stored_transposed(s))
    return static_cast<int>(boxes_across(s) * from.extent(1) / (store_rows * groups));
  return static_cast<int>(from.buffer->elements() / (store_rows * groups * columns));
}

Body stores_of_step(const Body& body, int consumers) {
  Body result;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::pipelined || !result.empty()) return;
    Body own;
    bool all = true;
    for (const Stmt& inner : loop->body) {
      if (!is_engine_store(inner)) continue;
      all &= as<Copy>(inner) && boxes_of_store(inner, consumers) <= store_buffers;
      own.push_back(inner);
    }
    if (all) result = std::move(own);
  });
  // Another store would have to wait for all of them, and they for it. So would one in a branch or a loop of
  // the step: how many boxes have been sent since would not be known.
  bool alone = true;
  for_each_stmt(body, [&](const Stmt& s) { alone &= !is_engine_store(s) || ir::contains(result, s); });
  return alone ? result : Body{};
}

bool are_stored_by_warps(const Body& stores_of_step) {
  return !stores_of_step.empty() &&
         std::all_of(stores_of_step.begin(), stores_of_step.end(),
                     [](const Stmt& s) { return can_be_stored_by_warps(*as<Copy>(s)); });
}

StoreEvents::StoreEvents(schedule::Schedule& out, ScheduleNames& names, const Roles& roles,
                         const Body& consumer, int ring)
    : out_(out),
      names_(names),
      roles_(roles),
      ring_(ring),
      apart_(stores_of_step(consumer, roles.consumers)),
      by_warps_(are_stored_by_warps(apart_)) {
  const bool has_adders = roles.only_loads() && roles.producers == producer_threads &&
                          roles.consumers / 128 <= most_groups_with_adders;
  if (has_adders) handed_ = handed_over(consumer, roles.consumers);
}

int StoreEvents::staging() {
  if (staging_ >= 0) return staging_;
  staging_ = static_cast<int>(out_.buffers.size());
  const int buffers = store_buffers * std::max(1, static_cast<int>(apart_.size()));
  const auto bytes = static_cast<int>(roles_.store_bytes / buffers);
  out_.buffers.push_back({"staging", schedule::Space::shared, buffers, roles_.consumers / 128, bytes, 4});
  return staging_;
}

Access StoreEvents::words(const BufferPtr& tensor, Taker taker) {
  const auto [found, added] =
      words_.emplace(std::pair{tensor.get(), taker}, static_cast<int>(out_.buffers.size()));
  const int each = taker == Taker::threads ? 1 : roles_.consumers / 128;
  if (added) {
    out_.buffers.push_back({tensor->name, schedule::Space::global, 1, each});
    const int parts = taker == Taker::threads ? roles_.consumers / 32 : most_parts;
    out_.buffers.push_back({"sums of " + tensor->name, schedule::Space::global, 1, each, 0, parts});
  }
  return {found->second, schedule::Touch::update, schedule::at_turn(found->second),
          each == 1 ? schedule::Instance{} : schedule::own()};
}

Access StoreEvents::words(const Accumulate& sum, Taker taker) { return words(sum.turn->view.buffer, taker); }

Access StoreEvents::contribution(Access words, int box) {
  ++words.buffer;
  words.parts = {std::uint64_t{1} << box % most_parts};
  return words;
}

Events StoreEvents::store(const Stmt& s) {
  Events out;
  if (hands_over()) out.push_back(event_of(schedule::Acquire{{ring_, 0, schedule::own()}}, s));
  if (ir::contains(handed_, s))
    hand_over(s, out);
  else
    by_itself(s, out);
  return out;
}

// Boxes of the tile into buffers, for the engine.
void StoreEvents::stage(const Stmt& s, const BufferPtr& from, int first, int count, Events& out) {
  schedule::Operation stage{{names_.access(from, schedule::Touch::read)}};
  for (int box = first; box < first + count; ++box)
    stage.accesses.push_back(
        schedule::write(staging(), schedule::at(buffer_of(s, box)), schedule::own(), {1, 0, 1}));
  out.push_back(event_of(std::move(stage), s, Who::all, "stage"));
  out.push_back(event_of(schedule::ProxyFence{}, s));
  out.push_back(meeting(s));
}

Event StoreEvents::meeting(const Stmt& s) const {
  if (by_warps_) return event_of(schedule::WarpSync{}, s);
  return event_of(schedule::Barrier{staging_barrier, true, 0, 128, true}, s);
}

int StoreEvents::buffer_of(const Stmt& s, int box) const {
  const auto own = std::find(apart_.begin(), apart_.end(), s);
  const auto before = own == apart_.end() ? 0 : static_cast<int>(own - apart_.begin());
  return before * store_buffers + box % store_buffers;
}

// The boxes that other stores have sent since these buffers were read: those of a step but its own.
int StoreEvents::sent_since(const Stmt& s) const {
  if (!ir::contains(apart_, s)) return 0;
  return std::accumulate(apart_.begin(), apart_.end(), 0, [&](int sum, const Stmt& other) {
    return sum + (other == s ? 0 : boxes_of_store(other, roles_.consumers));
  });
}

void StoreEvents::by_itself(const Stmt& s, Events& out) {
  const auto* sum = as<Accumulate>(s);
  const BufferPtr& from = sum ? sum->tile.buffer : as<Copy>(s)->from.buffer;
  const int count = boxes_of_store(s, roles_.consumers),
            batch = count <= store_buffers || !are_staged_apart(s) ? std::min(count, store_buffers) : 1;
  const auto add = [&](What what, Who who = Who::all, const std::string& name = "") {
    out.push_back(event_of(std::move(what), s, who, name));
  };
  const auto begin = [&](int pending) {
    add(schedule::StoreWait{pending}, storing());
    out.push_back(meeting(s));
  };
  std::optional<Access> to;  // of which the words count the turns
  for (int first = 0; first < count; first += batch) {
    begin(first == 0 ? sent_since(s) : store_buffers - batch);
    stage(s, from, first, batch, out);
    if (has_turns(sum) && first == 0) {
      const Access own = words(*sum, Taker::groups);
      add(schedule::WaitTurn{own}, Who::leader);
      add(schedule::ProxyFence{true}, Who::leader);
      to = own;
    }
    for (int box = first; box < first + batch; ++box) {
      Access from = schedule::read(staging(), schedule::at(buffer_of(s, box)), schedule::own());
      if (by_warps_) from.parts = {1, 0, 1};
      add(schedule::Store{from, to ? std::optional(contribution(*to, box)) : std::nullopt}, storing());
      add(schedule::StoreCommit{}, storing());
    }
  }
  if (has_turns(sum)) {
    add(schedule::StoreWait{0, false}, Who::leader);
    add(schedule::ProxyFence{true}, Who::leader);
    add(schedule::PassTurn{words(*sum, Taker::groups)}, Who::leader);
  }
  // The next handover does not test whether these stores have left the buffers.
  if (hands_over()) begin(0);
}

void StoreEvents::hand_over(const Stmt& s, Events& out) {
  schedule::Operation stage{{names_.access(as<Accumulate>(s)->tile.buffer, schedule::Touch::read)}};
  for (int box = 0; box < boxes_of_store(s, roles_.consumers); ++box)
    stage.accesses.push_back(schedule::write(staging(), schedule::at(box), schedule::own(), {1, 0, 1}));
  out.push_back(event_of(std::move(stage), s, Who::all, "stage"));
  if (handed_words_ < 0) {
    handed_words_ = static_cast<int>(out_.buffers.size());
    out_.buffers.push_back(
        {"handed over", schedule::Space::shared, 1, roles_.consumers / 128, handover_bytes});
  }
  // The words of all that are handed over lie behind each other, each before the sums that it counts.
  if (has_turns(as<Accumulate>(s)))
    for (const Stmt& each : handed_) words(*as<Accumulate>(each), Taker::adder);
  for (Event& e : given(s)) out.push_back(std::move(e));
}

int StoreEvents::pair_of(const Stmt& s) const {
  const auto* sum = s ? as<Accumulate>(s) : nullptr;
  if (!has_turns(sum)) return 0;
  const auto words_of = [&](const Accumulate& own) {
    return words_.at({own.turn->view.buffer.get(), Taker::adder});
  };
  return (words_of(*sum) - words_of(*as<Accumulate>(handed_[0]))) / 2;
}

Events StoreEvents::given(const Stmt& s) const {
  const schedule::Place place{ring_, 0, schedule::own()};
  Events all{
      {schedule::SendTile{schedule::write(handed_words_, {}, schedule::own()), pair_of(s)}, Who::leader},
      {schedule::ProxyFence{}},
      {schedule::WarpSync{}},
      {schedule::Arrive{schedule::Side::full, place}, Who::each_warp},
      {schedule::Advance{ring_}}};
  for (Event& e : all) e.stmt = s;
  return all;
}

// All of the threads are after the turn, and have contributed when it is passed on.
Events StoreEvents::turn(const Stmt& s) {
  const auto& turn = *as<Turn>(s);
  const Access own = words(turn.word.view.buffer, Taker::threads);
  const Event meet = event_of(schedule::Barrier{consumer_barrier, false, 0, roles_.consumers, true}, s);
  open_turn_.reset();
  if (!turn.order) return {meet, event_of(schedule::PassTurn{own}, s, Who::one)};
  open_turn_ = contribution(own, 0);
  open_turn_->parts = {1, 4, 1};
  return {event_of(schedule::WaitTurn{own}, s, Who::one), meet};
}

std::vector<Access> StoreEvents::in_turn(const Stmt& s) const {
  if (!open_turn_ || !all_effects(s).writes_tensors()) return {};
  return {*open_turn_};
}

void StoreEvents::declare_ring() {
  internal_assert(ring_ == static_cast<int>(out_.rings.size()), "the ring of sums is the last");
  out_.rings.push_back({"handed over", {}, 1, roles_.consumers / 128, 4, 1});
}

Events StoreEvents::end() const {
  Events all{{schedule::Acquire{{ring_, 0, schedule::own()}}}};
  for (Event& e : given(nullptr)) all.push_back(std::move(e));
  return all;
}

schedule::Role StoreEvents::adders(int registers) const {
  const schedule::Place place{ring_, 0, schedule::own()};
  std::optional<Access> word;
  if (const auto& sum = *as<Accumulate>(handed_[0]); has_turns(&sum)) {
    const int own = words_.at({sum.turn->view.buffer.get(), Taker::adder});
    word = {own, schedule::Touch::update, schedule::at_turn(own), schedule::own()};
    word->told = true;
  }
  Events all{{schedule::WaitFull{place}},
             {schedule::ReceiveTile{schedule::read(handed_words_, {}, schedule::own())}},
             {schedule::Leave{}}};
  if (word) all.push_back({schedule::WaitTurn{*word}}), all.push_back({schedule::ProxyFence{true}});
  for (int box = 0; box < boxes_of_store(handed_[0], roles_.consumers); ++box) {
    all.push_back({schedule::Store{schedule::read(staging_, schedule::at(box), schedule::own()),
                                   word ? std::optional(contribution(*word, box)) : std::nullopt}});
    all.push_back({schedule::StoreCommit{}});
  }
  all.push_back({schedule::StoreWait{0}});
  all.push_back({schedule::Arrive{schedule::Side::empty, place}});
  if (word)
    for (const What& what : {What(schedule::StoreWait{0, false}), What(schedule::ProxyFence{true}),
                             What(schedule::PassTurn{*word})})
      all.push_back({what});
  all.push_back({schedule::Advance{ring_}});
  for (Event& e : all) e.who = Who::leader, e.stmt = handed_[0], e.at = handed_[0]->at;
  schedule::Role role{"adder", roles_.consumers / 128, 1, registers, {}};
  if (registers > 0) role.events.push_back({schedule::SetRegisters{registers}});
  Event loop{schedule::Loop{schedule::Loop::Kind::forever, {}, std::move(all)}, Who::all, "sums"};
  role.events.push_back({schedule::Guard{schedule::Guard::Kind::chosen, {std::move(loop)}}, Who::leader});
  return role;
}

}  // namespace tegula::passes
