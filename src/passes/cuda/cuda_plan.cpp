#include "passes/cuda/cuda_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/print.hpp"

namespace tegula::passes {

namespace {

std::string ring_text(const RingPlan& ring) {
  std::vector<std::string> names, sets;
  const auto add = [&](const std::vector<ir::BufferPtr>& tiles) {
    names.clear();
    for (const ir::BufferPtr& tile : tiles) names.push_back(tile->name);
    sets.push_back(fmt::format("{}", fmt::join(names, ", ")));
  };
  add(ring.tiles);
  for (const auto& others : ring.in_place) add(others);
  return fmt::format("ring of {}: {} stages{}{}{}{}\n", fmt::join(sets, ", in their place "), ring.depth,
                     ring.in_loop ? "" : ", filled once a block",
                     ring.told      ? " for the producer"
                     : ring.relayed ? " for the next step"
                                    : "",
                     ring.by_rows ? ", by pieces of rows" : "",
                     ring.by_one_group ? ", let go by one warp group" : "");
}

std::string rings_text(const Roles& roles) {
  std::string text;
  for (const RingPlan& ring : roles.rings) text += ring_text(ring);
  return text;
}

std::string copy_rings_text(const CopyRings& rings) {
  std::vector<std::string> lines(static_cast<std::size_t>(rings.count()));
  for (const auto& [loop, ring] : rings.loops) {
    if (ring.goes_back) continue;
    std::vector<std::string> names;
    for (const ir::BufferPtr& tile : ring.tiles) names.push_back(tile->name);
    lines[static_cast<std::size_t>(ring.number)] =
        fmt::format("ring of {}: {} stages, by all threads{}\n", fmt::join(names, ", "), ring.depth,
                    ring.stays ? ", which the next loop goes back through" : "");
  }
  return fmt::format("{}", fmt::join(lines, ""));
}

std::string roles_text(const Roles& roles) {
  std::string text = fmt::format(
      "{} consumers, {} producers{}, {} blocks of a processor{}{}\n", roles.consumers, roles.producers,
      roles.one_loader ? " of which one thread loads" : "", roles.blocks_per_processor,
      roles.dynamic_tiles ? ", dynamic tile scheduler" : "", roles.pair_index >= 0 ? ", in pairs" : "");
  text += rings_text(roles) + "-- producer\n" + ir::print(roles.producer);
  if (!roles.transposer.empty()) text += "-- transposer\n" + ir::print(roles.transposer);
  return text;
}

// Of the programs, those that are the way's own.
std::string way_text(const Roles& way) {
  const std::string text =
      fmt::format("-- with stores by {}\n", way.stores() ? "the copy engine" : "threads");
  if (!way.dealt) return text + rings_text(way);
  return text + roles_text(way) + "-- consumers\n" + ir::print(way.consumer);
}

std::string reasons_text(const ConsumerProgram& program) {
  std::vector<std::string> lines;
  for (const auto& [loop, reason] : program.reasons)
    lines.push_back(
        fmt::format("products of loop {} are awaited in their step: {}\n", loop->name, reason.why));
  std::sort(lines.begin(), lines.end());
  return fmt::format("{}", fmt::join(lines, ""));
}

// Sorted by the fragments' names, because layouts have no order.
std::string layouts_text(const GridPlan& own) {
  std::vector<std::string> lines;
  for (const auto& [buffer, layout] : own.layouts.fragments)
    lines.push_back(fmt::format("{}: {}{}\n", buffer->name, layout.text(),
                                own.forms.packed.contains(buffer)      ? ", in words of two"
                                : own.forms.unrounded.contains(buffer) ? ", rounded where it is read"
                                                                       : ""));
  for (const auto& [loop, sums] : own.lane_sums)
    for (const LaneSum& n : sums) lines.push_back(fmt::format("{}: lanes keep their parts\n", n.sum->name));
  std::sort(lines.begin(), lines.end());
  return lines.empty() ? "" : fmt::format("-- layouts\n{}", fmt::join(lines, ""));
}

std::string_view name_of(GridWait wait) {
  constexpr std::string_view names[] = {"never", "at its start", "at its end"};
  return names[static_cast<int>(wait)];
}

}  // namespace

const ir::Body& CudaPlan::computing(std::size_t grid) const {
  return grids[grid].roles ? grids[grid].consumers.body : kernel.grids[grid].body;
}

int CudaPlan::computing_threads(std::size_t grid) const {
  return grids[grid].roles ? grids[grid].roles->together() : kernel.grids[grid].hints.threads;
}

std::string print(const CudaPlan& plan) {
  std::string text = ir::print(plan.kernel);
  for (std::size_t i = 0; i < plan.grids.size(); ++i) {
    const GridPlan& own = plan.grids[i];
    if (!own.roles && own.no_roles.why.empty() && own.copy_rings.empty() && own.layouts.fragments.empty())
      continue;
    text += fmt::format("\n---- plan of {}\n", own.function);
    if (!own.exits_of_all.empty()) text += fmt::format("{} exits of all blocks\n", own.exits_of_all.size());
    if (own.roles) text += roles_text(*own.roles);
    for (const Roles& way : own.ways) text += way_text(way);
    if (!own.no_roles.why.empty()) text += fmt::format("no roles: {}\n", own.no_roles.why);
    text += copy_rings_text(own.copy_rings);
    // Until products are delayed, the consumers' program is that of the roles.
    if (own.roles)
      text +=
          "-- consumers\n" + ir::print(own.consumers.body.empty() ? own.roles->consumer : own.consumers.body);
    if (own.roles) text += reasons_text(own.consumers);
    if (!own.steps.empty()) text += "-- steps\n" + print(own.steps, *own.roles);
    if (own.schedule) text += "-- schedule\n" + schedule::print(*own.schedule);
    text += layouts_text(own);
  }
  for (std::size_t i = 1; i < plan.waits.size(); ++i)
    text += fmt::format("grid {} waits for the one before {}\n", i, name_of(plan.waits[i]));
  return text;
}

}  // namespace tegula::passes
