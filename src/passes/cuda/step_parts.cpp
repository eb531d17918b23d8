#include "passes/cuda/step_parts.hpp"

#include <algorithm>
#include <iterator>

#include "ir/effects.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/rows_ahead.hpp"
#include "passes/cuda/step_planner.hpp"

namespace tegula::passes {

using namespace ir;
using Does = StepPart::Does;

// Whether tiles of rings come, or tensor cores multiply, in a body of the statement.
bool StepPlanner::has_parts(const Stmt& s) const {
  // Each group awaits what it multiplies itself.
  const auto* loop = as<For>(s);
  if (loop && threads_of(*loop, roles_.together()) != roles_.together()) return false;
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) {
      const auto* declared = as<Declare>(n);
      found |= (declared && ring_of(declared->tile) >= 0) || is_wgmma(n);
    });
  });
  return found;
}

StepPart& StepPlanner::add(Does does, const Stmt& s) {
  StepPart& part = parts_.emplace_back();
  part.does = does;
  part.stmt = s;
  part.advanced = std::exchange(advanced_, {});
  part.awaited = std::exchange(awaited_, {});
  part.awaited_before = std::exchange(awaited_before_, {});
  return part;
}

void StepPlanner::await(StepPart& part, std::size_t count) {
  if (count == 0) return;
  part.in_flight = static_cast<int>(flights_.size() - count);
  settled_ = true;
  for (; count > 0; --count) {
    const std::vector<Release>& own = flights_.front().releases;
    part.landed.insert(part.landed.end(), own.begin(), own.end());
    flights_.pop_front();
  }
}

void StepPlanner::drain() {
  if (!flights_.empty()) await(add(Does::nothing, nullptr), flights_.size());
}

// How many flights are to be over before the statement: their sums are touched, or their operands written.
// None may be under way beside a product of single warps: ptxas then serialises the products of the function.
std::size_t StepPlanner::flights_of(const Stmt& s) const {
  for (const auto& [gemm, threads] : team_products({s}, roles_.consumers))
    if (plan_gemm(*gemm, threads, target_).instruction == GemmInstruction::mma_sync) return flights_.size();
  std::size_t before = 0;
  for (const Region& r : all_effects(s).regions) {
    const BufferPtr& b = r.view->buffer;
    for (std::size_t i = 0; i < flights_.size(); ++i) {
      const auto& operands = flights_[i].operands;
      const bool overwrites =
          is_write(r.touch) && std::find(operands.begin(), operands.end(), b) != operands.end();
      if (flights_[i].sum == b || overwrites) before = std::max(before, i + 1);
    }
  }
  return before;
}

// Code touches the registers of a sum, if others are in flight, only after a wait for all that were issued
// before them. It costs nothing: they are done. But ptxas, where that was known in the step before only,
// takes the sum for one in flight as well, and inserts waits for all or serialises the products of the
// function.
void StepPlanner::settle(StepPart& part) {
  if (flights_.empty() || settled_) return;
  part.in_flight = static_cast<int>(flights_.size());
  settled_ = true;
}

void StepPlanner::settle_sums(const Stmt& s, StepPart& part) {
  for (const Region& r : all_effects(s).regions) {
    const Buffer* buffer = r.view->buffer.get();
    if (!sums_.contains(buffer)) continue;
    settle(part);
    if (is_write(r.touch)) begun_.insert(buffer);
  }
}

void StepPlanner::take_off(const Gemm& gemm) {
  Flight flight{gemm.c.buffer, {}, {}, {}};
  for (const View* operand : operands(gemm)) {
    if (const int ring = ring_of(operand->buffer); ring >= 0)
      flight.rings.push_back(ring);
    else
      flight.operands.push_back(operand->buffer);
  }
  flights_.push_back(std::move(flight));
  settled_ = false;
}

// Whether an operand is in registers of other threads than the instruction wants it.
bool StepPlanner::exchanges(const Gemm& gemm, const GemmPlan& plan) {
  const bool in_fragments =
      gemm.a.buffer->space == Space::fragment || gemm.b.buffer->space == Space::fragment;
  if (!in_fragments || !plan.a_in_registers) return in_fragments;
  if (!layouts_) layouts_ = infer_layouts(program_.body, roles_.together(), target_);
  return layouts_->fragments.at(gemm.a.buffer.get()) != plan.operand_a;
}

void StepPlanner::product(const Stmt& s) {
  const auto& gemm = *as<Gemm>(s);
  const GemmPlan own = plan(s);
  // Products of one accumulator follow each other; what is read from registers must be there.
  std::size_t before = 0;
  for (std::size_t i = 0; i < flights_.size(); ++i) {
    if (own.a_in_registers && flights_[i].sum == gemm.a.buffer) before = i + 1;
  }
  // Several blocks share a processor: while this one makes an operand itself, others multiply, and the
  // registers of products in flight are better free.
  const bool by_threads = gemm.a.buffer->space == Space::shared && ring_of(gemm.a.buffer) < 0;
  if (by_threads && roles_.blocks_per_processor > 1) before = flights_.size();
  if (needs_promotion(gemm, own)) before = flights_.size();
  StepPart& part = add(Does::product, s);
  await(part, before);
  part.exchanges = exchanges(gemm, own);
  part.pins = begun_.erase(gemm.c.buffer.get()) > 0 && !gemm.overwrite;
  if (part.pins) settle(part);
  if (needs_promotion(gemm, own)) return promoted(s, own);
  part.ping_pong = in_turns_;
  take_off(gemm);
}

// What tensor cores sum is awaited and added, accumulator by accumulator, while another warp group
// multiplies: unless they ping-pong, all multiply and all add at the same time. So they do where an operand
// comes from the threads, who all meet between making it and the product.
void StepPlanner::promoted(const Stmt& s, const GemmPlan& plan) {
  parts_.back().pins = false;
  const auto& gemm = *as<Gemm>(s);
  const auto given = operands(gemm);
  const bool meets = exchanges(gemm, plan) || std::any_of(given.begin(), given.end(), [&](const View* operand) {
                       return operand->buffer->space == Space::shared && ring_of(operand->buffer) < 0;
                     });
  for (int i = 0; i < accumulators(gemm, plan); ++i) {
    StepPart& part = i == 0 ? parts_.back() : add(Does::product, s);
    part.only = i;
    part.ping_pong = roles_.consumers > 128 && !meets;
    part.left = 0;
  }
}

void StepPlanner::work(const Stmt& s) {
  let_go_early(s);
  StepPart& part = add(Does::work, s);
  await(part, flights_of(s));
  settle_sums(s, part);
}

// Products of another group's step are done before those behind them, and the producer waits for their tile.
void StepPlanner::let_go_early(const Stmt& s) {
  if (!roles_.dealt) return;
  const std::size_t needed = flights_of(s);
  for (std::size_t i = needed; i-- > 1;) {
    if (flights_[i - 1].releases.empty()) continue;
    return await(add(Does::nothing, nullptr), i);
  }
}

void StepPlanner::meet(const Stmt& s, bool before) {
  if (!roles_.dealt) return;
  const auto found = roles_.dealt->meetings.find(s.get());
  if (found == roles_.dealt->meetings.end()) return;
  const bool is_before = found->second == Meeting::receive || found->second == Meeting::own;
  if (is_before == before) add(Does::nothing, nullptr).meeting = found->second;
}

// The wait stands inside the exponentials: some run under the product, some under the next one's issue.
void StepPlanner::exponentials(const Body& statements, const StepGroup& group) {
  const Stmt& s = statements[group.first];
  const bool sums = group.count > 1;
  work(s);
  if (flights_.empty()) {
    if (sums) work(statements[group.first + 1]);
    return;
  }
  const int early = early_exponentials(roles_.consumers, sums);
  for (const auto& [first, last] : {std::pair(0, early), {early, 16}}) {
    if (first > 0) add(Does::work, s);
    if (first > 0) await(parts_.back(), flights_.size());
    const bool holds = last < 16;
    parts_.back().first = first, parts_.back().last = last, parts_.back().holds = holds && !sums;
    if (!sums) continue;
    StepPart& sum = add(Does::work, statements[group.first + 1]);
    sum.first = first, sum.last = last, sum.holds = holds;
  }
}

// Each part is multiplied while the next one is made.
void StepPlanner::operand(const Body& statements, const StepGroup& group) {
  const Stmt &made = statements[group.first], &used = statements[group.first + 1];
  const auto& gemm = *as<Gemm>(used);
  const std::size_t before = flights_of(made);
  for (int i = 0; i < group.parts; ++i) {
    for (const Stmt* s : {&made, &used}) {
      StepPart& part = add(s == &made ? Does::work : Does::product, *s);
      if (i == 0 && s == &made) await(part, before);
      if (i == 0 && s == &used && !settled_)
        part.pins = begun_.erase(gemm.c.buffer.get()) > 0 && !gemm.overwrite;
      if (part.pins) settle(part);
      part.first = 16 * i / group.parts, part.last = 16 * (i + 1) / group.parts;
      part.in_parts = gemm.a.buffer;
    }
  }
  take_off(gemm);
}

void StepPlanner::branch(const Stmt& s, Overlap overlap) {
  const auto& own = *as<If>(s);
  internal_assert(own.otherwise.empty() || !own.of_rows.empty(),
                  "tiles of rings are used in the first part of a branch");
  StepParts outer = std::exchange(parts_, {});
  StepPart result;
  result.inner = body(own.then, overlap, program_.non_empty.contains(s.get()) ? Buffers{} : sums_);
  if (!own.otherwise.empty()) result.otherwise = body(own.otherwise, overlap);
  parts_ = std::move(outer);
  result.does = Does::branch, result.stmt = s;
  parts_.push_back(std::move(result));
}

Overlap StepPlanner::overlap_of(const Stmt& s) const {
  const auto shape = program_.shapes.find(s.get());
  if (shape == program_.shapes.end()) return Overlap::none;
  if (shape->second == LoopShape::deep) return Overlap::deep;
  return shape->second == LoopShape::delayed ? Overlap::delayed : Overlap::none;
}

void StepPlanner::loop(const Stmt& s) {
  const auto* counted = as<For>(s);
  const Body& own = counted ? counted->body : as<While>(s)->body;
  const Overlap overlap = overlap_of(s);
  StepParts outer = std::exchange(parts_, {});
  StepPart result;
  const bool outside = std::exchange(in_turns_, counted && program_.turns.contains(counted->index[0].get()));
  result.inner = body(own, overlap);
  in_turns_ = outside;
  parts_ = std::move(outer);
  const auto shape = program_.shapes.find(s.get());
  if (shape != program_.shapes.end() && shape->second == LoopShape::early) await_early(result.inner);
  result.does = Does::loop, result.stmt = s;
  parts_.push_back(std::move(result));
  if (overlap != Overlap::deep) return;
  StepPart& end = add(Does::nothing, nullptr);
  end.in_flight = 0;
  for (const RingUse& use : ring_uses(own, roles_, program_))
    end.landed.push_back({use.ring, Release::Slot::before});
}

// What the first product of a step awaits is awaited in front of the loop, and for the next step under the
// last product, whose end lets the tiles of this step go.
void StepPlanner::await_early(StepParts& step) {
  const auto multiplies = [](const StepPart& part) { return part.does == Does::product; };
  const auto first = std::find_if(step.begin(), step.end(), multiplies);
  const auto last = std::find_if(step.rbegin(), step.rend(), multiplies).base();
  internal_assert(first != step.end() && last != step.end(),
                  "sums are added behind the last product of a step");
  add(Does::nothing, nullptr).awaited = first->awaited;
  last->awaited_next = std::exchange(first->awaited, {});
}

void StepPlanner::statement(const Stmt& s, Overlap overlap) {
  meet(s, true);
  plain(s, overlap);
  meet(s, false);
}

void StepPlanner::plain(const Stmt& s, Overlap overlap) {
  if (is_wgmma(s)) return product(s);
  const auto* declared = as<Declare>(s);
  const int ring = declared ? ring_of(declared->tile) : -1;
  if (roles_.is_relayed(ring)) await_relayed(ring, *declared->tile);
  if (ring >= 0 && !roles_.is_relayed(ring) && !program_.before.contains(declared->tile.get())) return;
  if (as<Break>(s)) drain();
  if (!has_parts(s)) return work(s);
  if (!awaited_.empty()) add(Does::nothing, nullptr);
  drain();
  if (as<If>(s)) return branch(s, overlap == Overlap::delayed ? overlap : Overlap::none);
  loop(s);
}

void StepPlanner::group(const StepGroup& group, const Body& statements, Overlap overlap) {
  if (group.kind == StepGroup::Kind::operand) return operand(statements, group);
  if (group.kind == StepGroup::Kind::exponentials && overlap == Overlap::delayed)
    return exponentials(statements, group);
  for (std::size_t i = 0; i < group.count; ++i) statement(statements[group.first + i], overlap);
}

std::vector<StepGroup> StepPlanner::groups(const Body& statements, const std::vector<RingUse>& used) const {
  std::vector<bool> waits(statements.size());
  std::vector<GemmPlan> plans;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    waits[i] = std::any_of(used.begin(), used.end(), [&](const RingUse& use) { return use.first == i; });
    plans.push_back(plan(statements[i]));
  }
  return step_groups(statements, waits, plans);
}

// Whether threads have in registers all that they read of the tile, and no product in flight reads it.
bool StepPlanner::is_kept(const RingUse& use, const Stmt& last) const {
  return !kept_rows(last).empty() && std::none_of(flights_.begin(), flights_.end(), [&](const Flight& own) {
    return std::find(own.rings.begin(), own.rings.end(), use.ring) != own.rings.end();
  });
}

// What is read here for the last time: now, or when a product in flight is done. Threads that let a slot go
// meet for it: where nobody waits for the slot before the end of the step they do it with the last product.
void StepPlanner::release(const StepGroup& group, const Body& statements, const std::vector<RingUse>& used) {
  for (std::size_t i = group.first; i < group.first + group.count; ++i) {
    for (const RingUse& use : used) {
      if (use.last != i) continue;
      const bool comes_again = std::count_if(used.begin(), used.end(), [&](const RingUse& other) {
                                 return other.ring == use.ring;
                               }) > 1;
      const auto flight = std::find_if(flights_.rbegin(), flights_.rend(), [&](const Flight& own) {
        return (!comes_again && !roles_.is_relayed(use.ring)) ||
               std::find(own.rings.begin(), own.rings.end(), use.ring) != own.rings.end();
      });
      const bool at_once = roles_.is_told(use.ring) || is_kept(use, statements[i]);
      auto& releases = at_once || flight == flights_.rend() ? parts_.back().released : flight->releases;
      for (const Release::Slot slot : use.slots) releases.push_back({use.ring, slot});
    }
  }
}

void StepPlanner::leave_in_flight(const std::vector<RingUse>& used) {
  StepPart& last = parts_.back();
  last.left = static_cast<int>(flights_.size());
  for (const RingUse& use : used) last.released_but_first.push_back(use.ring);
  for (const RingUse& use : used) last.released.push_back({use.ring, Release::Slot::goes_on});
  flights_.clear();
}

StepParts StepPlanner::body(const Body& statements, Overlap overlap, Buffers begun) {
  parts_.clear();
  passed_on_.clear();
  begun_ = std::move(begun);
  const std::vector<RingUse> used = ring_uses(statements, roles_, program_);
  // The tile of the step before is let go first.
  const std::vector<RingUse> before = ring_uses_before(statements, used, roles_, program_);
  std::vector<RingUse> let_go = before;
  std::copy_if(used.begin(), used.end(), std::back_inserter(let_go), [&](const RingUse& use) {
    return std::none_of(before.begin(), before.end(), [&](const RingUse& x) { return x.ring == use.ring; });
  });
  for (const StepGroup& own : groups(statements, used)) {
    for (std::size_t i = own.first; i < own.first + own.count; ++i)
      for (const RingUse& use : used)
        if (use.first == i) await_tile(use.ring);
    group(own, statements, overlap);
    if (overlap != Overlap::deep) release(own, statements, let_go);
  }
  if (overlap == Overlap::deep)
    leave_in_flight(used);
  else
    drain();
  passed_on_.clear();
  return std::move(parts_);
}

// A product in flight may read the ring's tile before it, which then is let go as that of a step before.
void StepPlanner::await_tile(int ring) {
  if (roles_.is_relayed(ring)) return;  // its declaration has
  awaited_.push_back(ring);
  for (Flight& flight : flights_) {
    const auto own = std::find(flight.releases.begin(), flight.releases.end(), Release{ring});
    if (own == flight.releases.end()) continue;
    own->slot = Release::Slot::before;
    advanced_.push_back(ring);
  }
}

// A slot is written, too, only when all warps have read what it held, which they say with the one before.
// This warp says so when products in flight behind the write before it are done.
void StepPlanner::await_relayed(int ring, const Buffer& tile) {
  const bool carries = std::any_of(flights_.begin(), flights_.end(), [&](const Flight& own) {
    return std::any_of(own.releases.begin(), own.releases.end(),
                       [&](const Release& r) { return r.ring == ring; });
  });
  if (carries && !awaited_.empty()) add(Does::nothing, nullptr);
  if (carries) drain();
  if (passed_on_.insert(ring).second) awaited_before_.push_back(ring);
  if (!program_.before.contains(&tile)) passed_on_.erase(ring);  // what is written now is awaited anew
}

StepParts step_parts(const Roles& roles, const ConsumerProgram& program, const CudaTarget& target) {
  return StepPlanner(roles, program, target).body(program.body, Overlap::none);
}

}  // namespace tegula::passes
