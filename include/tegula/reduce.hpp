// Reduces a program that fails to a small one: statements, loops and operations are removed as long as the
// program still fails.
//
//   // The results differ from the interpreter's, or the program fails in another way:
//   std::puts(reduce(mine, Target::cpu(), {a, b, c}).text().c_str());
//   reduce(mine, [&](const lang::Kernel& k) { return fails(k); });
#pragma once
#include <functional>
#include <vector>

#include "tegula/lang/kernel.hpp"
#include "tegula/runtime.hpp"

TEGULA_API_BEGIN
namespace tegula {

struct ReduceOptions {
  double seconds = 90;         // of all
  double seconds_of_one = 20;  // after which a candidate counts as one that does not end
  double tolerance = 1e-2;     // of results, absolute and relative
};

// `fails` runs in child processes: where the kernel crashes or does not end, smaller ones are looked for that
// do the same. All have the parameters of the given one. An ArgumentError if that does not fail.
lang::Kernel reduce(const lang::Kernel& kernel, const std::function<bool(const lang::Kernel&)>& fails,
                    ReduceOptions options = {});
// Fails: the interpreter accepts the kernel, and the target, one of the host, throws or computes something
// else.
lang::Kernel reduce(const lang::Kernel& kernel, Target target, const std::vector<Argument>& args,
                    ReduceOptions options = {});

}  // namespace tegula
TEGULA_API_END
