// One case: what the compilers make of it, and a call of it on the GPU, checked and timed.
#pragma once
#include <nlohmann/json.hpp>

#include "tests/programs/timing.hpp"

namespace programs {

// Roles, threads, registers, spills and notes; the machine code is in the cache of kernels afterwards. Needs
// NVRTC, no GPU.
nlohmann::json compiled(const TimedCase& own);

// Milliseconds and what was found in the results, with samples of them.
nlohmann::json timed(const TimedCase& own);

// The time of the driver's copy of 1 GiB.
nlohmann::json timed_copy();

}  // namespace programs
