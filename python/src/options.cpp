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

constexpr std::pair<std::string_view, ops::Layout> layouts[] = {{"bshd", ops::Layout::bshd},
                                                                {"bhsd", ops::Layout::bhsd}};
constexpr std::pair<std::string_view, ops::Activation> activations[] = {{"none", ops::Activation::none},
                                                                        {"relu", ops::Activation::relu},
                                                                        {"gelu", ops::Activation::gelu},
                                                                        {"silu", ops::Activation::silu}};
constexpr std::pair<std::string_view, Target> targets[] = {{"automatic", Target::automatic()},
                                                           {"interpreter", Target::interpreter()},
                                                           {"cpu", Target::cpu()},
                                                           {"cuda", Target::cuda()}};
constexpr std::pair<std::string_view, DType> dtypes[] = {
    {"float32", f32}, {"float16", f16}, {"bfloat16", bf16}};

}  // namespace

ops::Layout layout_of(std::string_view name) { return choose<ops::Layout>("layout", name, layouts); }
ops::Activation activation_of(std::string_view name) {
  return choose<ops::Activation>("activation", name, activations);
}
Target target_of(std::string_view name) { return choose<Target>("target", name, targets); }
DType dtype_of_name(std::string_view name) { return choose<DType>("out_dtype", name, dtypes); }

}  // namespace tegula::python
