// Elements of 8-bit floats that a program only moves: their conversion to f32 and back takes most of a copy.
#pragma once
#include <unordered_set>

#include "ir/kernel.hpp"

namespace tegula::passes {

// Variables that hold an element of memory and that are only stored, as elements of the same type, in memory.
std::unordered_set<const ir::Variable*> moved_elements(const ir::Body& body);

}  // namespace tegula::passes
