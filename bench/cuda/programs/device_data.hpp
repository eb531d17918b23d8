// Arguments of calls on the device, made there by tile programs, and what is asked about results without
// bringing them to the host.
#pragma once
#include "tests/programs/timing.hpp"

namespace programs {

// Elements depend on the seed and their place alone.
Data random_on_device(const Random& random, std::uint32_t seed);
// NaN, or 77.
Data unwritten_on_device(const Result& result);

struct Oddities {
  std::int64_t nan = 0, infinite = 0;
};
Oddities oddities(const Data& result);

// Elements at places that are the same for all tensors of a shape.
struct Sample {
  std::int64_t step = 1;  // between places
  std::vector<double> values;
};
Sample sample_of(const Data& result);

}  // namespace programs
