#include "sparse_tables.hpp"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <optional>

#include "bench/cuda/measure.hpp"
#include "gpu_rivals.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

using Workloads = std::vector<bench::Workload>;

constexpr char of_blocks[] = " group ";  // in the names of gradients
// Dense attention of the heads of the workloads: whose rate those of blocks are compared with.
constexpr char dense_rate[] = "attention bf16 1x16384x64x128 full group 8";
// And whose time those of tokens.
struct DenseTime {
  const char *dense, *rows;
};
constexpr DenseTime dense_times[] = {
    {"attention bf16 1x8192x64x128 causal group 16", "nsa bf16 8192x64x4x128"},
    {"attention bf16 1x8192x16x128 causal group 4", "nsa bf16 8192x16x4x128"}};

Workloads named(Workloads from, const std::string& word) {
  std::erase_if(
      from, [&](const bench::Workload& workload) { return workload.name.find(word) == std::string::npos; });
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

std::vector<std::string> dense_names(const std::string& table) {
  if (table.find("block_sparse") == 0) return {dense_rate};
  std::vector<std::string> names;
  for (const DenseTime& time : dense_times) names.emplace_back(time.dense);
  return names;
}

// With our own dense attention in the place of what was not measured otherwise.
GpuRivals with_own(GpuRivals rivals, const std::vector<std::string>& names, std::string& whose) {
  for (const std::string& name : names) {
    if (rivals.contains(name)) continue;
    whose = "Tegula's";
    for (const bench::Workload& workload : named(bench::workloads(), name)) {
      const bench::Measured own = bench::measure(workload);
      if (own.failure.empty()) rivals[name] = {own.ms, own.tflops};
    }
  }
  return rivals;
}

GpuRivals rivals_of(const std::string& table, const std::string& file, std::string& whose) {
  const std::vector<std::string> names = dense_names(table);
  whose = "cuDNN's";
  if (file.empty()) return with_own(measure_gpu_rivals(names), names, whose);
  std::ifstream lines(file);
  if (!lines)
    throw ArgumentError(fmt::format("bench: {}: cannot be read; give a file of lines of rivals.py", file));
  return with_own(read_gpu_rivals(lines), names, whose);
}

// For a forward: the rate relative to dense attention or, if tokens select, the time of dense attention
// divided by ours.
std::optional<double> ratio_of(const std::string& name, const bench::Measured& row, const GpuRivals& rivals) {
  if (name.find("block sparse") == 0) {
    const auto dense = rivals.find(dense_rate);
    return dense == rivals.end() ? std::nullopt : std::optional(row.tflops / dense->second.tflops);
  }
  for (const DenseTime& time : dense_times) {
    const auto dense = rivals.find(time.dense);
    if (name.find(time.rows) == 0 && dense != rivals.end()) return dense->second.ms / row.ms;
  }
  return std::nullopt;
}

std::string or_dash(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

void print_row(const std::string& name, const bench::Measured& row, const GpuRivals& rivals) {
  if (!row.failure.empty()) return fmt::print("{:<58} {}\n", name, row.failure);
  std::string facts;
  for (const auto& [what, value] : row.facts) facts += fmt::format("  {} {:.3g}", what, value);
  const auto rival = rivals.find(name);
  if (rival != rivals.end())
    facts += fmt::format("  rival {:.3f} ms, {:.1f} TFLOPS", rival->second.ms, rival->second.tflops);
  const std::optional<double> nominal = row.nominal > 0 ? std::optional(row.nominal) : std::nullopt;
  fmt::print("{:<58} {:>9.3f} {:>9.3f} {:>9.3f} {:>8.1f} {:>8} {:>7}  {}{}\n", name, row.ms, row.p20, row.p80,
             row.tflops, or_dash(nominal, 1), or_dash(ratio_of(name, row, rivals), 3),
             row.right ? "right" : fmt::format("WRONG by {:.3g}", row.error), facts);
}

}  // namespace

bool has_gpu_table(const std::string& name) { return tables().contains(name); }

bool print_gpu_table(const std::string& name, const std::string& rivals) {
  std::string whose;
  const GpuRivals known = rivals_of(name, rivals, whose);
  fmt::print("{:<58} {:>9} {:>9} {:>9} {:>8} {:>8} {:>7}  {}\n", "on the GPU", "ms", "20 %", "80 %", "TFLOPS",
             "nominal", "x dense", "sample");
  for (const std::string& dense : dense_names(name)) {
    if (!known.contains(dense)) continue;
    fmt::print("{:<58} {:>9.3f} {:>19} {:>8.1f}  dense, {}\n", dense, known.at(dense).ms, "",
               known.at(dense).tflops, whose);
  }
  bool all_right = true;
  for (const bench::Workload& workload : tables().at(name)()) {
    const bench::Measured measured = bench::measure(workload);
    print_row(workload.name, measured, known);
    std::fflush(stdout);
    all_right &= measured.right;
  }
  return all_right;
}

}  // namespace tegula::tool
