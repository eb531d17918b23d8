// What is measured on a GPU: the operators at the sizes of practice, each with a sample of its results
// compared with the formula.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace tegula::bench {

// The larger of two errors; one that is no number, as of an element that was not written, is larger than all.
inline double worse(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<double>::infinity() : std::max(a, b);
}

struct Workload {
  std::string name;  // as rivals.py calls it
  double flops = 0;
  // Prepares the inputs; the result queues one call, and `error` then says how far the sample is from right.
  struct Ready {
    std::function<void()> call;
    std::function<double()> error;
    double flops = 0;                          // where they are known only now
    double nominal = 0;                        // the same if no key of a chosen block were masked, or 0
    std::map<std::string, double> facts = {};  // printed beside the result
  };
  std::function<Ready()> prepare;
};

std::vector<Workload> workloads();
std::vector<Workload> backward_workloads();
std::vector<Workload> nsa_workloads();
std::vector<Workload> sparse_workloads();
std::vector<Workload> memory_workloads();

}  // namespace tegula::bench
