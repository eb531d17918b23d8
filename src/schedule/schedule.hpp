// The schedule of one kernel: what every role does, in program order, with all synchronisation. The one
// structure that the verifier simulates and the printer prints.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedule/event.hpp"

namespace tegula::schedule {

enum class Space : std::uint8_t { shared, registers, global };

// Registers exist once per warp, shared buffers once per CTA, global ones once.
struct Buffer {
  std::string name;
  Space space = Space::shared;
  int slots = 1;      // stages
  int instances = 1;  // copies of all slots, one per group of a role
  int bytes = 0;      // of a slot
  int parts = 1;      // ranges of a slot that can be touched one by one, at most 64
};

// Buffers that are filled and released together: a full and an empty barrier per slot and instance. The k-th
// use is slot k % depth; k / depth gives the barriers' phase.
struct Ring {
  std::string name;
  std::vector<int> buffers = {};
  int depth = 1;
  int instances = 1;
  int full_arrivals = 1;
  int empty_arrivals = 1;
  bool barriers = true;  // without: only a cursor over the slots of buffers that barriers of threads protect
};

// A number known at launch or per tile that trip counts depend on.
struct Variable {
  std::string name;
  int minimum = 0;
  int maximum = 0;       // 0: none
  bool per_tile = true;  // else: the same for all tiles
  // Whether a step takes a branch: never, always, every other time that a warp asks, or each time between
  // those.
  bool per_step = false;
};

// `groups` instances of the same events, each by `warps` warps.
struct Role {
  std::string name;
  int groups = 1;
  int warps = 4;
  int registers = 0;  // per thread that its code is compiled for; 0: as launched
  Events events = {};
};

struct Schedule {
  std::string name;
  int cluster = 1;  // CTAs that share barriers
  int ctas_per_sm = 1;
  int launch_registers = 0;  // per thread
  std::vector<Variable> variables;
  std::vector<Buffer> buffers;
  std::vector<Ring> rings;
  Events prologue;  // by all warps of all roles
  std::vector<Role> roles;

  int warps() const;
};

// One line an event, roles below each other.
std::string print(const Schedule& schedule);
std::string print(const Schedule& schedule, const Event& event);

}  // namespace tegula::schedule
