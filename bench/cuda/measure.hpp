// A workload measured: how long it takes, and whether a sample of its results is right.
#pragma once
#include <map>
#include <string>

#include "workloads.hpp"

namespace tegula::bench {

struct Measured {
  double ms = 0, p20 = 0, p80 = 0;  // of rounds by events, each after other memory was written
  double tflops = 0, nominal = 0, error = 0;
  bool right = false;
  std::map<std::string, double> facts;
  std::string failure;  // the reason, if there is no result
};

Measured measure(const Workload& workload);

}  // namespace tegula::bench
