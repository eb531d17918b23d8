// The IR as text that reads like the program it came from, for people and for golden tests. The same kernel
// always gives the same text.
#pragma once
#include <string>

#include "ir/kernel.hpp"

namespace tegula::ir {

// Lines end with the user's line where it changes: `// attention.cpp:41`.
std::string print(const Kernel& kernel);
std::string print(const Body& body);
std::string print(const Stmt& stmt);
std::string print(const Expr& e);
std::string print(const View& view);

}  // namespace tegula::ir
