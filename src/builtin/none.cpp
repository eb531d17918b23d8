// For the program that makes the table, and for builds that do without.
#include "builtin/builtin.hpp"

namespace tegula::builtin {

std::span<const Compiled> table() { return {}; }

}  // namespace tegula::builtin
