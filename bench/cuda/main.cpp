// Measures operators on a GPU: one line of JSON a workload. With words, only the workloads whose names have
// one of them. Exit status 1 if a sample of results is wrong or a workload failed.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "measure.hpp"
#include "tegula/stream.hpp"

namespace {

using namespace tegula;

nlohmann::json line_of(const bench::Workload& workload, const bench::Measured& measured) {
  nlohmann::json line{{"workload", workload.name}};
  if (!measured.failure.empty()) {
    line["failure"] = measured.failure;
    return line;
  }
  line.update({{"ms", measured.ms},
               {"p20", measured.p20},
               {"p80", measured.p80},
               {"tflops", measured.tflops},
               {"error", measured.error},
               {"right", measured.right}});
  if (measured.nominal > 0) line["nominal"] = measured.nominal;
  for (const auto& [what, value] : measured.facts) line[what] = value;
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
  bool all_right = true;
  for (const auto& list : {bench::workloads(), bench::backward_workloads(), bench::nsa_workloads(),
                           bench::sparse_workloads(), bench::memory_workloads()}) {
    for (const bench::Workload& workload : list) {
      if (!is_wanted(workload.name, argc, argv)) continue;
      const bench::Measured measured = bench::measure(workload);
      std::printf("%s\n", line_of(workload, measured).dump().c_str());
      std::fflush(stdout);
      all_right &= measured.right;
    }
  }
  return all_right ? 0 : 1;
}
