// Reduces a failing program to a small one: removes statements, loops and operations as long as the program
// still fails.
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
  double seconds = 90;         // in total
  double seconds_of_one = 20;  // after which a candidate is considered not to end
  double tolerance = 1e-2;     // of results, absolute and relative
};

// `fails` runs in child processes: if the kernel crashes or does not end, smaller kernels that do the same
// are searched for. All have the parameters of the given kernel. Throws an ArgumentError if that one does not
// fail.
lang::Kernel reduce(const lang::Kernel& kernel, const std::function<bool(const lang::Kernel&)>& fails,
                    ReduceOptions options = {});
// Here a kernel fails if the interpreter accepts it and the target, which must run on the host, throws or
// computes a different result.
lang::Kernel reduce(const lang::Kernel& kernel, Target target, const std::vector<Argument>& args,
                    ReduceOptions options = {});

}  // namespace tegula
TEGULA_API_END
