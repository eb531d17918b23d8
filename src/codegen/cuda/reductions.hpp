// What a reduction keeps between its parts: by registers, by lanes of a warp, among warps.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "ir/kernel.hpp"
#include "layout/layout.hpp"

namespace tegula::codegen {

// Two chains a register where it is formed in parts.
struct Partial {
  std::string name;
  layout::Layout layout;
  int chains = 0;
};

// The lanes of a warp among which the elements of a sum are divided, and what remains for warps to exchange.
struct Parting {
  std::vector<std::pair<std::int64_t, std::int64_t>> lanes;  // steps and numbers
  layout::Digits parts;
  std::vector<std::string> numbers;  // of this thread among the parts
};

// A fragment whose lanes keep their parts while a loop runs.
struct LaneSum {
  ir::BufferPtr sum;
  Parting parting;
};

}  // namespace tegula::codegen
