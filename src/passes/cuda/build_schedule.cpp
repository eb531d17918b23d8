#include "passes/cuda/build_schedule.hpp"

#include <algorithm>
#include <initializer_list>

#include "ir/visit.hpp"
#include "passes/cuda/chosen_steps.hpp"
#include "passes/cuda/column_ranges.hpp"
#include "passes/cuda/existing_rows.hpp"
#include "passes/cuda/read_fences.hpp"
#include "passes/cuda/registers.hpp"
#include "passes/cuda/ring_depths.hpp"
#include "passes/cuda/role_events.hpp"
#include "passes/cuda/store_events.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Event;
using schedule::Events;
using schedule::What;
using schedule::Who;

Event event_of(What what, const Stmt& s, Who who, const std::string& name) {
  return {std::move(what), who, name, s, s->at};
}

Event ping_pong_barrier(int group, bool wait) {
  return {schedule::Barrier{product_barrier, true, group, 256, wait}};
}

namespace {

bool has_ping_pong(const Events& events) {
  return std::any_of(events.begin(), events.end(), [](const Event& e) {
    const auto* loop = std::get_if<schedule::Loop>(&e.what);
    const auto* barrier = std::get_if<schedule::Barrier>(&e.what);
    return loop ? has_ping_pong(loop->body) : barrier && barrier->id == product_barrier;
  });
}

void append(Events& to, Events from) {
  for (Event& e : from) to.push_back(std::move(e));
}

Event all_tiles(schedule::Loop::Kind kind, Events body) {
  return {schedule::Loop{kind, {}, std::move(body)}, Who::all, "tiles"};
}

// Blocks travel from the producer, which takes their numbers from a counter, in a ring of their own.
class TileRing {
 public:
  TileRing(schedule::Schedule& out, const Roles& roles)
      : one_loader_(roles.one_loader),
        loaders_(roles.loaders()),
        ring_(static_cast<int>(out.rings.size())),
        buffer_(static_cast<int>(out.buffers.size())) {
    out.buffers.push_back({"tile", schedule::Space::shared, tile_slots, 1, tile_bytes});
    out.rings.push_back({"tile", {buffer_}, tile_slots, 1, 1, tile_readers(roles)});
    if (!one_loader_) out.buffers.push_back({"next tile", schedule::Space::shared, 1, 1, 4});
  }

  Events taken(Events body) const {
    Events all{{schedule::WaitFull{{ring_}}},
               {schedule::ReceiveTile{schedule::read(buffer_, schedule::at_cursor(ring_))}},
               {schedule::Leave{}},
               {schedule::WarpSync{}},
               {schedule::Arrive{schedule::Side::empty, {ring_}}, Who::each_warp},
               {schedule::Advance{ring_}}};
    append(all, std::move(body));
    return {all_tiles(schedule::Loop::Kind::forever, std::move(all))};
  }

  Events handed_out(Events body) const {
    Events all{{schedule::NextTile{}, Who::one}};
    if (!one_loader_) {  // the barrier of handing out follows before the word is written again
      all.push_back({schedule::SendTile{schedule::write(buffer_ + 1)}, Who::one});
      all.push_back({schedule::Barrier{producer_barrier, false, 0, loaders_, true}});
      all.push_back({schedule::ReceiveTile{schedule::read(buffer_ + 1)}});
    }
    all.push_back({schedule::Leave{}});
    append(all, hand_out());
    append(all, std::move(body));
    Events result{all_tiles(schedule::Loop::Kind::forever, std::move(all))};
    append(result, hand_out());
    return result;
  }

 private:
  Events hand_out() const {
    Events result{{schedule::Acquire{{ring_}}, one_loader_ ? Who::one : Who::all}};
    if (!one_loader_) result.push_back({schedule::Barrier{producer_barrier, false, 0, loaders_, true}});
    result.push_back({schedule::SendTile{schedule::write(buffer_, schedule::at_cursor(ring_))}, Who::one});
    result.push_back({schedule::Arrive{schedule::Side::full, {ring_}}, Who::one});
    result.push_back({schedule::Advance{ring_}});
    return result;
  }

  bool one_loader_;
  int loaders_;  // threads
  int ring_, buffer_;
};

constexpr std::int64_t least_registers = 48;  // of fragments, whose threads need no more than a launch gives
constexpr std::int64_t few_registers = 160;   // of fragments, which leave some to the producer
constexpr std::int64_t many_registers = 272;  // which leave it what one thread needs
constexpr std::int64_t wide_product = 224;    // the same, for one product

}  // namespace

bool converts(const Roles& roles) {
  return std::any_of(roles.fills.begin(), roles.fills.end(), [&](const auto& fill) {
    const auto& ring = roles.rings[static_cast<std::size_t>(roles.ring_of(fill.second.get()))];
    return std::holds_alternative<For>(fill.first->node) && !ring.by_rows;
  });
}

namespace {

// Whether it finds rows that it converts by moving from one to the next, so that registers are all that
// limits how many are on their way.
bool moves_along_rows(const Roles& roles) {
  bool found = false;
  for_each_stmt(roles.producer, [&](const Stmt& s) {
    const auto plan = roles.fills.contains(s.get()) ? plan_conversion(s) : std::nullopt;
    found |= plan && !moving_ranges(existing_rows(*plan).rows).empty();
  });
  return found;
}

}  // namespace

RegisterShares register_shares(const Roles& roles) {
  switch (roles.consumers) {
    case 128:
      if (roles.producers < producer_threads) return {136, 0, 0};  // only groups of four warps share them out
      if (roles.producers > producer_threads)
        return {registers_of(roles.consumers + roles.producers, 1).launch, 0, 0};
      if (roles.blocks_per_processor == 1) return {248, 0, 0};
      if (roles.fragment_registers > few_registers) return {128, 224, 32};
      if (roles.looks_bytes_up()) return {128, 160, 96};
      if (roles.holds_pieces())
        return roles.fragment_registers > least_registers ? RegisterShares{128, 160, 96}
                                                          : RegisterShares{128, 96, 160};
      return roles.only_loads() ? RegisterShares{128, 208, 48} : RegisterShares{128, 200, 56};
    case 256:
      if (converts(roles) && roles.fragment_registers <= few_registers)
        return moves_along_rows(roles) ? RegisterShares{168, 200, 104} : RegisterShares{168, 208, 88};
      // A warp group has all scores of a dealt step beside its half of the sums.
      if (roles.dealt) return roles.one_loader ? RegisterShares{168, 240, 24} : RegisterShares{168, 216, 72};
      if (!roles.only_loads())
        return roles.brings_elements() ? RegisterShares{168, 232, 40} : RegisterShares{168, 224, 56};
      return roles.fragment_registers > many_registers || roles.widest_product > wide_product
                 ? RegisterShares{168, 240, 24}
                 : RegisterShares{168, 232, 40};
    case 384:
      return {128, 160, 32};
    case 512:
      return {96, 112, 32};
    default:
      return {};
  }
}

int tile_readers(const Roles& roles) { return roles.consumers / 32 + roles.transposing_warps(); }

int empty_arrivals(const RingPlan& ring, const Roles& roles) {
  if (ring.told || ring.relayed) return 1;
  if (ring.to_transpose) return roles.transposing_warps();
  const int threads = ring.by_one_group ? threads_of_group : roles.consumers;
  return threads / 32 * roles.cluster();
}

int full_arrivals(const RingPlan& ring, const Roles& roles) {
  if (ring.told || ring.relayed) return roles.consumers / 32;
  if (ring.by_rows) return 32 * roles.copying_warps(ring);
  if (roles.has_transposed(ring)) return roles.has_loaded(ring) + roles.transposing_warps();
  return roles.is_brought_by_threads(ring) ? 2 : 1;
}

namespace {

// Its registers are those of the producer, whose warps they are.
schedule::Role transposer(const Roles& roles, int registers, Events transpositions) {
  schedule::Role role{"transposer", 1, roles.transposing_warps(), registers, {}};
  if (registers > 0) role.events.push_back({schedule::SetRegisters{registers}});
  append(role.events, std::move(transpositions));
  return role;
}

// No thread uses a barrier before it is there for all: for those of the block, or of the cluster.
Events prologue_of(const Roles& roles) {
  Events events{{schedule::InitBarriers{}, Who::one}, {schedule::InitFence{}, Who::one}};
  if (roles.cluster() > 1)
    events.push_back({schedule::ClusterBarrier{}});
  else
    events.push_back({schedule::Barrier{0, false, 0, roles.consumers + roles.producers, true}});
  return events;
}

bool is_filled_by_engine(const Roles& roles, int ring) {
  if (ring >= static_cast<int>(roles.rings.size())) return false;  // the ring of blocks' numbers
  const RingPlan& own = roles.rings[static_cast<std::size_t>(ring)];
  return !own.by_rows && !own.told && !own.relayed;
}

// What roles do with a block, for all blocks: the producer finds those that are dealt as they are left, and
// tells `others`.
void repeat_for_blocks(schedule::Schedule& out, const Roles& roles, std::initializer_list<Events*> others,
                       Events& loads) {
  if (roles.dynamic_tiles) {
    const TileRing tiles(out, roles);
    for (Events* events : others) *events = tiles.taken(std::move(*events));
    loads = tiles.handed_out(std::move(loads));
    return;
  }
  for (Events* events : others) *events = {all_tiles(schedule::Loop::Kind::tiles, std::move(*events))};
  loads = {all_tiles(schedule::Loop::Kind::tiles, std::move(loads))};
}

void add_loads(schedule::Role& producer, const Roles& roles, Events loads) {
  if (roles.one_loader)
    producer.events.push_back({schedule::Guard{schedule::Guard::Kind::chosen, std::move(loads)}, Who::one});
  else
    append(producer.events, std::move(loads));
}

// The first warp group begins.
void add_ping_pong(schedule::Role& consumer, const Events& sums) {
  if (has_ping_pong(sums))
    consumer.events.push_back(
        {schedule::Guard{schedule::Guard::Kind::last_group, {ping_pong_barrier(1, false)}}});
}

}  // namespace

schedule::Schedule build_schedule(const std::string& name, const Roles& roles, const ConsumerProgram& program,
                                  const StepParts& parts) {
  schedule::Schedule out;
  out.name = name;
  ScheduleNames names(out, roles, program);
  const RegisterShares shares = register_shares(roles);
  out.launch_registers = shares.launch;
  out.ctas_per_sm = roles.blocks_per_processor;
  out.cluster = roles.cluster();
  out.prologue = prologue_of(roles);
  schedule::Role consumer{"consumer", roles.consumers / 128, 4, shares.consumer, {}},
      producer{"producer", 1, roles.producers / 32, shares.producer, {}};
  if (shares.consumer > 0) {
    consumer.events.push_back({schedule::SetRegisters{shares.consumer}});
    producer.events.push_back({schedule::SetRegisters{shares.producer}});
  }
  const int own_rings = static_cast<int>(roles.rings.size()) + (roles.dynamic_tiles ? 1 : 0);
  StoreEvents stores(out, names, roles, program.body, own_rings);
  Events sums = consumer_events(names, stores, roles, program, parts);
  fence_reads(sums, out, [&](int ring) { return is_filled_by_engine(roles, ring); });
  Events loads = producer_events(names, roles), transpositions = transposer_events(names, roles);
  add_ping_pong(consumer, sums);
  repeat_for_blocks(out, roles, {&sums, &transpositions}, loads);
  append(consumer.events, std::move(sums));
  if (roles.stores()) consumer.events.push_back({schedule::StoreWait{0}, stores.storing()});
  // No block ends while the other may still release its slots.
  if (roles.cluster() > 1) consumer.events.push_back({schedule::ClusterBarrier{}});
  if (stores.hands_over()) {
    stores.declare_ring();
    append(consumer.events, stores.end());
    producer.warps -= consumer.groups;
  }
  add_loads(producer, roles, std::move(loads));
  producer.warps -= roles.transposing_warps();
  out.roles = {std::move(consumer), std::move(producer)};
  if (roles.transposing_warps() > 0)
    out.roles.push_back(transposer(roles, shares.producer, std::move(transpositions)));
  if (stores.hands_over()) out.roles.push_back(stores.adders(shares.consumer > 0 ? shares.producer : 0));
  return out;
}

}  // namespace tegula::passes
