// The times of other libraries for the GPU workloads, as measured by bench/cuda/rivals.py.
#pragma once
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

namespace tegula::tool {

struct GpuRival {
  double ms = 0, tflops = 0;
};
using GpuRivals = std::map<std::string, GpuRival>;  // by the names of workloads

// From lines of JSON; others, and those of workloads that failed, are passed over.
GpuRivals read_gpu_rivals(std::istream& lines);
// Measures those whose names have one of the words now; none where Python has no PyTorch.
GpuRivals measure_gpu_rivals(const std::vector<std::string>& words);

}  // namespace tegula::tool
