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

// What a machine reaches when one thing limits it. Rates are per second; those of products are for dense
// operands of 8, 16 and 32 bits, and 0 stands for the rate of the next wider one.
struct Machine {
  std::string name, words;
  bool is_gpu = true;
  int architecture = 90;  // of a GPU: the instructions of its programs
  int processors = 1;
  double flops_8 = 0, flops_16 = 0, flops_32 = 0;  // of products
  double other_flops = 0;                          // of everything else, in f32
  double memory_bytes = 0, l2_bytes = 0;
  std::int64_t shared_bytes = 0;  // of a processor
  int registers = 0, threads = 0, blocks = 0;
  double launch_seconds = 0;
};
// h100, h200, a100 and cpu, this machine with rough rates by its processors. A program may have others of its
// own.
const std::vector<Machine>& machines();
// An ArgumentError lists the names.
const Machine& machine(const std::string& name);

struct Analysis {
  struct Grid {
    std::string name;  // kernel_grid
    double blocks = 0;
    int threads = 0, blocks_per_processor = 1;
    std::int64_t shared_bytes = 0;
    double waves = 0;  // of blocks, one after the other: 1.1 is nearly as slow as 2
    double seconds = 0;
    std::string bound;  // products, other arithmetic, memory, second-level cache or launch
  };
  std::map<std::string, double> flops;  // of products by the type of their operands, and "other" operations
  double memory_bytes = 0;              // every tensor read or written once
  double copied_bytes = 0;              // that blocks read and write: of the second-level cache
  double intensity = 0;                 // operations for a byte of memory
  std::vector<Grid> grids;
  std::string bound;  // of the grid that takes longest
  double seconds = 0;
  // What was not known and how it was taken: loops that depend on the elements of tensors count as one step.
  std::vector<std::string> notes;

  std::string text() const;
};

// `extents` are the values of the kernel's dims and scalars by name; an ArgumentError names those that are
// missing.
Analysis analyze(const lang::Kernel& kernel, const std::map<std::string, double>& extents,
                 const Machine& machine);

}  // namespace tegula
TEGULA_API_END
