// Source texts that are built into the library, so that generated code can be compiled anywhere.
#pragma once
#include <string_view>
#include <vector>

namespace tegula::embedded {

struct File {
  std::string_view name;
  std::string_view text;
};

// The headers that printed CPU kernels include (src/device/cpu).
const std::vector<File>& cpu_headers();
// Those of printed CUDA kernels (src/device/cuda).
const std::vector<File>& cuda_headers();
// What takes the place of some of those where kernels for a GPU run on the CPU (src/device/emulation).
const std::vector<File>& emulation_headers();
// What the shared library of kernels compiled ahead of time is made of (src/device/bundle).
const std::vector<File>& bundle_headers();

}  // namespace tegula::embedded
