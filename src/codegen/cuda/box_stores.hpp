// What the copy engine brings of a fragment to a tensor, as texts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tegula::codegen {

struct Box {
  std::string buffer;  // behind the warp group's first
  int column = 0, row = 0;
};

struct BoxStores {
  std::size_t map = 0;  // of the tensor
  std::string staging;  // the warp group's buffers
  std::string column;   // of its first box, and the other coordinates
  std::vector<std::string> coordinates;
  std::size_t row_at = 0;  // which of them counts rows
  std::vector<Box> boxes;
  std::int64_t registers = 0;  // of a thread for each
  int rows = 0;                // of each
  bool turned = false;  // the fragment's columns are rows: all boxes of a warp group are staged at once
};

}  // namespace tegula::codegen
