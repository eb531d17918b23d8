#include "passes/cuda/schedule_names.hpp"

#include <algorithm>

#include "ir/visit.hpp"
#include "passes/cuda/chosen_steps.hpp"

namespace tegula::passes {

using namespace ir;

ScheduleNames::ScheduleNames(schedule::Schedule& out, const Roles& roles, const ConsumerProgram& program)
    : out_(out), roles_(roles), program_(program), continued_(program.continued) {
  for (const auto& [branch, loop] : program.non_empty)
    peeled_.insert(std::get<For>(loop->node).index[0].get());
  for_each_stmt(roles.producer, [&](const Stmt& s) {
    const auto* loop = as<For>(s);
    if (as<If>(s)) return;
    for_each_body(s, [&](const Body& inner) {
      for (const Stmt& n : inner) {
        if (const auto* branch = as<If>(n)) of_steps_.insert(branch->condition.get());
        const bool is_chosen = loop && goes_on(*loop) && n == loop->body[1];
        if (const auto* leave = as<Break>(n); leave && !is_chosen) leaving_.insert(leave->condition.get());
      }
    });
  });
  for (const RingPlan& ring : roles.rings) {
    schedule::Ring own{ring.tiles[0]->name,        {}, ring.depth, 1, full_arrivals(ring, roles),
                       empty_arrivals(ring, roles)};
    for (std::size_t number = 0; number < ring.tiles.size(); ++number) {
      own.buffers.push_back(static_cast<int>(out.buffers.size()));
      const BufferPtr& tile = ring.tiles[number];
      std::string name;
      int bytes = 0;
      for (const BufferPtr& other : ring.at(number)) {
        buffers_.emplace(other.get(), own.buffers.back());
        name += (name.empty() ? "" : "/") + other->name;
        bytes = std::max(bytes, static_cast<int>(other->elements() * other->type.bytes()));
      }
      int fills = ring.told || ring.relayed ? roles.consumers / 32 : 0;  // each warp leaves its own elements
      for (const auto& [fill, filled] : roles.fills) fills += filled == tile;
      if (roles.is_transposed(tile.get())) fills = roles.transposing_warps();
      if (ring.by_rows) fills *= roles.copying_warps(ring);  // each warp brings its own
      if (roles.cluster() > 1) fills *= 2;                   // each block brings its half, or both
      out.buffers.push_back({name, schedule::Space::shared, ring.depth, 1, bytes, fills});
    }
    out.rings.push_back(std::move(own));
  }
}

int ScheduleNames::buffer(const BufferPtr& b) {
  const auto [found, added] = buffers_.emplace(b.get(), static_cast<int>(out_.buffers.size()));
  if (!added) return found->second;
  schedule::Buffer own{b->name, schedule::Space::registers};
  // Each warp leaves its own rows, of its group's part where there is one.
  if (is_message(b.get())) {
    const int parts = roles_.dealt->of_both.contains(b.get()) ? roles_.consumers / one_warp : 4;
    own = {b->name, schedule::Space::shared, 1, 1, static_cast<int>(b->elements() * b->type.bytes()), parts};
  }
  out_.buffers.push_back(std::move(own));
  return found->second;
}

schedule::Access ScheduleNames::access(const BufferPtr& b, schedule::Touch touch) {
  const auto before = program_.before.find(b.get());
  const bool is_before = before != program_.before.end();
  const BufferPtr& tile = is_before ? before->second : b;
  schedule::Access result{buffer(tile), touch};
  const int ring = roles_.ring_of(tile.get());
  if (ring >= 0) result.slot = schedule::at_cursor(ring, is_before ? -1 : 0);
  if ((roles_.is_told(ring) || roles_.is_relayed(ring)) && touch == schedule::Touch::write)
    result.parts = {1, 4, 1, 0};
  if (is_message(tile.get()) && touch == schedule::Touch::write)
    result.parts = {1, roles_.dealt->of_both.contains(tile.get()) ? 4 : 0, 1, 0};
  return result;
}

schedule::Access ScheduleNames::part(const BufferPtr& b, schedule::Touch touch, int first, int last) {
  schedule::Access result = access(b, touch);
  out_.buffers[static_cast<std::size_t>(result.buffer)].parts = 16;
  result.parts.mask = (std::uint64_t{1} << last) - (std::uint64_t{1} << first);
  return result;
}

schedule::Count ScheduleNames::add(const void* key, int part, const schedule::Variable& v) {
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

schedule::Count ScheduleNames::variable(const void* key, const For& loop, int part) {
  const std::string name = loop.index[0]->name;
  if (part == 0) return add(key, part, {name + " has a step", 0, 1});
  return add(key, part, {"steps of " + name});
}

schedule::Count ScheduleNames::steps(const For& loop) {
  const auto left_over = program_.left_over.find(loop.index[0].get());
  if (left_over != program_.left_over.end())
    return first(loop) * (schedule::Count{1} + schedule::Count{2} * rest(loop) +
                          taken(std::get<If>(left_over->second->node)));
  if (peeled_.contains(loop.index[0].get())) return first(loop) * (schedule::Count{1} + all_of_rest(loop));
  if (!has_break(loop.body) && is_constant(loop.begin[0]) && is_constant(loop.end[0]))
    return {static_cast<int>(
        std::max<std::int64_t>(0, constant_value(loop.end[0]) - constant_value(loop.begin[0])))};
  return rest(loop);
}

schedule::Count ScheduleNames::steps(const While& loop) { return add(loop.condition.get(), 1, {"steps"}); }

schedule::Count ScheduleNames::all_of_rest(const For& loop) {
  const auto more = continued_.find(loop.index[0].get());
  if (more == continued_.end()) return rest(loop);
  return rest(loop) + variable(more->second, loop, 1);
}

schedule::Count ScheduleNames::taken(const If& branch) {
  schedule::Variable taken{"branch", 0, 1};
  taken.per_step = of_steps_.contains(branch.condition.get());
  return add(branch.condition.get(), 0, taken);
}

std::optional<schedule::Leave> ScheduleNames::leaves(const Stmt& s) {
  const auto* leave = as<Break>(s);
  if (!leave || !leaving_.contains(leave->condition.get())) return std::nullopt;
  const schedule::Count step = add(leave->condition.get(), 0, {"in which it is left"});
  return schedule::Leave{step.terms[0].variables[0]};
}

}  // namespace tegula::passes
