// The roofline of a machine with the work of a kernel on it.
#pragma once
#include <string>

#include "tegula/analyze.hpp"

namespace tegula::shown {

// Operations per second against operations per byte of memory, both logarithmic: what memory allows, what
// the arithmetic of each type allows, and the kernel at the time predicted for it. As SVG.
std::string roofline_picture(const Analysis& analysis);

}  // namespace tegula::shown
