// Blocks whose warps have roles: their schedule, event by event.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/cuda/grid_printer.hpp"
#include "codegen/cuda/sync_rules.hpp"
#include "ir/effects.hpp"
#include "ir/visit.hpp"
#include "passes/cuda/build_schedule.hpp"
#include "passes/cuda/element_loops.hpp"
#include "passes/cuda/exits_of_all.hpp"
#include "passes/cuda/order_loads.hpp"
#include "passes/cuda/store_events.hpp"
#include "schedule/cursors.hpp"
#include "schedule/verify.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// The thread of the producer that begins all transfers.
constexpr const char* loader = "thread < 32 && tg::elected()";

// Arrivals at the barrier that a slot is full, where checkers of races may need more than one of a warp.
std::string fills_text(const passes::RingPlan& ring, const passes::Roles& roles) {
  if (!ring.by_rows && roles.has_transposed(ring))
    return fmt::format("{}{} * tg::releasing_lanes", roles.has_loaded(ring) ? "1 + " : "",
                       roles.transposing_warps());
  if (!ring.by_rows && roles.is_brought_by_threads(ring)) return "1 + tg::filling_threads";
  return std::to_string(passes::full_arrivals(ring, roles));
}

// Rings whose tiles were awaited in the step before, or in front of the loop.
std::vector<int> awaited_early(const schedule::Events& step) {
  std::vector<int> result;
  for (const schedule::Event& e : step) {
    const auto* guard = std::get_if<schedule::Guard>(&e.what);
    if (!guard || guard->kind != schedule::Guard::Kind::not_last) continue;
    for (const schedule::Event& own : guard->body)
      if (const auto* wait = std::get_if<schedule::WaitFull>(&own.what)) result.push_back(wait->place.ring);
  }
  return result;
}

}  // namespace

// The barriers that both roles wait at.
std::string CudaGridPrinter::begin_roles(const passes::Roles& roles) {
  declare_rings(roles);
  // The first warp of the producer loads, each of the others adds for a warp group.
  const int groups = roles.consumers / 128;
  if (roles.only_loads() && plan_.schedule->roles.size() > 2)
    handover_ = memory_.allocate(groups * handover_bytes, 64);
  if (roles.stores())
    store_staging_ = memory_.allocate(groups * roles.store_bytes, 1024, "tiles on their way to tensors");
  ahead_bytes_ += groups * roles.store_bytes;
  bool has_turns = false;
  for_each_stmt(plan_.consumers.body, [&](const Stmt& s) {
    const auto* sum = as<Accumulate>(s);
    has_turns |= sum && sum->turn;
  });
  if (hands_over() && has_turns) order_.set_in_order();
  prologue();
  out_.code();
  out_.open("if (threadIdx.x == 0) {");
  for (std::size_t r = 0; r < rings_.size(); ++r) {
    const bool loads = r < roles.rings.size();
    if (roles.is_told(static_cast<int>(r)) || roles.is_relayed(static_cast<int>(r))) {
      out_.line(fmt::format("tg::init_told<{}>(shared_memory + {}, {});", depth_of(r), rings_[r].barriers,
                            passes::full_arrivals(roles.rings[r], roles)));
      continue;
    }
    out_.line(
        fmt::format("tg::init_ring<{}>(shared_memory + {}, {}, {});", depth_of(r), rings_[r].barriers,
                    loads ? fills_text(roles.rings[r], roles) : "1",
                    loads ? passes::empty_arrivals(roles.rings[r], roles) : passes::tile_readers(roles)));
  }
  for (int group = 0; hands_over() && group < groups; ++group)
    out_.line(fmt::format("tg::init_handover(shared_memory + {});", handover_ + group * handover_bytes));
  out_.line("tg::init_fence();");
  out_.close();
  out_.line(roles.cluster() > 1 ? "tg::cluster_sync();" : "__syncthreads();");
  between_grids();
  return text_of(out_.finish(), 1);
}

std::string CudaGridPrinter::consumers(const Grid& grid) {
  const passes::ConsumerProgram& program = plan_.consumers;
  const int threads = roles_->consumers;
  team_.threads = threads;
  layouts_ = plan_.layouts;
  alternating_ = program.alternating;
  in_loops_ = program.in_loops;
  is_consumer_ = true;
  for_each_stmt(program.body, [&](const Stmt& s) {
    const auto* branch = as<If>(s);
    warps_decide_ |= branch && deciders(*branch) == passes::Deciders::warps;
  });
  const schedule::Schedule& schedule = *plan_.schedule;
  const std::string text = role(schedule, schedule.roles[0], grid, passes::consumer_barrier, threads);
  is_consumer_ = warps_decide_ = false;
  alternating_.clear();
  return text;
}

std::string CudaGridPrinter::producer(const Grid& grid) {
  const schedule::Schedule& schedule = *plan_.schedule;
  memory_.reserve(memory_.peak());  // both run at the same time
  layouts_ = {};
  const std::string others = transposer(grid);
  team_.threads = roles_->one_loader ? 1 : roles_->loaders();
  const std::string loads =
      role(schedule, schedule.roles[1], grid, passes::producer_barrier, roles_->loaders());
  return fmt::format("    const int thread = threadIdx.x - {};\n", roles_->consumers) +
         (some_load() ? fmt::format("{}    if (thread < {}) {{\n{}    }}\n", registers_of_producer(),
                                    roles_->loaders(), loads)
                      : loads) +
         adders_ + others;
}

bool CudaGridPrinter::some_load() const { return !roles_->one_loader && !roles_->transposer.empty(); }

// The producer's other warps.
std::string CudaGridPrinter::transposer(const Grid& grid) {
  if (roles_->transposer.empty()) return "";
  is_transposer_ = true;
  team_.threads = 32 * roles_->transposing_warps();
  const schedule::Schedule& schedule = *plan_.schedule;
  const std::string text =
      fmt::format(
          "    // ---- transposer\n    if (thread >= {0}) {{\n      const int thread = threadIdx.x - {1};\n",
          roles_->loaders(), roles_->consumers + roles_->loaders()) +
      role(schedule, schedule.roles[2], grid, passes::producer_barrier, team_.threads) + "    }\n";
  is_transposer_ = false;
  return text;
}

// Whether blocks may be taken to have equally many products: no loop depends on the block, and none ends
// early. Branches are not looked at; where they differ, only time is lost.
bool CudaGridPrinter::has_even_blocks(const Grid& grid) const {
  bool multiplies = false, depends = false;
  for_each_stmt(grid.body, [&](const Stmt& s) {
    multiplies |= as<Gemm>(s) != nullptr;
    depends |= as<Exit>(s) || as<While>(s);
    const auto* loop = as<For>(s);
    if (!loop || loop->kind != LoopKind::serial) return;
    for (const Expr& e : {loop->begin[0], loop->end[0]})
      for_each_variable(e, [&](const VariablePtr& v) { depends |= !is_host(v->kind); });
  });
  return multiplies && !depends && !roles_->dynamic_tiles && roles_->blocks_per_processor == 1;
}

std::string CudaGridPrinter::print_roles(const Grid& grid) {
  const passes::Roles& roles = *plan_.roles;
  for (const passes::Note& own : roles.notes) passes::add(program_.notes, own);
  std::string text = begin_roles(roles);
  const Facts facts = facts_;
  text += fmt::format("  if (threadIdx.x < {}) {{\n    // ---- consumers\n", roles.consumers);
  text += consumers(grid);
  facts_ = facts;
  text += "  } else {\n    // ---- producer\n" + producer(grid) + "  }\n";

  const int threads = roles.consumers + roles.producers;
  program_.kernels.push_back({.function = plan_.function,
                              .threads = threads,
                              .shared_bytes = static_cast<std::size_t>(memory_.peak()),
                              .is_persistent = true,
                              .is_even = has_even_blocks(grid),
                              .pair_index = roles.pair_index,
                              .waits = has_waits(),
                              .way = way_of(roles.consumer, threads, plan_, target_),
                              .shared = memory_.history()});
  blocks_ = roles.blocks_per_processor;
  notes_.of_blocks(grid, blocks_);
  roles_ = nullptr;
  return without_unused(fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}, {}) {}(const __grid_constant__ Call call) {{  // "
      "{}\n"
      "  extern __shared__ __align__(1024) unsigned char shared_memory[];\n{}}}\n",
      threads, roles.blocks_per_processor, plan_.function, location_in_folder(grid.at), text));
}

std::string CudaGridPrinter::role(const schedule::Schedule& schedule, const schedule::Role& role,
                                  const Grid& grid, int barrier, int threads) {
  grid_ = &grid;
  team_barrier_ = fmt::format("tg::team_sync<{}, {}>();", barrier, threads);
  out_ = StepWriter();
  out_.code();
  std::vector<int> cursors = schedule::shared_cursors(schedule, role);
  // What a block's indices come by is read by every thread: a cursor of its own leaves that of the tiles
  // uniform.
  for (std::size_t r = roles_->rings.size(); r < cursors.size(); ++r) cursors[r] = static_cast<int>(r);
  print_rings(cursors);
  if (is_consumer_ && hands_over())
    out_.line(
        fmt::format("tg::Giver giver(shared_memory + {} + thread / 128 * {});", handover_, handover_bytes));
  if (is_consumer_) out_.line(definition("none", "const uint32_t none = tg::zero_of_thread();"));
  if (is_consumer_ && threads > 128) out_.line("const int warp_group = tg::uniform(thread / 128);");
  if (warps_decide_) out_.line("const int warp = tg::uniform(thread / 32);");
  flights_.clear();
  if (is_transposer_) clear_zero_columns();
  events(role.events);
  if (!awaits_producer() && roles_->dynamic_tiles)
    sync_line(fmt::format("if ({}) tg::last_block_resets({});", loader, counters()));
  if (is_consumer_) end_of_block();
  return text_of(place_sync_checked(out_.finish(), team_barrier_), is_transposer_ ? 3 : 2);
}

// A cursor advances with the last of its rings.
void CudaGridPrinter::events(const schedule::Events& list) {
  const auto advances = [&](const schedule::Event& e, int cursor) {
    const auto* n = std::get_if<schedule::Advance>(&e.what);
    return n && cursors_[static_cast<std::size_t>(n->ring)] == cursor;
  };
  const std::vector<FragmentTile> outer = std::exchange(factors_, {});
  for (std::size_t i = 0; i < list.size(); ++i) {
    const schedule::Event& e = list[i];
    if (const auto* n = std::get_if<schedule::Advance>(&e.what)) {
      const int cursor = cursors_[static_cast<std::size_t>(n->ring)];
      const auto shared = std::count(cursors_.begin(), cursors_.end(), cursor);
      const bool later = std::any_of(list.begin() + static_cast<std::ptrdiff_t>(i) + 1, list.end(),
                                     [&](const schedule::Event& x) { return advances(x, cursor); });
      if (shared > 1 && later) continue;
    }
    if (store_ && store_->stmt != e.stmt) end_store();
    if (!store_ && e.stmt && passes::is_engine_store(e.stmt)) begin_store(e.stmt);
    if (gives(list, i)) continue;
    stamp(e);
    std::visit([&](const auto& what) { event(what, e); }, e.what);
  }
  if (store_) end_store();
  factors_ = outer;
}

bool CudaGridPrinter::is_handover(const schedule::Place& place) const {
  return hands_over() && place.ring == static_cast<int>(cursors_.size()) - 1;
}

// What a function of the device does with several events: `giver.wait`, and all that follows as `giver.give`,
// or both after the last block.
bool CudaGridPrinter::gives(const schedule::Events& list, std::size_t& i) {
  const auto* acquired = std::get_if<schedule::Acquire>(&list[i].what);
  const bool waits = acquired && is_handover(acquired->place);
  if (waits && store_) {
    out_.line("giver.wait();");
    return true;
  }
  if (!waits && !(store_ && std::holds_alternative<schedule::SendTile>(list[i].what))) return false;
  while (!std::holds_alternative<schedule::Advance>(list[i].what)) ++i;
  if (store_)
    give();
  else
    sync_line("giver.end();");
  return true;
}

void CudaGridPrinter::sync_line(const std::string& text) {
  out_.code();
  out_.line(text);
}

void CudaGridPrinter::event(const schedule::Operation& n, const schedule::Event& e) {
  if (!e.stmt) return;
  // What threads read for a sparse product of warp groups, whose own event follows.
  if (const auto* gemm = as<Gemm>(e.stmt); gemm && gemm->metadata && n.accesses.size() == 1)
    return read_metadata(*gemm);
  if (store_) return stage_boxes(n.accesses.size() - 1);  // one is of the fragment
  if (is_transposer_)
    if (const auto own = roles_->transpositions.find(e.stmt.get()); own != roles_->transpositions.end())
      return transpose(own->second, e.stmt->at);
  if (const HeldLoop* own = held(e.stmt)) return make_held(*own);
  const Part part{n.first, n.last};
  if (part.is_all()) {
    stmt(e.stmt);
    return note_factors(e.stmt);
  }
  const auto* loop = as<For>(e.stmt);
  if (loop && !passes::is_by_register(*loop, e.stmt, layouts_)) {
    if (n.first == 0) stmt(e.stmt);
    return;
  }
  part_ = part;
  stmt(e.stmt);
  part_ = {};
  if (n.holds) hold(e.stmt, n.last);
}

void CudaGridPrinter::event(const schedule::Barrier& n, const schedule::Event& e) {
  if (store_) return meet_around_staging("");
  if (e.stmt && as<Turn>(e.stmt)) {
    if (!as<Turn>(e.stmt)->order) sync_line("__threadfence();");
    return out_.barrier(team_barrier_);
  }
  if (!roles_ || (n.id == passes::consumer_barrier && !roles_->dealt)) return out_.barrier(team_barrier_);
  if (n.per_group && n.threads == passes::threads_of_group)
    return sync_line("tg::warp_group_sync(warp_group);");
  if (n.per_group)
    return sync_line(fmt::format("tg::{}_turn<{}, {}>(warp_group);", n.wait ? "take" : "give", n.id,
                                 roles_->consumers / 128));
  sync_line(fmt::format("tg::team_sync<{}, {}>();", n.id, n.threads));
}

void CudaGridPrinter::event(const schedule::ClusterBarrier&, const schedule::Event&) {
  sync_line("tg::cluster_sync();");
}

void CudaGridPrinter::event(const schedule::WarpSync&, const schedule::Event&) {
  if (store_) return meet_around_staging("_of_warp");
  sync_line("tg::warp_sync();");
}

// Those of shared memory around a store belong to what ends the staging, that of its turn to what waits.
void CudaGridPrinter::event(const schedule::ProxyFence& n, const schedule::Event&) {
  if (!store_) return sync_line("tg::fence_async_shared();");
  if (n.global && store_->first < store_->end) out_.line("if (thread % 128 == 0) tg::fence_async_global();");
}

std::string CudaGridPrinter::by_loader(const std::string& text) const {
  return roles_->one_loader ? text : fmt::format("if (thread == 0) {}", text);
}

void CudaGridPrinter::event(const schedule::Guard& n, const schedule::Event& e) {
  if (n.kind == schedule::Guard::Kind::last_group) {
    out_.open_step(StepKind::branch, fmt::format("if (warp_group == {}) {{", roles_->consumers / 128 - 1));
  } else if (n.kind == schedule::Guard::Kind::chosen) {
    out_.open_step(StepKind::branch, fmt::format("if ({}) {{", loader));
  } else if (n.kind == schedule::Guard::Kind::engine) {
    const auto& copy = *as<Copy>(e.stmt);
    out_.code();
    const bool limits_matter = roles_->copies.at(e.stmt.get()).needs_zeros;
    const std::string whole = value(passes::can_transfer(copy.from, copy.to, e.stmt->at, limits_matter));
    out_.open_step(StepKind::branch, fmt::format("if ({}) {{", whole));
  } else if (n.kind == schedule::Guard::Kind::data || n.kind == schedule::Guard::Kind::threads) {
    out_.open_step(StepKind::otherwise, "else {");
  } else if (n.kind == schedule::Guard::Kind::not_last) {
    const auto& loop = *as<For>(e.stmt);
    out_.code();
    const std::string end = value(loop.end[0]);
    out_.open_step(StepKind::branch, fmt::format("if ({} + 1 < {}) {{", variable_text(loop.index[0]), end));
  } else {
    const auto& loop = *as<For>(e.stmt);
    out_.code();
    const std::string begin = value(loop.begin[0]);
    out_.open_step(StepKind::branch, fmt::format("if ({} > {}) {{", variable_text(loop.index[0]), begin));
  }
  events(n.body);
  out_.close_step();
}

// All groups run it at the same time.
void CudaGridPrinter::each_group(const schedule::Loop& n, const For& loop) {
  const Team outer = team_;
  const Facts before = facts_;
  set_team(false);
  values_.set(loop.index[0], "warp_group");
  add_index(loop.index[0], loop.begin[0], loop.end[0]);
  out_.open_step(StepKind::group, "{  // each warp group", team_.barrier);
  events(n.body);
  out_.close_step();
  facts_ = before;
  team_ = outer;
}

void CudaGridPrinter::event(const schedule::Loop& n, const schedule::Event& e) {
  if (n.kind == schedule::Loop::Kind::tiles) return tiles(n);
  if (n.kind == schedule::Loop::Kind::forever) return dynamic_tiles(n);
  const std::vector<int> early = is_consumer_ ? awaited_early(n.body) : std::vector<int>{};
  for (const int ring : early) carry_operands(ring);
  const auto inside = [&] {
    for (const int ring : early) name_slots(ring);
    events(n.body);
  };
  const auto* loop = as<For>(e.stmt);
  if (const auto* loop = as<While>(e.stmt)) return repeated(*loop, e.stmt->at, inside);
  if (!loop) return branch(*as<If>(e.stmt), e.stmt->at, inside);
  if (!is_consumer_) return producer_loop(*loop, e.stmt->at, n.body);
  if (loop->kind == LoopKind::warp_groups) return each_group(n, *loop);
  const auto found = plan_.lane_sums.find(e.stmt.get());
  const std::vector<passes::LaneSum> sums =
      found == plan_.lane_sums.end() ? std::vector<passes::LaneSum>{} : found->second;
  for (const passes::LaneSum& sum : sums) begin_lane_sum(sum);
  const std::string outer = step_apart_;
  const bool apart = passes::takes_operands_apart(*loop, team_.threads, target_);
  sequential(*loop, e.stmt->at, [&] {
    if (apart) step_apart_ = variable_text(loop->index[0]);
    inside();
  });
  step_apart_ = outer;
  if (!early.empty()) carried_.clear();
  for (const passes::LaneSum& sum : sums) end_lane_sum(sum);
}

}  // namespace tegula::codegen
