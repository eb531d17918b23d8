#include "names.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tegula/error.hpp"

namespace tegula::tool {

std::string unknown_name(const std::string& kind, const std::string& name,
                         const std::vector<std::string>& names) {
  const auto hint = spelling_hint(name, names);
  return fmt::format("there is no {} '{}'{} There are: {}", kind, name, hint.empty() ? "." : hint,
                     names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

const ops::Operator& operator_named(const std::string& name) {
  std::vector<std::string> names;
  for (auto& op : ops::operators()) {
    if (op.name == name) return op;
    names.push_back(op.name);
  }
  throw ArgumentError(unknown_name("operator", name, names));
}

}  // namespace tegula::tool
