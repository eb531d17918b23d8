// Numbers of blocks that are added up in runs, each by a thread of its own.
#pragma once
#include <functional>

#include "tegula/lang.hpp"

namespace tegula::ops {

// The blocks that are handled at a time are divided into runs. In memory, a run has one more element, so that
// the runs of a warp are in different banks.
inline constexpr int run_length = 32, runs = 32;
inline constexpr int blocks_of_runs = runs * run_length;

// before(run), of [runs + 1]: the numbers of all earlier runs; at `runs`, of all.
void add_up_runs(const std::function<lang::Expr(const lang::Expr& run, const lang::Expr& i)>& number,
                 lang::Shared& before);

}  // namespace tegula::ops
