// The tables of sparse attention on a GPU, at realistic sizes: the same workloads as bench_cuda, compared
// with dense attention of the same heads.
#pragma once
#include <string>

namespace tegula::tool {

bool has_gpu_table(const std::string& name);
// `rivals` is a file of lines of bench/cuda/rivals.py; without it, dense attention is measured now, by cuDNN
// where Python has PyTorch, else by the library itself.
// Whether all samples are right.
bool print_gpu_table(const std::string& name, const std::string& rivals);

}  // namespace tegula::tool
