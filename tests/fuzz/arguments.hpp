// Random arguments: values that keep a contract, in memory of various layouts.
#pragma once
#include "fuzz/program.hpp"
#include "fuzz/random.hpp"

namespace tegula::fuzz {

Given random_tensor(Random& random, DType type, const Shape& shape, const Nature& contract,
                    int dense_percent = 70);
Given random_number(Random& random, DType type, const Nature& contract);

}  // namespace tegula::fuzz
