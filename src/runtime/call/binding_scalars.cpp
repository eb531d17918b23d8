// Numbers of a call, checked and converted to the types of a kernel's scalars.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

#include "runtime/call/binding.hpp"
#include "tegula/error.hpp"

namespace tegula {

namespace {

template <class... Args>
[[noreturn]] void refuse_scalar(fmt::format_string<Args...> text, Args&&... args) {
  throw ArgumentError(fmt::format(text, std::forward<Args>(args)...));
}

// The number as an integer within the type; nothing if it is none or does not fit.
std::optional<std::int64_t> as_integer(DType type, const Argument::Number& number) {
  std::int64_t result = 0;
  if (const auto* value = std::get_if<std::int64_t>(&number))
    result = *value;
  else if (const auto* natural = std::get_if<std::uint64_t>(&number)) {
    if (*natural > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    result = static_cast<std::int64_t>(*natural);
  } else
    return std::nullopt;
  const bool is_signed = type.kind() == Kind::integer;
  if (type.bits() < 64) {
    const std::int64_t above = std::int64_t{1} << (is_signed ? type.bits() - 1 : type.bits());
    if (result >= above || result < (is_signed ? -above : 0)) return std::nullopt;
  }
  return result;
}

std::optional<double> as_float(DType type, const Argument::Number& number) {
  double given = 0;
  if (const auto* real = std::get_if<double>(&number))
    given = *real;
  else if (const auto* value = std::get_if<std::int64_t>(&number))
    given = static_cast<double>(*value);
  else if (const auto* natural = std::get_if<std::uint64_t>(&number))
    given = static_cast<double>(*natural);
  else
    return std::nullopt;
  const double rounded = round_to(type, given);
  if (std::isfinite(given) && !std::isfinite(rounded)) return std::nullopt;
  return rounded;
}

std::string text_of(const Argument::Number& number) {
  return std::visit([](auto value) { return fmt::format("{}", value); }, number);
}

}  // namespace

ir::Value Signature::checked_scalar(const ir::Variable& variable, const Argument& arg) const {
  const DType type = variable.type;
  const std::string place = fmt::format("kernel '{}', argument '{}'", kernel_->name, variable.name);
  if (arg.number() == nullptr) {
    refuse_scalar("{} is a {} number, but the tensor {} is given; pass a number", place, type.name(),
                  describe(*arg.tensor()));
  }
  const Argument::Number& number = *arg.number();
  if (type.is_boolean()) {
    if (const bool* value = std::get_if<bool>(&number)) return ir::truth_value(*value);
    refuse_scalar("{} is a bool, but the number {} is given; pass true or false", place, text_of(number));
  }
  if (type.is_floating()) {
    if (const auto real = as_float(type, number)) return ir::float_value(compute_type(type), *real);
    refuse_scalar("{} is a number of type {}, but {} is given, which is not a number or is too large for it",
                  place, type.name(), text_of(number));
  }
  if (const auto integer = as_integer(type, number)) return ir::integer_value(compute_type(type), *integer);
  refuse_scalar(
      "{} is an integer of type {}, but {} is given, which is not an integer or is out of range; convert it",
      place, type.name(), text_of(number));
}

}  // namespace tegula
