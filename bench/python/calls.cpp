// The calls of calls.py in C++, as its rival. Reads the name of an operator from each line of the standard
// input, calls it a hundred times, and writes the microseconds of one call: processor time of the thread, or
// on a GPU the time until the call returns. The target bench_calls, of a build with TEGULA_BENCHMARKS.
#include <ctime>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "tegula/tegula.hpp"

namespace {

using Calls = std::map<std::string, std::function<void()>>;

Calls make_calls(const tegula::Device& device) {
  namespace ops = tegula::ops;
  const auto zeros = [&](const tegula::Shape& shape, tegula::DType type) {
    return tegula::Tensor::zeros(shape, type).to(device);
  };
  const auto q = zeros({1, 4, 1, 16}, tegula::f32), a = zeros({4, 16}, tegula::f32);
  const auto blocks = zeros({1, 1, 1, 1}, tegula::i32), tokens = zeros({1, 4, 1, 1}, tegula::i32);
  const auto [out, lse] = ops::attention(q, q, q);
  return {
      {"attention", [=] { ops::attention(q, q, q); }},
      {"attention_backward", [=, out = out, lse = lse] { ops::attention_backward(out, q, q, q, out, lse); }},
      {"block_sparse_attention", [=] { ops::block_sparse_attention(q, q, q, 64, 64, blocks); }},
      {"nsa_selected_attention", [=] { ops::nsa_selected_attention(q, q, q, tokens); }},
      {"gemm", [=] { ops::gemm(a, a, {.transpose_b = true}); }},
      {"rms_norm", [=] { ops::rms_norm(a); }}};
}

double microseconds(bool on_gpu) {
  timespec now{};
  clock_gettime(on_gpu ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

}  // namespace

int main(int argc, char** argv) {
  const bool on_gpu = argc > 1 && std::string(argv[1]) == "cuda";
  const Calls calls = make_calls(on_gpu ? tegula::Device::cuda() : tegula::Device::cpu());
  constexpr int repetitions = 100;
  for (std::string name; std::getline(std::cin, name);) {
    const std::function<void()>& call = calls.at(name);
    if (on_gpu) tegula::synchronize();
    const double begin = microseconds(on_gpu);
    for (int i = 0; i < repetitions; ++i) call();
    std::cout << (microseconds(on_gpu) - begin) / repetitions << std::endl;
  }
}
