// Prints the grids of a kernel as C++17 that includes the device headers: one function for a block of each
// grid. The text is the same for every instruction set and, comments apart, for every place the program is
// built from.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/call/binding.hpp"

namespace tegula::codegen {

struct CpuProgram {
  struct Block {
    std::string function;
    std::size_t scratch_bytes;
    std::size_t record_bytes;  // at its beginning, to be cleared before a thread's first block of a call
    std::size_t kept_bytes;    // of it, for tiles that following blocks read again
    std::int64_t short_row;    // numbers of the shortest rows of tensors that are reduced, if these are few
  };
  // A print or an assertion, with the names of the indices of each loop around it.
  struct Report {
    std::string text;
    Loc at;
    std::vector<std::vector<std::string>> loops;
  };
  // An accumulation in order: the function that adds one contribution.
  struct Ordered {
    std::string function;
  };
  std::string text;
  std::vector<Block> blocks;  // of each grid
  // What the numbers stand for that a block reports by.
  std::vector<Report> prints;
  std::vector<Report> assertions;
  std::vector<Ordered> ordered;
};

CpuProgram print_cpu(const Signature& signature);

// The text without comments: what a compiled kernel is known by.
std::string without_comments(const std::string& text);

}  // namespace tegula::codegen
