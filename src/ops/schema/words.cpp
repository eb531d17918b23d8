#include "ops/schema/words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tegula::ops {

std::string names_of(const std::vector<DType>& types) {
  std::string result;
  for (std::size_t i = 0; i < types.size(); ++i)
    result += (i == 0 ? "" : i + 1 == types.size() ? " or " : ", ") + std::string(types[i].name());
  return result;
}

std::string text_of(const DimList& list) {
  std::string result;
  for (const DimItem& item : list.items)
    result += (result.empty() ? "" : ", ") + (item.leading ? "..." : item.extent.text());
  return "[" + result + "]";
}

std::string text_of(const OptionValue& value) {
  struct {
    std::string operator()(std::monostate) const { return "nothing"; }
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(std::int64_t i) const { return std::to_string(i); }
    std::string operator()(double x) const { return fmt::format("{}", static_cast<float>(x)); }
    std::string operator()(const std::string& text) const { return text; }
  } text;
  return std::visit(text, value);
}

std::string expected_of(const OptionSpec& option) {
  if (!option.rule.expected.empty()) return option.rule.expected;
  const auto number = [&](double x) {
    return option.kind == OptionKind::integer ? std::to_string(static_cast<std::int64_t>(x))
                                              : fmt::format("{}", x);
  };
  const OptionRule& rule = option.rule;
  switch (option.kind) {
    case OptionKind::boolean:
      return "true or false";
    case OptionKind::choice:
    case OptionKind::dtype:
      return fmt::format("one of {}", fmt::join(option.choices, ", "));
    case OptionKind::integer:
    case OptionKind::real:
      break;
  }
  const std::string what = option.kind == OptionKind::integer ? "an integer" : "a finite number";
  if (rule.low && rule.high)
    return fmt::format("{} from {} to {}", what, number(*rule.low), number(*rule.high));
  if (rule.low)
    return fmt::format("{} {} {}", what, rule.above_low ? "above" : "of at least", number(*rule.low));
  return rule.high ? fmt::format("{} of at most {}", what, number(*rule.high)) : what;
}

std::string with_values(const std::string& text, const BoundCall& call) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t end = text[at] == '{' ? text.find('}', at) : std::string::npos;
    if (end == std::string::npos) {
      result += text[at];
    } else {
      result += std::to_string(call.dim(text.substr(at + 1, end - at - 1)));
      at = end;
    }
  }
  return result;
}

}  // namespace tegula::ops
