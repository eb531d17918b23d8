// What the timings of rows, scans and recurrences share.
#pragma once
#include "tests/programs/timing.hpp"

namespace programs {

// Bytes of elements that are read or written so many times.
inline double moved(std::int64_t elements, double times, int bytes = 2) {
  return static_cast<double>(elements) * bytes * times;
}

// Timings of recurrences in chunks of tokens: the gated delta rule and Mamba.
std::vector<Timing> chunk_timings();

}  // namespace programs
