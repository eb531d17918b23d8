#include "schedule/statics.hpp"

#include <fmt/format.h>

namespace tegula::schedule {
namespace {

constexpr int shared_limit = 232448, registers_of_sm = 65536, barriers_limit = 16;

struct Statics {
  const Schedule& s;
  std::optional<Finding> found;

  void require(bool holds, Rule rule, const std::string& what) {
    if (holds || found) return;
    found = Finding{rule, fmt::format("{}: {}. Rule: {}.", s.name, what, meaning_of(rule))};
  }

  void sizes() {
    long bytes = 0;
    for (const Buffer& b : s.buffers) {
      require(b.parts >= 1 && b.parts <= 64 && b.slots >= 1 && b.instances >= 1, Rule::structure,
              fmt::format("buffer {} has {} slots, {} instances, {} parts", b.name, b.slots, b.instances,
                          b.parts));
      if (b.space == Space::shared) bytes += static_cast<long>(b.slots) * b.instances * b.bytes;
    }
    require(
        bytes * s.ctas_per_sm <= shared_limit, Rule::resources,
        fmt::format("{} bytes of shared memory for {} CTAs exceed {}", bytes, s.ctas_per_sm, shared_limit));
    for (const Ring& r : s.rings) {
      require(r.depth >= 1 && (!r.barriers || (r.full_arrivals >= 1 && r.empty_arrivals >= 1)),
              Rule::structure,
              fmt::format("ring {} of depth {} has barriers of {} and {} arrivals", r.name, r.depth,
                          r.full_arrivals, r.empty_arrivals));
      for (const int b : r.buffers)
        require(s.buffers[b].slots == r.depth, Rule::structure,
                fmt::format("ring {} has depth {}, its buffer {} {} stages", r.name, r.depth,
                            s.buffers[b].name, s.buffers[b].slots));
    }
  }

  void registers() {
    const int threads = 32 * s.warps();
    require(threads * s.launch_registers * s.ctas_per_sm <= registers_of_sm && s.launch_registers % 8 == 0,
            Rule::resources,
            fmt::format("{} threads of {} registers, {} CTAs, exceed {} or are no multiple of 8", threads,
                        s.launch_registers, s.ctas_per_sm, registers_of_sm));
    int sum = 0;
    for (const Role& role : s.roles) {
      const int each = role.registers == 0 ? s.launch_registers : role.registers;
      require(each % 8 == 0 && each >= 24 && each <= 256, Rule::resources,
              fmt::format("{} has {} registers, not a multiple of 8 from 24 to 256", role.name, each));
      sum += 32 * role.groups * role.warps * each;
    }
    require(sum <= threads * s.launch_registers, Rule::resources,
            fmt::format("the roles' registers sum up to {}, the launch has {} x {}", sum, threads,
                        s.launch_registers));
    groups_of_warps();
  }

  // The instruction that sets registers is one of all four warps of a group.
  void groups_of_warps() {
    std::vector<const Role*> of_warps;
    for (const Role& role : s.roles)
      of_warps.insert(of_warps.end(), static_cast<std::size_t>(role.groups) * role.warps, &role);
    for (std::size_t w = 0; w < of_warps.size(); ++w) {
      const Role &own = *of_warps[w], &first = *of_warps[w / 4 * 4];
      require(own.registers == first.registers, Rule::resources,
              fmt::format("{} has {} registers, {} in the same group of four warps {}", own.name,
                          own.registers, first.name, first.registers));
    }
  }

  void set_registers(const Events& events, const Role* role) {
    for (const Event& e : events) {
      if (const auto* x = std::get_if<SetRegisters>(&e.what))
        require(
            x->count % 8 == 0 && x->count >= 24 && x->count <= 256 && e.who == Who::all && role != nullptr,
            Rule::resources,
            fmt::format("`{}`: a multiple of 8 from 24 to 256, by all threads of a role", print(s, e)));
      if (const auto* x = std::get_if<Barrier>(&e.what))
        require(x->threads % 32 == 0 && x->threads > 0 && x->id >= 0 && x->id < barriers_limit &&
                    e.who == Who::all,
                Rule::barrier, fmt::format("`{}`: whole warps, numbers below 16", print(s, e)));
      if (const auto* x = std::get_if<Loop>(&e.what)) set_registers(x->body, role);
      if (const auto* x = std::get_if<Guard>(&e.what)) set_registers(x->body, role);
    }
  }
};

}  // namespace

std::optional<Finding> check_statically(const Schedule& schedule) {
  Statics statics{schedule, std::nullopt};
  statics.sizes();
  if (statics.found) return statics.found;
  statics.registers();
  statics.set_registers(schedule.prologue, nullptr);
  for (const Role& role : schedule.roles) statics.set_registers(role.events, &role);
  return statics.found;
}

}  // namespace tegula::schedule
