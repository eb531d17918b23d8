// Machines as data: what their makers state of dense rates, and what memory and caches were seen to reach.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/machine/processors.hpp"
#include "tegula/analyze.hpp"
#include "tegula/error.hpp"

namespace tegula {

namespace {

constexpr double tera = 1e12;

Machine hopper(const char* name, const char* words, double memory_bytes) {
  return {.name = name,
          .words = words,
          .architecture = 90,
          .processors = 132,
          .flops_8 = 1979 * tera,
          .flops_16 = 989 * tera,
          .flops_32 = 67 * tera,
          .other_flops = 67 * tera,
          .special_functions = 4.2 * tera,  // 16 a cycle of a processor, of which multiply-adds are 256
          .memory_bytes = memory_bytes,
          .l2_bytes = 9 * tera,  // grouped products of 128 x 256 reach 771 TFLOPS, which read so much
          .shared_bytes = 233472,
          .registers = 65536,
          .threads = 2048,
          .blocks = 32,
          .launch_seconds = 3e-6};
}

// Two products of eight floats a cycle, and a share of what one memory brings.
Machine this_cpu() {
  const int processors = processors_of({});
  const double flops = processors * 3e9 * 32;
  return {.name = "cpu",
          .words = "this machine, by the number of its processors",
          .is_gpu = false,
          .architecture = 0,
          .processors = processors,
          .flops_16 = 0,
          .flops_32 = flops,
          .other_flops = flops / 4,
          .special_functions = flops / 64,
          .memory_bytes = 20e9,
          .l2_bytes = processors * 50e9,
          .shared_bytes = 0,
          .registers = 0,
          .threads = 1,
          .blocks = 1,
          .launch_seconds = 1e-6};
}

}  // namespace

const std::vector<Machine>& machines() {
  static const std::vector<Machine> all{hopper("h100", "H100 SXM, 80 GB", 3.35 * tera),
                                        hopper("h200", "H200 SXM, 141 GB", 4.8 * tera),
                                        {.name = "a100",
                                         .words = "A100 SXM, 80 GB",
                                         .architecture = 80,
                                         .processors = 108,
                                         .flops_8 = 0,
                                         .flops_16 = 312 * tera,
                                         .flops_32 = 19.5 * tera,
                                         .other_flops = 19.5 * tera,
                                         .special_functions = 2.4 * tera,
                                         .memory_bytes = 2.04 * tera,
                                         .l2_bytes = 4 * tera,
                                         .shared_bytes = 167936,
                                         .registers = 65536,
                                         .threads = 2048,
                                         .blocks = 32,
                                         .launch_seconds = 3e-6},
                                        this_cpu()};
  return all;
}

const Machine& machine(const std::string& name) {
  std::vector<std::string> names;
  for (const Machine& own : machines()) {
    if (own.name == name) return own;
    names.push_back(own.name);
  }
  throw ArgumentError(fmt::format("there is no machine '{}'; there are {}", name, fmt::join(names, ", ")));
}

}  // namespace tegula
