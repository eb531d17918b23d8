#include "options.hpp"

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>

#include "tegula/error.hpp"

namespace tegula::python {

namespace {

template <class T>
using Choices = std::span<const std::pair<std::string_view, T>>;

template <class T>
T choose(const char* option, std::string_view given, Choices<T> choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == given) return value;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  }
  std::string shown(given);
  for (std::size_t at = 0; (at = shown.find('\0', at)) != std::string::npos;) shown.replace(at, 1, "\\0");
  throw ArgumentError(fmt::format("{}: expected one of {}, given '{}'", option, names, shown));
}

constexpr std::pair<std::string_view, Target> targets[] = {{"automatic", Target::automatic()},
                                                           {"interpreter", Target::interpreter()},
                                                           {"cpu", Target::cpu()},
                                                           {"cuda", Target::cuda()},
                                                           {"cuda_sm80", Target::cuda_sm80()},
                                                           {"emulated", Target::emulated()},
                                                           {"emulated_sm90", Target::emulated_sm90()}};

}  // namespace

Target target_of(std::string_view name) { return choose<Target>("target", name, targets); }

}  // namespace tegula::python
