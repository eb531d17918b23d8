// Which steps of a printed function must not run beside each other.
#pragma once
#include <optional>

#include "codegen/cuda/steps.hpp"

namespace tegula::codegen {

// Whether a barrier must stand between them; `a` comes first.
bool conflict(const MemoryTouch& a, const MemoryTouch& b);

// Whether threads run it without others: its barriers are its own.
bool is_apart(const Step& step);

// What the step touches as a whole. Both parts of a choice among rows are touched by the first: some rows
// take the one while others take the other.
std::vector<MemoryTouch> touches_of(const std::vector<Step>& steps, std::size_t i);

// A conflict of two steps between which some way through the function has no barrier; nothing if there is
// none. It is found by following every way from every step, not in the manner in which place_sync() places
// barriers.
struct Race {
  std::string first, second;  // lines of the steps
};
std::optional<Race> find_race(const std::vector<Step>& steps, const std::string& barrier);

// The steps with barriers, in which no race is found: one would be an internal compiler error.
std::vector<Step> place_sync_checked(const std::vector<Step>& steps, const std::string& barrier);

}  // namespace tegula::codegen
