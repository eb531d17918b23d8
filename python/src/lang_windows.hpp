// Windows of tensors, whose functions take offsets one by one.
#pragma once
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "lang.hpp"

namespace tegula::python::language {

inline constexpr std::size_t most_dimensions = 8;

// Calls of functions whose number of arguments C++ must know.
template <class F, std::size_t... counts>
auto with_count(std::size_t count, F&& function, std::index_sequence<counts...>) {
  using Result = decltype(function(std::integral_constant<std::size_t, 1>()));
  std::optional<Result> result;
  ((count == counts + 1 ? (result.emplace(function(std::integral_constant<std::size_t, counts + 1>())), 0)
                        : 0),
   ...);
  return std::move(*result);
}
template <class F>
auto with_count(const char* what, std::size_t count, F&& function) {
  if (count < 1 || count > most_dimensions)
    throw nb::type_error(
        fmt::format("{}: expected 1 to {} values, given {}", what, most_dimensions, count).c_str());
  return with_count(count, function, std::make_index_sequence<most_dimensions>());
}

template <class T>
auto window_of(const T& tensor, const std::vector<lang::Operand>& offsets) {
  return with_count("at()", offsets.size(), [&](auto count) {
    return [&]<std::size_t... i>(std::index_sequence<i...>) { return tensor.at(offsets[i]...); }
    (std::make_index_sequence<count>());
  });
}

}  // namespace tegula::python::language
