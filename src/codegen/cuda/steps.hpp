// The printed function of a grid as a tree: code between which barriers can stand, and the loops and branches
// around it. Every piece of code says which memory it touches.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "passes/cuda/places_in_block.hpp"

namespace tegula::codegen {

// Memory that threads share: an interval of shared memory, or some places of a tensor.
struct Memory {
  int tensor = -1;                    // of global memory; -1: shared memory
  std::int64_t begin = 0, end = 0;    // of a tensor: columns
  passes::PlacesInBlock places = {};  // of a tensor
  passes::PartOfTile part = {};       // of a tile in shared memory

  bool overlaps(const Memory& other) const;
};

enum class MemoryUse : std::uint8_t { read, write, combine };

struct MemoryTouch {
  Memory memory;
  MemoryUse use;
  bool by_one = false;  // by the first thread alone
  int half = -1;        // of memory whose halves alternate from step to step of a loop
  // Of slots that all threads fill: a ring's own events order them while its loop runs, and when it runs
  // again.
  int ring = -1;
  bool is_over = false;  // the loop is: only what follows is to be ordered
};

// `rows` is a branch that each warp group, or warp, takes or leaves by itself: no barrier stands in it.
enum class StepKind : std::uint8_t { code, loop, branch, otherwise, group, rows };

struct Step {
  StepKind kind = StepKind::code;
  std::vector<std::string> lines;         // of code; of the others the line that opens them
  std::vector<MemoryTouch> touches;       // of code
  std::vector<Step> body;                 // of the others
  std::vector<std::int64_t> alternating;  // of a loop: where memory begins whose halves alternate
  std::vector<int> apart;                 // of a loop: tensors of which its steps touch places of their own
  std::string barrier;                    // of a group: what its threads wait for each other by
  bool leaves = false;                    // code that may leave the innermost loop
  bool is_barrier = false;                // code in which the threads wait for each other
  bool publishes = false;                 // and in front of which all made visible what they wrote
  bool brings = false;                    // code after which copies that began earlier have arrived
};

// With barriers where a step touches what another thread touched before in a way that does not commute.
std::vector<Step> place_sync(const std::vector<Step>& steps,
                             const std::string& barrier = "tg::block_sync();");

std::string text_of(const std::vector<Step>& steps, int depth);

// A line that only gives the name a value; without_unused() drops it from the text of a function in which
// nothing else has the name.
std::string definition(const std::string& name, const std::string& line);
std::string without_unused(const std::string& function);

// The barrier of a cluster, at which every thread arrives and waits in turn: a CTA says that it has begun,
// and waits for the others before it stores into their memory. Where another barrier stands between, all meet
// in place of that wait.
inline constexpr const char *cluster_arrival = "tg::arrive_in_cluster();",
                            *cluster_wait = "tg::wait_for_cluster();",
                            *cluster_barrier = "tg::cluster_sync();";
std::string begun_together(std::string text);

}  // namespace tegula::codegen
