// What a reduction in parts keeps between them.
#pragma once
#include <string>

#include "layout/layout.hpp"

namespace tegula::codegen {

// Two chains a register where it is formed in parts.
struct Partial {
  std::string name;
  layout::Layout layout;
  int chains = 0;
};

}  // namespace tegula::codegen
