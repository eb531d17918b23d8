// Measures operators on a GPU: one line of JSON a workload. With words, only the workloads whose names have
// one of them.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cuda/gpu.hpp"
#include "cuda/timing.hpp"
#include "workloads.hpp"

namespace {

using namespace tegula;

constexpr double most_error = 2e-2;    // of a sample: rounding of bf16
constexpr double budget_ms = 1000;     // of a workload
constexpr double hopeless_ms = 20000;  // of one call, beyond which it is not repeated

double at(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1,
                         static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

nlohmann::json measure(const bench::Workload& workload) {
  nlohmann::json line{{"workload", workload.name}};
  try {
    const bench::Workload::Ready ready = workload.prepare();
    const Stream stream = Stream::of_default();
    const double first = cuda::milliseconds_of(stream, 1, ready.call).front();
    const double error = ready.error();
    const int rounds = first > hopeless_ms ? 1 : std::clamp(static_cast<int>(budget_ms / first), 3, 30);
    std::vector<double> times = cuda::milliseconds_of(stream, rounds, ready.call);
    std::sort(times.begin(), times.end());
    const double median = at(times, 0.5);
    line.update({{"ms", median},
                 {"p20", at(times, 0.2)},
                 {"p80", at(times, 0.8)},
                 {"tflops", (ready.flops > 0 ? ready.flops : workload.flops) / median / 1e9},
                 {"error", error},
                 {"right", error < most_error}});
    for (const auto& [what, value] : ready.facts) line[what] = value;
  } catch (const std::exception& failure) { line["failure"] = failure.what(); }
  return line;
}

bool is_wanted(const std::string& name, int count, char** words) {
  for (int i = 1; i < count; ++i) {
    if (name.find(words[i]) != std::string::npos) return true;
  }
  return count == 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda_device_count() == 0) {
    std::fprintf(stderr, "bench_cuda: this machine has no CUDA device\n");
    return 1;
  }
  for (const auto& list : {bench::workloads(), bench::backward_workloads(), bench::nsa_workloads(),
                           bench::sparse_workloads(), bench::memory_workloads()}) {
    for (const bench::Workload& workload : list) {
      if (!is_wanted(workload.name, argc, argv)) continue;
      std::printf("%s\n", measure(workload).dump().c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}
