#include <algorithm>
#include <deque>

#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/infer_layouts.hpp"
#include "passes/cuda/lower.hpp"
#include "passes/cuda/role_events.hpp"

namespace tegula::passes {

using namespace ir;
using schedule::Event;
using schedule::Events;
using schedule::What;
using schedule::Who;

namespace {

// Products in flight: what they write and read, and the rings that are released when they are done.
struct Flight {
  BufferPtr sum;
  std::vector<BufferPtr> operands;  // that no ring protects
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

// Sums that can be formed as the exponentials are.
bool adds_up(const Stmt& s, const Stmt& exponentials) {
  const auto* reduce = as<Reduce>(s);
  const BufferPtr& made = as<Store>(as<For>(exponentials)->body.back())->to.view.buffer;
  return reduce && reduce->op == ReduceOp::sum && reduce->from.buffer == made && is_whole(reduce->from) &&
         reduce->to.buffer->type == f32 && made->type == f32;
}

// Whether the statement makes all of the left operand, each element from that of another fragment.
bool makes_operand(const Stmt& s, const Gemm& gemm) {
  const auto* loop = as<For>(s);
  if (!loop || loop->kind != LoopKind::parallel || loop->body.size() != 2) return false;
  const auto* load = as<ir::Load>(loop->body[0]);
  const auto* store = as<ir::Store>(loop->body[1]);
  if (!load || !store || load->from.view.buffer->space != Space::fragment ||
      store->to.view.buffer != gemm.a.buffer || !is_whole(gemm.a))
    return false;
  const std::vector<int> in_order{0, 1};
  return loop_axes(*loop, load->from) == in_order && loop_axes(*loop, store->to) == in_order;
}

// The products of a step are issued by one warp group after the other, each while others do the rest of it.
void in_turns(Events& body) {
  std::size_t first = 0, last = 0;
  while (first < body.size() && !std::holds_alternative<schedule::GemmFence>(body[first].what)) ++first;
  for (last = first; last < body.size() && !std::holds_alternative<schedule::GemmWait>(body[last].what);)
    ++last;
  if (last == body.size()) return;
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(last), {turn_of_products(1, false)});
  body.insert(body.begin() + static_cast<std::ptrdiff_t>(first), {turn_of_products(0, true)});
}

class Consumer {
 public:
  Consumer(ScheduleNames& names, const Roles& roles, const ConsumerProgram& program, const CudaTarget& target)
      : names_(names), roles_(roles), program_(program), target_(target) {
    for_each_stmt(program.body, [&](const Stmt& s) {
      if (wgmma(s)) sums_.insert(as<Gemm>(s)->c.buffer.get());
    });
  }
  // `begun`: sums that products of the body may find as other code, or another way to the body, left them.
  Events body(const Body& statements, std::unordered_set<const Buffer*> begun = {});

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
  void one_by_one(const Gemm& gemm, const Stmt& s, const std::vector<schedule::Access>& accesses,
                  Events& out);
  int parts_with_next(const Stmt& s);
  void in_parts(const Stmt& s, int parts, Events& out);
  void await(const Stmt& s, Events& out);
  void settle(Events& out);
  void settle_sums(const Stmt& s, Events& out);
  void leaf(const Stmt& s, Events& out);
  std::vector<schedule::Access> accesses(const Stmt& s);
  void exponentials(const Stmt& s, Events& out);
  void nested(const Stmt& s, Events& out);
  void deep_loop(const Stmt& s, Events& out);
  bool in_pairs() const { return roles_.cluster() > 1; }
  void wait_full(int ring, Events& out);
  void release(int ring, Events& out);
  // Until the first `count` of the flights are done.
  void wait(std::size_t count, Events& out);
  void drain(Events& out) { wait(flights_.size(), out); }

  ScheduleNames& names_;
  const Roles& roles_;
  const ConsumerProgram& program_;
  const CudaTarget& target_;
  std::deque<Flight> flights_;
  bool settled_ = true;                      // no product was issued since the last wait
  std::unordered_set<const Buffer*> sums_;   // of products by tensor cores
  std::unordered_set<const Buffer*> begun_;  // see body
  GemmPlan plan_;
  bool in_delayed_ = false;  // in a loop whose last product belongs to the step before
  Stmt next_, done_;         // the statement behind the one at hand; one whose events there are
  bool next_waits_ = false;  // for tiles that nothing before it uses
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
  // Each group awaits what it multiplies itself.
  const auto* loop = as<For>(s);
  if (loop && threads_of(*loop, roles_.consumers) != roles_.consumers) return false;
  bool found = false;
  for_each_body(s, [&](const Body& inner) {
    for_each_stmt(inner, [&](const Stmt& n) {
      const auto* declared = as<Declare>(n);
      found |= (declared && names_.is_ring(declared->tile.get())) || wgmma(n) != nullptr;
    });
  });
  return found;
}

void Consumer::wait_full(int ring, Events& out) {
  out.push_back({schedule::WaitFull{{ring}}});
  // What threads copied becomes visible to the tensor cores.
  if (roles_.rings[static_cast<std::size_t>(ring)].by_rows) out.push_back({schedule::ProxyFence{}});
}

void Consumer::release(int ring, Events& out) {
  out.push_back({schedule::WarpSync{}});
  out.push_back({schedule::Arrive{schedule::Side::empty, {ring}, in_pairs()}, Who::each_warp});
  out.push_back({schedule::Advance{ring}});
}

void Consumer::wait(std::size_t count, Events& out) {
  if (count == 0) return;
  out.push_back({schedule::GemmWait{static_cast<int>(flights_.size() - count)}});
  settled_ = true;
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
  // Several blocks share a processor: while this one makes an operand itself, others multiply, and the
  // registers of products in flight are better free.
  const bool by_threads = gemm.a.buffer->space == Space::shared && !names_.is_ring(gemm.a.buffer.get());
  if (by_threads && roles_.blocks_per_processor > 1) before = flights_.size();
  wait(before, out);
  const bool begun = begun_.erase(gemm.c.buffer.get()) > 0 && !gemm.overwrite;
  if (begun) settle(out);
  std::vector<schedule::Access> accesses;
  for (const View* operand : {&gemm.a, &gemm.b}) {
    if (operand->buffer->space == Space::fragment || names_.is_ring(operand->buffer.get()))
      accesses.push_back(names_.access(operand->buffer, schedule::Touch::read));
  }
  accesses.push_back(
      names_.access(gemm.c.buffer, gemm.overwrite ? schedule::Touch::write : schedule::Touch::update));
  if (needs_promotion(gemm, plan_)) return one_by_one(gemm, s, accesses, out);
  out.push_back(event_of(schedule::GemmFence{begun}, s));
  out.push_back(event_of(schedule::Gemm{std::move(accesses)}, s));
  out.push_back({schedule::GemmCommit{}});
  Flight flight{gemm.c.buffer, {}, {}};
  for (const View* operand : {&gemm.a, &gemm.b}) {
    if (!names_.is_ring(operand->buffer.get())) flight.operands.push_back(operand->buffer);
  }
  flights_.push_back(std::move(flight));
  settled_ = false;
}

// What tensor cores sum is awaited and added, accumulator by accumulator, while another warp group
// multiplies: unless they take turns, all multiply and all add at the same time.
void Consumer::one_by_one(const Gemm& gemm, const Stmt& s, const std::vector<schedule::Access>& accesses,
                          Events& out) {
  drain(out);
  const bool in_turns = roles_.consumers > 128;
  for (int i = 0; i < accumulators(gemm, plan_); ++i) {
    if (in_turns) out.push_back(turn_of_products(0, true));
    out.push_back({schedule::GemmFence{}});
    out.push_back(event_of(schedule::Gemm{accesses, i}, s));
    out.push_back({schedule::GemmCommit{}});
    if (in_turns) out.push_back(turn_of_products(1, false));
    out.push_back({schedule::GemmWait{0}});
  }
}

std::vector<schedule::Access> Consumer::accesses(const Stmt& s) {
  std::vector<schedule::Access> result;
  for (const Region& r : all_effects(s).regions) {
    const BufferPtr& b = r.view->buffer;
    if (b->space != Space::fragment && !names_.is_ring(b.get())) continue;
    const auto touch = !is_write(r.touch) ? schedule::Touch::read
                       : is_read(r.touch) ? schedule::Touch::update
                                          : schedule::Touch::write;
    result.push_back(names_.access(b, touch));
  }
  return result;
}

void Consumer::await(const Stmt& s, Events& out) {
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
  wait(before, out);
}

// Code touches the registers of a sum, if others are in flight, only behind a wait for all that were issued
// before them. It costs nothing: they are done. But ptxas, where that was known in the step before only,
// takes the sum for one in flight as well, and inserts waits for all or serialises the products of the
// function.
void Consumer::settle(Events& out) {
  if (flights_.empty() || settled_) return;
  out.push_back({schedule::GemmWait{static_cast<int>(flights_.size())}});
  settled_ = true;
}

void Consumer::settle_sums(const Stmt& s, Events& out) {
  for (const Region& r : all_effects(s).regions) {
    const Buffer* buffer = r.view->buffer.get();
    if (!sums_.contains(buffer)) continue;
    settle(out);
    if (is_write(r.touch)) begun_.insert(buffer);
  }
}

void Consumer::leaf(const Stmt& s, Events& out) {
  await(s, out);
  settle_sums(s, out);
  if (flights_.empty() || !in_delayed_ || !has_exponentials(s)) {
    out.push_back(event_of(schedule::Operation{accesses(s)}, s));
    return;
  }
  exponentials(s, out);
}

// The wait stands inside the exponentials: some run under the product, some under the next one's issue.
void Consumer::exponentials(const Stmt& s, Events& out) {
  const bool sums = next_ && adds_up(next_, s);
  const int early = early_exponentials(roles_.consumers, sums);
  const auto part = [&](int first, int last) {
    out.push_back(event_of(schedule::Operation{accesses(s), first, last, last < 16 && !sums}, s));
    if (sums) out.push_back(event_of(schedule::Operation{accesses(next_), first, last, last < 16}, next_));
  };
  part(0, early);
  drain(out);
  part(early, 16);
  if (sums) done_ = next_;
}

// In how many parts a left operand is made and multiplied, 1 if it is not made here.
int Consumer::parts_with_next(const Stmt& s) {
  const auto* gemm = next_ && !next_waits_ ? as<Gemm>(next_) : nullptr;
  if (!gemm || !makes_operand(s, *gemm) || !names_.is_ring(gemm->b.buffer.get())) return 1;
  const GemmPlan* plan = wgmma(next_);
  if (!plan || !plan->a_in_registers || needs_promotion(*gemm, *plan) || accumulators(*gemm, *plan) != 1)
    return 1;
  const std::int64_t steps = gemm->a.extent(1) / plan->k;
  return steps % 4 == 0 ? 4 : steps % 2 == 0 ? 2 : 1;
}

// Each part is multiplied while the next one is made.
void Consumer::in_parts(const Stmt& s, int parts, Events& out) {
  const auto& gemm = *as<Gemm>(next_);
  await(s, out);
  for (int i = 0; i < parts; ++i) {
    const int first = 16 * i / parts, last = 16 * (i + 1) / parts;
    std::vector<schedule::Access> made = accesses(s), used;
    std::replace_if(
        made.begin(), made.end(), [](const schedule::Access& a) { return a.touch != schedule::Touch::read; },
        names_.part(gemm.a.buffer, schedule::Touch::write, first, last));
    out.push_back(event_of(schedule::Operation{std::move(made), first, last}, s));
    used.push_back(names_.part(gemm.a.buffer, schedule::Touch::read, first, last));
    used.push_back(names_.access(gemm.b.buffer, schedule::Touch::read));
    const bool writes = gemm.overwrite && i == 0;
    used.push_back(names_.access(gemm.c.buffer, writes ? schedule::Touch::write : schedule::Touch::update));
    out.push_back({schedule::GemmFence{}});
    out.push_back(event_of(schedule::Gemm{std::move(used), -1, first, last}, next_));
  }
  out.push_back({schedule::GemmCommit{}});
  flights_.push_back({gemm.c.buffer, {gemm.a.buffer}, {}});
  settled_ = false;
  done_ = next_;
}

void Consumer::deep_loop(const Stmt& s, Events& out) {
  const auto& loop = *as<For>(s);
  schedule::Loop result{schedule::Loop::Kind::counted, schedule::Count{1} + names_.rest(loop), {}};
  Events& own = result.body;
  const std::vector<Use> used = uses(loop.body);
  for (const Stmt& n : loop.body) {
    if (as<Let>(n)) own.push_back(event_of(schedule::Operation{}, n));
    if (!as<Gemm>(n)) continue;
    for (const Use& use : used) wait_full(use.ring, own);
    product(*as<Gemm>(n), n, own);
    flights_.clear();
    own.push_back({schedule::GemmWait{1}});
    schedule::Guard guard{schedule::Guard::Kind::not_first, {}};
    for (const Use& use : used)
      guard.body.push_back(
          {schedule::Arrive{schedule::Side::empty, {use.ring, -1}, in_pairs()}, Who::each_warp});
    own.push_back(event_of(std::move(guard), s));
    for (const Use& use : used) own.push_back({schedule::Advance{use.ring}});
  }
  out.push_back(event_of(std::move(result), s, Who::all, loop.index[0]->name));
  out.push_back({schedule::GemmWait{0}});
  for (const Use& use : used)
    out.push_back({schedule::Arrive{schedule::Side::empty, {use.ring, -1}, in_pairs()}, Who::each_warp});
}

void Consumer::nested(const Stmt& s, Events& out) {
  drain(out);
  if (const auto* branch = as<If>(s)) {
    const auto peeled = program_.non_empty.find(s.get());
    const schedule::Count count = peeled == program_.non_empty.end()
                                      ? names_.taken(*branch)
                                      : names_.first(std::get<For>(peeled->second->node));
    const bool chosen = peeled == program_.non_empty.end();
    Events then = body(branch->then, chosen ? sums_ : std::unordered_set<const Buffer*>{});
    out.push_back(event_of(schedule::Loop{schedule::Loop::Kind::counted, count, std::move(then)}, s));
    if (branch->otherwise.empty()) return;
    internal_assert(!branch->of_rows.empty(), "tiles of rings are used in the first part of a branch");
    out.push_back(event_of(schedule::Guard{schedule::Guard::Kind::data, body(branch->otherwise)}, s));
    return;
  }
  const auto* loop = as<For>(s);
  internal_assert(loop, "tiles of rings are used in loops and branches");
  const auto shape = program_.shapes.find(s.get());
  if (shape != program_.shapes.end() && shape->second == LoopShape::deep) return deep_loop(s, out);
  in_delayed_ = shape != program_.shapes.end();
  const schedule::Count count = in_delayed_ ? names_.rest(*loop) : names_.steps(*loop);
  Events own = body(loop->body);
  if (in_delayed_ && take_turns_at_products(roles_.consumers)) in_turns(own);
  out.push_back(event_of(schedule::Loop{schedule::Loop::Kind::counted, count, std::move(own)}, s, Who::all,
                         loop->index[0]->name));
  in_delayed_ = false;
}

void Consumer::statement(const Stmt& s, Events& out) {
  if (s == done_) return;
  if (const int parts = parts_with_next(s); parts > 1) return in_parts(s, parts, out);
  if (wgmma(s)) return product(*as<Gemm>(s), s, out);
  const auto* declared = as<Declare>(s);
  if (declared && names_.is_ring(declared->tile.get())) return;
  if (has_events(s)) return nested(s, out);
  leaf(s, out);
}

Events Consumer::body(const Body& statements, std::unordered_set<const Buffer*> begun) {
  Events out;
  begun_ = std::move(begun);
  const std::vector<Use> used = uses(statements);
  for (std::size_t i = 0; i < statements.size(); ++i) {
    for (const Use& use : used) {
      if (use.first == i) wait_full(use.ring, out);
    }
    next_ = i + 1 < statements.size() ? statements[i + 1] : nullptr;
    next_waits_ = std::any_of(used.begin(), used.end(), [&](const Use& use) { return use.first == i + 1; });
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

}  // namespace

Events consumer_events(ScheduleNames& names, const Roles& roles, const ConsumerProgram& program,
                       const CudaTarget& target) {
  return Consumer(names, roles, program, target).body(program.body);
}

}  // namespace tegula::passes
