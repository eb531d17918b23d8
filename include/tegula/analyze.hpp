// The operations and bytes of a kernel for given extents, and the least time that a machine needs for them.
// Nothing runs, and no GPU is needed.
//
//   const Analysis a = analyze(gemm, {{"M", 4096}, {"N", 4096}, {"K", 4096}}, machine("h100"));
//   std::puts(a.text().c_str());
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tegula/lang/kernel.hpp"

TEGULA_API_BEGIN
namespace tegula {

// The limits of a machine. Rates are per second; those of products are for dense operands of 8, 16 and 32
// bits, where 0 means the rate of the next wider type.
struct Machine {
  std::string name, words;
  bool is_gpu = true;
  int architecture = 90;  // of a GPU: the instruction set of its code
  int processors = 1;
  double flops_8 = 0, flops_16 = 0, flops_32 = 0;  // of products
  double other_flops = 0;                          // of everything else, in f32
  double special_functions = 0;                    // exponentials, logarithms, roots, reciprocals …
  double memory_bytes = 0, l2_bytes = 0;
  std::int64_t shared_bytes = 0;  // per processor
  int registers = 0, threads = 0, blocks = 0;
  double launch_seconds = 0;

  // Operations per second on operands of that type, or "other" or "special": names as in Analysis::flops.
  double rate_of(const std::string& type) const;
};
// h100, h200, a100 and cpu, which is this machine with rough rates derived from its number of processors.
// Programs may define others.
const std::vector<Machine>& machines();
// Throws an ArgumentError that lists the names if there is no such machine.
const Machine& machine(const std::string& name);

struct Analysis {
  struct Grid {
    std::string name;  // kernel_grid
    double blocks = 0;
    int threads = 0, blocks_per_processor = 1;
    // Of a thread, at least: those that hold fragments where most are alive, and some to work with.
    int registers = 0;
    std::int64_t shared_bytes = 0;
    double occupancy = 0;  // threads on a processor, as a share of those that it can hold
    double waves = 0;      // rounds of resident blocks: 1.1 waves are nearly as slow as 2
    double seconds = 0;
    std::string bound;  // products, special functions, other arithmetic, memory, second-level cache or launch
  };
  std::string kernel;
  Machine machine;
  // Products by operand type, of f32 also tf32 and tf32x3; "special" functions and "other" operations.
  std::map<std::string, double> flops;
  double memory_bytes = 0;  // with every tensor read or written once
  double copied_bytes = 0;  // read and written by blocks, through the second-level cache
  double intensity = 0;     // operations per byte of memory
  std::vector<Grid> grids;
  std::string bound;  // that of the slowest grid
  double seconds = 0;
  // What was unknown and which assumption was made: a loop whose length depends on tensor elements counts as
  // one step.
  std::vector<std::string> notes;

  std::string text() const;
};

// `extents` are the values of the kernel's dims and scalars by name. Throws an ArgumentError that names any
// that are missing.
Analysis analyze(const lang::Kernel& kernel, const std::map<std::string, double>& extents,
                 const Machine& machine);

}  // namespace tegula
TEGULA_API_END
