// Measures the library on this machine and prints docs/performance.md, as scripts/bench asks for it.
#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "sections.hpp"

namespace {

using namespace tegula::bench;

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

void heading() {
  fmt::print(
      "# Performance\n\nWritten by `scripts/bench`; do not edit. The [performance log](performance-log.md) "
      "says what "
      "was tried, and which [rows are short of their bar](performance-log.md#rows-short-of-the-bar).\n\n"
      "Machine: {}, {} processors; compiler {}. All processors are used. Inputs are random. Every result is "
      "compared with a formula in double precision before it is timed. Compared programs alternate: in every "
      "round, each runs once untimed and once timed. Times are medians over rounds, and ratios are medians "
      "of the ratios of the rounds.\n\n",
      processor(), std::thread::hardware_concurrency(), __VERSION__);
}

int usage() {
  fmt::print(stderr,
             "usage: bench_library all | gemm | attention | sparse | memory | calls | compile-times\n");
  return 2;
}

int run(const std::string& what, const char* number) {
  const bool all = what == "all";
  if (what == "memory-of" && number) return memory_of_attention(std::atoi(number)), 0;
  if (what == "first-call") return time_to_call(), 0;
  if (what == "compile" && number) return time_to_compile(std::atoi(number)), 0;
  constexpr std::pair<const char*, void (*)()> sections[] = {
      {"gemm", gemm_section},     {"attention", attention_section}, {"sparse", sparse_section},
      {"memory", memory_section}, {"calls", calls_section},         {"compile-times", compile_section}};
  bool known = all;
  for (const auto& [name, section] : sections) known = known || what == name;
  if (!known) return usage();
  if (all) heading();
  for (const auto& [name, section] : sections)
    if (all || what == name) section();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : nullptr);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_library: {}\n", error.what());
    return 1;
  }
}
