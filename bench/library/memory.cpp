#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "child.hpp"
#include "sections.hpp"
#include "tegula/ops.hpp"

namespace tegula::bench {
namespace {

constexpr double mib = 1024 * 1024;
constexpr std::int64_t heads = 8, dim = 64;

double peak_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmHWM:", 0) == 0) return std::stod(line.substr(6)) / 1024;
  return -1;
}

}  // namespace

void memory_of_attention(int tokens) {
  const Tensor q = Tensor::random_normal({1, tokens, heads, dim}, f32, 1);
  const Tensor k = Tensor::random_normal({1, tokens, heads, dim}, f32, 2);
  const Tensor v = Tensor::random_normal({1, tokens, heads, dim}, f32, 3);
  // A window bounds the time of long sequences; its kernel and that of all keys hold the same tiles.
  ops::AttentionOptions options;
  options.left = std::min(tokens, 4096), options.right = 0, options.target = Target::cpu();
  const ops::AttentionResult result = ops::attention(q, k, v, options);
  const auto tensors =
      double(q.nbytes() + k.nbytes() + v.nbytes() + result.out.nbytes() + result.lse.nbytes());
  fmt::print("{}\n", peak_mib() - tensors / mib);
}

void memory_section() {
  fmt::print(
      "## Memory\n\n`attention`, {} heads, D = {}, f32, a window of 4096 keys: peak resident memory "
      "(VmHWM) of a fresh process minus inputs and outputs, including program and libraries. The aim is at "
      "most 64 MiB for any S.\n\n| S | inputs and outputs, MiB | all else, MiB |\n|---|---|---|\n",
      heads, dim);
  for (int tokens : {1024, 4096, 16384, 65536}) {
    number_from_child({"memory-of", std::to_string(tokens)});  // compiles, where that is needed
    fmt::print("| {} | {:.0f} | {:.1f} |\n", tokens, double(tokens) * heads * (4 * dim + 1) * 4 / mib,
               number_from_child({"memory-of", std::to_string(tokens)}));
  }
  fmt::print("\n");
}

}  // namespace tegula::bench
