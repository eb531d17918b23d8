// The environment variables of Tegula; nothing else reads them.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tegula/runtime.hpp"

namespace tegula {

enum class Variable {
  target,
  num_threads,
  isa,
  cxx,
  cache_dir,
  cache_limit,
  check,
  interpreter_orders,
  interpreter_steps,
  dump,
  cuda,
  cuda_checks,
  cuda_lines,
  plan,
};

struct VariableInfo {
  Variable variable;
  std::string_view name;      // TEGULA_NUM_THREADS
  std::string_view fallback;  // what holds when it is unset, in words
  std::string_view meaning;
};

// All variables, for documentation and help texts.
std::span<const VariableInfo> variables();
const VariableInfo& info(Variable variable);
// The table as text, one variable a line.
std::string describe_variables();

// The value, or nothing if it is unset or empty. Read anew at each call.
std::optional<std::string> environment(Variable variable);
// The value as an integer within [low, high]; anything else is an ArgumentError.
std::optional<std::int64_t> environment_integer(Variable variable, std::int64_t low, std::int64_t high);
// The value as a number of bytes with an optional suffix K, M, G or T (powers of 1024).
std::optional<std::uint64_t> environment_bytes(Variable variable);

// What TEGULA_TARGET says that Target::automatic() stands for; nothing if it is unset or says `automatic`.
// Another name is an ArgumentError that lists the names.
std::optional<Target> environment_target();

}  // namespace tegula
