#include "passes/cuda/build_schedule.hpp"

#include <algorithm>
#include <deque>
#include <unordered_set>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "schedule/build.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Event;
using schedule::Events;
using schedule::What;
using schedule::Who;

namespace {

// Buffers and trip counts of the schedule, common to both roles.
class Names {
 public:
  Names(schedule::Schedule& out, const Roles& roles, const ConsumerProgram& program);

  int buffer(const BufferPtr& b);
  bool is_ring(const Buffer* b) const { return roles_.ring_of(b) >= 0; }
  // Of a loop of the producer: all steps.
  schedule::Count steps(const For& loop);
  schedule::Count first(const For& loop) { return variable(&*loop.index[0], loop, 0); }
  schedule::Count rest(const For& loop) { return variable(&*loop.index[0], loop, 1); }
  schedule::Count taken(const If& branch);
  schedule::Access access(const BufferPtr& b, schedule::Touch touch);

 private:
  schedule::Count variable(const void* key, const For& loop, int part);
  schedule::Count add(const void* key, int part, const schedule::Variable& v);

  schedule::Schedule& out_;
  const Roles& roles_;
  std::unordered_set<const Variable*> peeled_;
  std::unordered_map<const Buffer*, int> buffers_;
  std::vector<std::pair<std::pair<const void*, int>, int>> variables_;
};

Names::Names(schedule::Schedule& out, const Roles& roles, const ConsumerProgram& program)
    : out_(out), roles_(roles) {
  for (const auto& [branch, loop] : program.non_empty)
    peeled_.insert(std::get<For>(loop->node).index[0].get());
  for (const RingPlan& ring : roles.rings) {
    schedule::Ring own{ring.tiles[0]->name, {}, ring.depth, 1, 1, roles.consumers / 32};
    for (const BufferPtr& tile : ring.tiles) {
      own.buffers.push_back(static_cast<int>(out.buffers.size()));
      buffers_.emplace(tile.get(), own.buffers.back());
      const auto bytes = static_cast<int>(tile->elements() * tile->type.bytes());
      int fills = 0;
      for (const auto& [fill, filled] : roles.fills) fills += filled == tile;
      out.buffers.push_back({tile->name, schedule::Space::shared, ring.depth, 1, bytes, fills});
    }
    out.rings.push_back(std::move(own));
  }
}

int Names::buffer(const BufferPtr& b) {
  const auto [found, added] = buffers_.emplace(b.get(), static_cast<int>(out_.buffers.size()));
  if (added) out_.buffers.push_back({b->name, schedule::Space::registers});
  return found->second;
}

schedule::Access Names::access(const BufferPtr& b, schedule::Touch touch) {
  schedule::Access result{buffer(b), touch};
  if (const int ring = roles_.ring_of(b.get()); ring >= 0) result.slot = schedule::at_cursor(ring);
  return result;
}

schedule::Count Names::add(const void* key, int part, const schedule::Variable& v) {
  const std::pair<const void*, int> name{key, part};
  auto found =
      std::find_if(variables_.begin(), variables_.end(), [&](const auto& x) { return x.first == name; });
  if (found == variables_.end()) {
    variables_.emplace_back(name, static_cast<int>(out_.variables.size()));
    out_.variables.push_back(v);
    found = variables_.end() - 1;
  }
  return {0, {{1, {found->second}}}};
}

schedule::Count Names::variable(const void* key, const For& loop, int part) {
  const std::string name = loop.index[0]->name;
  if (part == 0) return add(key, part, {name + " has a step", 0, 1});
  return add(key, part, {"steps of " + name});
}

schedule::Count Names::steps(const For& loop) {
  if (peeled_.contains(loop.index[0].get())) return first(loop) * (schedule::Count{1} + rest(loop));
  if (is_constant(loop.begin[0]) && is_constant(loop.end[0]))
    return {static_cast<int>(
        std::max<std::int64_t>(0, constant_value(loop.end[0]) - constant_value(loop.begin[0])))};
  return rest(loop);
}

schedule::Count Names::taken(const If& branch) { return add(branch.condition.get(), 0, {"branch", 0, 1}); }

Event event(What what, const Stmt& s, Who who = Who::all, const std::string& name = "") {
  return {std::move(what), who, name, s, s->at};
}

// ---------------------------------------------------------------------------------------- the consumers

// Products in flight: what they write and read, and the rings that are released when they are done.
struct Flight {
  BufferPtr sum;
  BufferPtr operand;  // in registers, or null
  std::vector<int> releases;
};

// A loop over elements of a fragment that are exponentials.
bool has_exponentials(const Stmt& s) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->index.size() < 2) return false;
  const auto* store = as<Store>(loop->body.back());
  return store && store->to.view.buffer->space == Space::fragment &&
         (store->value->op == Op::exp2 || store->value->op == Op::exp);
}

class Consumer {
 public:
  Consumer(Names& names, const Roles& roles, const ConsumerProgram& program, const CudaTarget& target)
      : names_(names), roles_(roles), program_(program), target_(target) {}
  Events body(const Body& statements);

 private:
  struct Use {
    int ring;
    std::size_t first, last;
  };
  std::vector<Use> uses(const Body& statements) const;
  const GemmPlan* wgmma(const Stmt& s);
  bool has_events(const Stmt& s);
  void statement(const Stmt& s, Events& out);
  void product(const Gemm& gemm, const Stmt& s, Events& out);
  void leaf(const Stmt& s, Events& out);
  void nested(const Stmt& s, Events& out);
  void deep_loop(const Stmt& s, Events& out);
  void release(int ring, Events& out);
  // Until the first `count` of the flights are done.
  void wait(std::size_t count, Events& out);
  void drain(Events& out) { wait(flights_.size(), out); }

  Names& names_;
  const Roles& roles_;
  const ConsumerProgram& program_;
  const CudaTarget& target_;
  std::deque<Flight> flights_;
  GemmPlan plan_;
  bool reads_by_threads_ = false;  // of the ring that is released next
};

// The rings whose tiles the body declares, and where it uses them.
std::vector<Consumer::Use> Consumer::uses(const Body& statements) const {
  std::vector<Use> result;
  for (const Stmt& s : statements) {
    const auto* declared = as<Declare>(s);
    const int ring = declared ? roles_.ring_of(declared->tile.get()) : -1;
    if (ring < 0) continue;
    const auto known =
        std::find_if(result.begin(), result.end(), [&](const Use& u) { return u.ring == ring; });
    if (known == result.end()) result.push_back({ring, statements.size(), 0});
  }
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const Effects e = all_effects(statements[i]);
    for (const Region& r : e.regions) {
      // Another use of the ring, in a body within this one, is not of this scope.
      if (std::find(e.declared.begin(), e.declared.end(), r.view->buffer) != e.declared.end()) continue;
      const int ring = roles_.ring_of(r.view->buffer.get());
      for (Use& use : result) {
        if (use.ring == ring) use.first = std::min(use.first, i), use.last = i;
      }
    }
  }
  return result;
}

const GemmPlan* Consumer::wgmma(const Stmt& s) {
  const auto* gemm = as<Gemm>(s);
  if (!gemm) return nullptr;
  plan_ = plan_gemm(*gemm, roles_.consumers, target_);
  return plan_.instruction == GemmInstruction::wgmma ? &plan_ : nullptr;
}

bool Consumer::has_events(const Stmt& s) {
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) {
      const auto* declared = as<Declare>(n);
      found |= (declared && names_.is_ring(declared->tile.get())) || wgmma(n) != nullptr;
    });
  });
  return found;
}

void Consumer::release(int ring, Events& out) {
  out.push_back({schedule::WarpSync{}});
  out.push_back({schedule::Arrive{schedule::Side::empty, {ring}}, Who::each_warp});
  out.push_back({schedule::Advance{ring}});
}

void Consumer::wait(std::size_t count, Events& out) {
  if (count == 0) return;
  out.push_back({schedule::GemmWait{static_cast<int>(flights_.size() - count)}});
  for (; count > 0; --count) {
    for (const int ring : flights_.front().releases) release(ring, out);
    flights_.pop_front();
  }
}

void Consumer::product(const Gemm& gemm, const Stmt& s, Events& out) {
  const bool in_registers = wgmma(s)->a_in_registers;
  // Products of one accumulator follow each other; what is read from registers must be there.
  std::size_t before = 0;
  for (std::size_t i = 0; i < flights_.size(); ++i) {
    if (in_registers && flights_[i].sum == gemm.a.buffer) before = i + 1;
  }
  wait(before, out);
  std::vector<schedule::Access> accesses;
  for (const View* operand : {&gemm.a, &gemm.b}) {
    if (operand->buffer->space == Space::fragment || names_.is_ring(operand->buffer.get()))
      accesses.push_back(names_.access(operand->buffer, schedule::Touch::read));
  }
  accesses.push_back(
      names_.access(gemm.c.buffer, gemm.overwrite ? schedule::Touch::write : schedule::Touch::update));
  out.push_back({schedule::GemmFence{}});
  out.push_back(event(schedule::Gemm{std::move(accesses)}, s));
  out.push_back({schedule::GemmCommit{}});
  flights_.push_back({gemm.c.buffer, in_registers ? gemm.a.buffer : nullptr, {}});
  bool own_tiles = false;  // that the consumers filled: they are protected by ordinary barriers
  for (const View* operand : {&gemm.a, &gemm.b})
    own_tiles |= operand->buffer->space == Space::shared && !names_.is_ring(operand->buffer.get());
  if (own_tiles) drain(out);
}

void Consumer::leaf(const Stmt& s, Events& out) {
  const Effects e = all_effects(s);
  std::vector<schedule::Access> accesses;
  std::size_t before = 0;
  for (const Region& r : e.regions) {
    const BufferPtr& b = r.view->buffer;
    for (std::size_t i = 0; i < flights_.size(); ++i) {
      if (flights_[i].sum == b || (flights_[i].operand == b && is_write(r.touch)))
        before = std::max(before, i + 1);
    }
    if (b->space != Space::fragment && !names_.is_ring(b.get())) continue;
    const auto touch = !is_write(r.touch) ? schedule::Touch::read
                       : is_read(r.touch) ? schedule::Touch::update
                                          : schedule::Touch::write;
    accesses.push_back(names_.access(b, touch));
  }
  wait(before, out);
  if (flights_.empty() || !has_exponentials(s)) {
    out.push_back(event(schedule::Operation{std::move(accesses)}, s));
    return;
  }
  // The wait stands inside the exponentials: some run under the product, some under the next one's issue.
  const int early = early_exponentials(roles_.consumers);
  out.push_back(event(schedule::Operation{accesses, 0, early}, s));
  drain(out);
  out.push_back(event(schedule::Operation{std::move(accesses), early, 16}, s));
}

void Consumer::deep_loop(const Stmt& s, Events& out) {
  const auto& loop = *as<For>(s);
  schedule::Loop result{schedule::Loop::Kind::counted, schedule::Count{1} + names_.rest(loop), {}};
  Events& own = result.body;
  const std::vector<Use> used = uses(loop.body);
  for (const Stmt& n : loop.body) {
    if (as<Let>(n)) own.push_back(event(schedule::Operation{}, n));
    if (!as<Gemm>(n)) continue;
    for (const Use& use : used) own.push_back({schedule::WaitFull{{use.ring}}});
    product(*as<Gemm>(n), n, own);
    flights_.clear();
    own.push_back({schedule::GemmWait{1}});
    schedule::Guard guard{schedule::Guard::Kind::not_first, {}};
    for (const Use& use : used)
      guard.body.push_back({schedule::Arrive{schedule::Side::empty, {use.ring, -1}}, Who::each_warp});
    own.push_back(event(std::move(guard), s));
    for (const Use& use : used) own.push_back({schedule::Advance{use.ring}});
  }
  out.push_back(event(std::move(result), s, Who::all, loop.index[0]->name));
  out.push_back({schedule::GemmWait{0}});
  for (const Use& use : used)
    out.push_back({schedule::Arrive{schedule::Side::empty, {use.ring, -1}}, Who::each_warp});
}

void Consumer::nested(const Stmt& s, Events& out) {
  drain(out);
  if (const auto* branch = as<If>(s)) {
    const auto peeled = program_.non_empty.find(s.get());
    const schedule::Count count = peeled == program_.non_empty.end()
                                      ? names_.taken(*branch)
                                      : names_.first(std::get<For>(peeled->second->node));
    out.push_back(event(schedule::Loop{schedule::Loop::Kind::counted, count, body(branch->then)}, s));
    internal_assert(branch->otherwise.empty(), "tiles of rings are used in the first part of a branch");
    return;
  }
  const auto* loop = as<For>(s);
  internal_assert(loop, "tiles of rings are used in loops and branches");
  const auto shape = program_.shapes.find(s.get());
  if (shape != program_.shapes.end() && shape->second == LoopShape::deep) return deep_loop(s, out);
  const schedule::Count count = shape != program_.shapes.end() ? names_.rest(*loop) : names_.steps(*loop);
  out.push_back(event(schedule::Loop{schedule::Loop::Kind::counted, count, body(loop->body)}, s, Who::all,
                      loop->index[0]->name));
}

void Consumer::statement(const Stmt& s, Events& out) {
  if (wgmma(s)) return product(*as<Gemm>(s), s, out);
  const auto* declared = as<Declare>(s);
  if (declared && names_.is_ring(declared->tile.get())) return;
  if (has_events(s)) return nested(s, out);
  leaf(s, out);
}

Events Consumer::body(const Body& statements) {
  Events out;
  const std::vector<Use> used = uses(statements);
  for (std::size_t i = 0; i < statements.size(); ++i) {
    for (const Use& use : used) {
      if (use.first == i) out.push_back({schedule::WaitFull{{use.ring}}});
    }
    statement(statements[i], out);
    for (const Use& use : used) {
      if (use.last != i) continue;
      if (flights_.empty())
        release(use.ring, out);
      else
        flights_.back().releases.push_back(use.ring);
    }
  }
  drain(out);
  return out;
}

// ---------------------------------------------------------------------------------------- the producer

class Producer {
 public:
  Producer(Names& names, const Roles& roles) : names_(names), roles_(roles) {}
  Events body(const Body& statements);

 private:
  bool has_fills(const Stmt& s) const;

  Names& names_;
  const Roles& roles_;
};

bool Producer::has_fills(const Stmt& s) const {
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) { found |= roles_.fills.contains(n.get()); });
  });
  return found;
}

// That the statement brings to the tile: all of it, or some of its rows.
int bytes_of(const Stmt& s, const BufferPtr& tile) {
  const auto* copy = as<Copy>(s);
  const auto rows = copy ? rows_of(copy->to) : std::nullopt;
  const std::int64_t columns = tile->extent(tile->rank() - 1);
  const std::int64_t elements = rows && tile->rank() > 1 ? rows->count * columns : tile->elements();
  return static_cast<int>(elements * tile->type.bytes());
}

Events Producer::body(const Body& statements) {
  Events out;
  std::vector<int> open;
  std::unordered_map<const Buffer*, int> parts;  // of each tile that are filled
  for (const Stmt& s : statements) {
    if (const auto fill = roles_.fills.find(s.get()); fill != roles_.fills.end()) {
      const int ring = roles_.ring_of(fill->second.get());
      if (std::find(open.begin(), open.end(), ring) == open.end()) {
        open.push_back(ring);
        int bytes = 0;
        for (const BufferPtr& tile : roles_.rings[static_cast<std::size_t>(ring)].tiles)
          bytes += static_cast<int>(tile->elements() * tile->type.bytes());
        out.push_back({schedule::Acquire{{ring}}, roles_.one_loader ? Who::one : Who::all});
        // No warp may fall behind by a whole phase.
        if (!roles_.one_loader)
          out.push_back({schedule::Barrier{producer_barrier, false, 0, producer_threads, true}});
        out.push_back({schedule::Expect{{ring}, bytes}, Who::one});
      }
      schedule::Access to = names_.access(fill->second, schedule::Touch::write);
      to.parts.mask = std::uint64_t{1} << parts[fill->second.get()]++;
      out.push_back(event(schedule::Load{{ring}, to, bytes_of(s, fill->second), false}, s, Who::one));
    } else if (has_fills(s)) {
      const auto* loop = as<For>(s);
      const schedule::Count count = loop ? names_.steps(*loop) : names_.taken(*as<If>(s));
      const Body& inner = loop ? loop->body : as<If>(s)->then;
      internal_assert(loop || as<If>(s)->otherwise.empty(), "tiles are filled in the first part of a branch");
      out.push_back(event(schedule::Loop{schedule::Loop::Kind::counted, count, body(inner)}, s));
    } else {
      const auto* declared = as<Declare>(s);
      if (!declared || !names_.is_ring(declared->tile.get())) out.push_back(event(schedule::Operation{}, s));
    }
  }
  for (const int ring : open) out.push_back({schedule::Advance{ring}});
  return out;
}

// ---------------------------------------------------------------------------------------- the blocks

void append(Events& to, Events from) {
  for (Event& e : from) to.push_back(std::move(e));
}

Event all_tiles(schedule::Loop::Kind kind, Events body) {
  return {schedule::Loop{kind, {}, std::move(body)}, Who::all, "tiles"};
}

// Numbers of blocks travel from the producer, which takes them from a counter, in a ring of their own.
class Turns {
 public:
  Turns(schedule::Schedule& out, const Roles& roles)
      : one_loader_(roles.one_loader),
        ring_(static_cast<int>(out.rings.size())),
        buffer_(static_cast<int>(out.buffers.size())) {
    out.buffers.push_back({"tile", schedule::Space::shared, turn_slots, 1, 4});
    out.rings.push_back({"tile", {buffer_}, turn_slots, 1, 1, roles.consumers / 32});
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
      all.push_back({schedule::Barrier{producer_barrier, false, 0, producer_threads, true}});
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
    if (!one_loader_)
      result.push_back({schedule::Barrier{producer_barrier, false, 0, producer_threads, true}});
    result.push_back({schedule::SendTile{schedule::write(buffer_, schedule::at_cursor(ring_))}, Who::one});
    result.push_back({schedule::Arrive{schedule::Side::full, {ring_}}, Who::one});
    result.push_back({schedule::Advance{ring_}});
    return result;
  }

  bool one_loader_;
  int ring_, buffer_;
};

}  // namespace

RegisterShares register_shares(const Roles& roles) {
  switch (roles.consumers) {
    case 128:
      return roles.blocks_per_processor == 2 ? RegisterShares{128, 208, 40} : RegisterShares{248, 0, 0};
    case 256:
      return roles.one_loader ? RegisterShares{168, 232, 40} : RegisterShares{168, 224, 56};
    case 384:
      return {128, 160, 32};
    case 512:
      return {96, 112, 32};
    default:
      return {};
  }
}

schedule::Schedule build_schedule(const std::string& name, const Roles& roles, const ConsumerProgram& program,
                                  const CudaTarget& target) {
  schedule::Schedule out;
  out.name = name;
  Names names(out, roles, program);
  const RegisterShares shares = register_shares(roles);
  out.launch_registers = shares.launch;
  out.ctas_per_sm = roles.blocks_per_processor;
  out.prologue.push_back({schedule::InitBarriers{}, Who::one});
  out.prologue.push_back({schedule::InitFence{}, Who::one});
  out.prologue.push_back({schedule::Barrier{0, false, 0, roles.consumers + producer_threads, true}});
  schedule::Role consumer{"consumer", roles.consumers / 128, 4, shares.consumer, {}},
      producer{"producer", 1, 4, shares.producer, {}};
  if (shares.consumer > 0) {
    consumer.events.push_back({schedule::SetRegisters{shares.consumer}});
    producer.events.push_back({schedule::SetRegisters{shares.producer}});
  }
  Events sums = Consumer(names, roles, program, target).body(program.body);
  Events loads = Producer(names, roles).body(roles.producer);
  if (roles.takes_turns) {
    const Turns turns(out, roles);
    sums = turns.taken(std::move(sums));
    loads = turns.handed_out(std::move(loads));
  } else {
    sums = {all_tiles(schedule::Loop::Kind::tiles, std::move(sums))};
    loads = {all_tiles(schedule::Loop::Kind::tiles, std::move(loads))};
  }
  append(consumer.events, std::move(sums));
  if (roles.stores) consumer.events.push_back({schedule::StoreWait{0}, Who::leader});
  if (roles.one_loader)
    producer.events.push_back({schedule::Guard{schedule::Guard::Kind::chosen, std::move(loads)}, Who::one});
  else
    append(producer.events, std::move(loads));
  out.roles = {std::move(consumer), std::move(producer)};
  return out;
}

}  // namespace tegula::passes
