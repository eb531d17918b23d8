#include "runtime/machine/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "tegula/error.hpp"

namespace tegula {
namespace {

// In the order of the enumeration.
constexpr VariableInfo table[] = {
    {Variable::target, "TEGULA_TARGET", "the fastest for the tensors of a call",
     "the target that Target::automatic() selects: interpreter, cpu, cuda, cuda_sm80, emulated or "
     "emulated_sm90"},
    {Variable::num_threads, "TEGULA_NUM_THREADS", "the processors that the process may use",
     "number of threads that run the blocks of a grid on the CPU"},
    {Variable::isa, "TEGULA_ISA", "the best of this machine",
     "instruction set of CPU kernels: portable, avx2 or avx512; if it is set, products of bf16 do not use "
     "the tile registers of AMX or the instructions of AVX512-BF16, nor those of bytes the instructions of "
     "VNNI, nor tables of bytes those of VBMI"},
    {Variable::cxx, "TEGULA_CXX", "g++, c++ or clang++ on PATH",
     "C++ compiler for CPU kernels that are not built in; 'none' uses no compiler"},
    {Variable::cache_dir, "TEGULA_CACHE_DIR", "$XDG_CACHE_HOME/tegula or ~/.cache/tegula",
     "directory of compiled kernels; no other user may own it or write to it"},
    {Variable::cache_limit, "TEGULA_CACHE_LIMIT", "1G",
     "maximum size of that directory, for example 500M; beyond it, the least recently used kernels are "
     "removed"},
    {Variable::check, "TEGULA_CHECK", "0",
     "1: the first call of every compiled kernel also runs on the interpreter, and the results are compared; "
     "slow"},
    {Variable::interpreter_orders, "TEGULA_INTERPRETER_ORDERS", "3",
     "number of orders of blocks and parallel iterations that the interpreter runs and compares"},
    {Variable::interpreter_steps, "TEGULA_INTERPRETER_STEPS", "no limit",
     "number of statements after which the interpreter stops a kernel, in case a loop does not end"},
    {Variable::dump, "TEGULA_DUMP", "nothing is written",
     "'stderr' or a directory, to which the IR after every pass that changed a kernel and the kernel's notes "
     "are written, as well as texts that a compiler refused"},
    {Variable::cuda, "TEGULA_CUDA", "the system's libraries and /usr/local/cuda*",
     "directory of a CUDA toolkit, or of its libraries; 'none' disables CUDA"},
    {Variable::cuda_checks, "TEGULA_CUDA_CHECKS", "0",
     "1: kernels wait for random times at barriers and fail if a wait does not end; slow. 2: every thread, "
     "instead of one on behalf of many, signals that it has read or filled a slot, for compute-sanitizer's "
     "racecheck"},
    {Variable::cuda_lines, "TEGULA_CUDA_LINES", "0",
     "1: NVIDIA's profilers and debuggers show lines of the tile program instead of lines of generated code"},
    {Variable::plan, "TEGULA_PLAN", "the candidates with the shortest estimated time",
     "candidates that the plans of operators choose instead, as `tegula tune` prints them: attention.0=2"},
};

std::string refusal(const VariableInfo& variable, std::string_view value, std::string_view rule) {
  return fmt::format("{}={}: {} ({})", variable.name, value, rule, variable.meaning);
}

}  // namespace

std::span<const VariableInfo> variables() { return table; }

const VariableInfo& info(Variable variable) { return table[static_cast<int>(variable)]; }

std::string describe_variables() {
  std::size_t width = 0;
  for (const VariableInfo& row : table) width = std::max(width, row.name.size());
  std::string text;
  for (const VariableInfo& row : table) {
    text += fmt::format("{:<{}}  {} (default: {})\n", row.name, width, row.meaning, row.fallback);
  }
  return text;
}

std::optional<std::string> environment(Variable variable) {
  const char* value = std::getenv(std::string(info(variable).name).c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::int64_t> environment_integer(Variable variable, std::int64_t low, std::int64_t high) {
  const std::optional<std::string> text = environment(variable);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    throw ArgumentError(
        refusal(info(variable), *text, fmt::format("must be an integer between {} and {}", low, high)));
  }
  return value;
}

std::optional<std::uint64_t> environment_bytes(Variable variable) {
  const std::optional<std::string> text = environment(variable);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  const std::string_view suffix(stop, end);
  constexpr std::string_view suffixes = "KMGT";
  const std::size_t power = suffix.empty() ? 0 : suffixes.find(suffix.front()) + 1;
  const std::uint64_t unit = 1ull << 10 * power;
  const bool known = suffix.empty() || (suffix.size() == 1 && power > 0);
  if (error != std::errc() || !known || value > std::numeric_limits<std::uint64_t>::max() / unit) {
    throw ArgumentError(
        refusal(info(variable), *text, "must be a number of bytes, optionally with a suffix K, M, G or T"));
  }
  return value * unit;
}

std::optional<Target> environment_target() {
  const std::optional<std::string> name = environment(Variable::target);
  if (!name || *name == Target::automatic().name()) return std::nullopt;
  const std::optional<Target> target = Target::named(*name);
  if (target) return target;
  throw ArgumentError(refusal(
      info(Variable::target), *name,
      "must be one of automatic, interpreter, cpu, cuda, cuda_sm80, emulated and emulated_sm90, or unset"));
}

}  // namespace tegula
