// The text for storing a fragment to a tensor by the copy engine.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/stmt.hpp"

namespace tegula::codegen {

struct Box {
  std::string buffer;  // after the warp group's first
  int column = 0, row = 0;
  std::int64_t held = 0;  // registers of a thread before those that it has for the box
};

struct BoxStores {
  std::size_t map = 0;  // of the tensor
  std::string staging;  // the warp group's buffers
  std::string column;   // of its first box, and the other coordinates
  std::vector<std::string> coordinates;
  std::size_t row_at = 0;  // which of them counts rows
  std::vector<Box> boxes;
  int rows = 0;             // that are staged together
  bool transposed = false;  // the fragment's columns are rows
  bool apart = true;        // each box is staged by itself
  // Elements between the parts of warps, each of which stores its own; 0: a thread stores all.
  int of_warp = 0;
};

// The store whose events are being printed.
struct OpenStore {
  ir::Stmt stmt;
  BoxStores boxes;
  std::string word;                 // that counts the turns of the sum, if it has turns
  std::size_t first = 0, end = 0;   // boxes that are staged
  std::optional<int> pending = {};  // stores that a wait for the buffers leaves, until all threads meet
};

}  // namespace tegula::codegen
