#include "codegen/cuda/arithmetic.hpp"

#include <fmt/format.h>

namespace tegula::codegen {

std::string digit_text(const std::string& number, std::int64_t step, std::int64_t extent,
                       std::int64_t count) {
  const std::string text = step == 1 ? number : fmt::format("{} / {}", number, step);
  return step * extent == count ? text : fmt::format("{} % {}", text, extent);
}

std::string both(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + " && " + b;
}

std::string times(const std::string& text, std::int64_t factor) {
  return factor == 1 ? text : fmt::format("{} * {}", text, factor);
}

std::string plus(const std::string& text, std::int64_t offset) { return plus(text, std::to_string(offset)); }

std::string plus(const std::string& text, const std::string& offset) {
  if (offset == "0") return text;
  return text == "0" ? offset : fmt::format("{} + {}", text, offset);
}

}  // namespace tegula::codegen
