// Makes a failing program small.
#pragma once
#include <chrono>

#include "fuzz/check.hpp"

namespace tegula::fuzz {

// A smaller program on which the same executor fails, with its failure; the program itself if there is none.
Program shrink(const Program& program, Failure* failure, std::span<const Executor> executors,
               std::chrono::seconds timeout);

}  // namespace tegula::fuzz
