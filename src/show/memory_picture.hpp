// A picture of the tiles of a block in shared memory: addresses from bottom to top, time from left to right.
#pragma once
#include <string>

#include "show/cuda_texts.hpp"

namespace tegula::shown {

std::string memory_picture(const GridMemory& grid);

}  // namespace tegula::shown
