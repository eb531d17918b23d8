#include "sparse_tables.hpp"

#include <fmt/format.h>

#include <map>

#include "bench/cuda/measure.hpp"

namespace tegula::tool {

namespace {

using Workloads = std::vector<bench::Workload>;

constexpr char of_blocks[] = " group ";  // in the names of gradients

Workloads named(Workloads from, const std::string& part) {
  std::erase_if(
      from, [&](const bench::Workload& workload) { return workload.name.find(part) == std::string::npos; });
  return from;
}

Workloads joined(Workloads first, const Workloads& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

const std::map<std::string, Workloads (*)()>& tables() {
  static const std::map<std::string, Workloads (*)()> all{
      {"nsa", bench::nsa_workloads},
      {"nsa_selected_attention", [] { return named(bench::nsa_workloads(), "nsa bf16"); }},
      {"nsa_selected_attention_backward", [] { return named(bench::nsa_workloads(), "nsa backward"); }},
      {"block_sparse_attention",
       [] { return joined(bench::sparse_workloads(), named(bench::backward_workloads(), of_blocks)); }},
      {"block_sparse_attention_backward", [] { return named(bench::backward_workloads(), of_blocks); }}};
  return all;
}

void print_row(const std::string& name, const bench::Measured& row) {
  if (!row.failure.empty()) return fmt::print("{:<56} {}\n", name, row.failure);
  std::string facts;
  for (const auto& [what, value] : row.facts) facts += fmt::format("  {} {:.3g}", what, value);
  fmt::print("{:<56} {:>9.3f} {:>9.3f} {:>9.3f} {:>8.1f}  {}{}\n", name, row.ms, row.p20, row.p80, row.tflops,
             row.right ? "right" : fmt::format("WRONG by {:.3g}", row.error), facts);
}

}  // namespace

bool has_gpu_table(const std::string& name) { return tables().contains(name); }

void print_gpu_table(const std::string& name) {
  fmt::print("{:<56} {:>9} {:>9} {:>9} {:>8}  {}\n", "on the GPU", "ms", "20 %", "80 %", "TFLOPS", "sample");
  for (const bench::Workload& workload : tables().at(name)()) {
    print_row(workload.name, bench::measure(workload));
    std::fflush(stdout);
  }
}

}  // namespace tegula::tool
