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
     "what Target::automatic() stands for: interpreter, cpu, cuda, cuda_sm80, emulated or emulated_sm90"},
    {Variable::num_threads, "TEGULA_NUM_THREADS", "the processors that the process may use",
     "threads that run the blocks of a grid on the CPU"},
    {Variable::isa, "TEGULA_ISA", "the best of this machine",
     "instruction set of CPU kernels: portable, avx2 or avx512"},
    {Variable::cxx, "TEGULA_CXX", "g++, c++ or clang++ on PATH",
     "C++ compiler for CPU kernels that are not built in; 'none' does without"},
    {Variable::cache_dir, "TEGULA_CACHE_DIR", "$XDG_CACHE_HOME/tegula or ~/.cache/tegula",
     "directory of compiled kernels; nobody else may own it or write to it"},
    {Variable::cache_limit, "TEGULA_CACHE_LIMIT", "1G",
     "size of that directory, as in 500M, beyond which the least recently used kernels are removed"},
    {Variable::check, "TEGULA_CHECK", "0",
     "1: the first call of every compiled kernel runs on the interpreter, too, and the results are compared; "
     "slow"},
    {Variable::interpreter_orders, "TEGULA_INTERPRETER_ORDERS", "3",
     "how many orders of blocks and parallel iterations the interpreter tries and compares"},
    {Variable::interpreter_steps, "TEGULA_INTERPRETER_STEPS", "no limit",
     "statements after which the interpreter gives a kernel up, against loops that do not end"},
    {Variable::dump, "TEGULA_DUMP", "nothing is written",
     "'stderr', or a directory: the IR after every pass that changed a kernel is written there, and its "
     "notes; the texts that a compiler refuses are kept as well"},
    {Variable::cuda, "TEGULA_CUDA", "the system's libraries and /usr/local/cuda*",
     "directory of a CUDA toolkit, or of its libraries; 'none' does without CUDA"},
    {Variable::cuda_checks, "TEGULA_CUDA_CHECKS", "0",
     "1: kernels wait by lot at every barrier, and fail where a wait does not end; slow. 2: every "
     "thread, not one for many, says that it has read or filled a slot, for compute-sanitizer's racecheck"},
    {Variable::cuda_lines, "TEGULA_CUDA_LINES", "0",
     "1: NVIDIA's profilers and debuggers show the lines of the tile program in place of those of printed "
     "text"},
    {Variable::plan, "TEGULA_PLAN", "the candidates with the least estimated time",
     "what operators' plans choose instead, as `tegula tune` prints it: attention.0=2"},
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
        refusal(info(variable), *text, "must be a number of bytes, with K, M, G or T if wished"));
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
