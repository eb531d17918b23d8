// For tests that are slow: the examples of an operator that together make all its choices.
#pragma once
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ops/registry.hpp"
#include "runtime/testing/test_environment.hpp"

namespace tegula::ops {

// What a call chooses: its options, its inputs and their types, and every two of these. Sizes are no choice.
inline std::set<std::string> choices_of(const Operator& op, const Case& example) {
  std::vector<std::string> single;
  for (const OptionInfo& info : op.options) {
    const auto given = example.options.find(info.name);
    if (given == example.options.end()) continue;
    const bool is_size = info.type == OptionType::integer || info.type == OptionType::real;
    single.push_back(is_size ? info.name : info.name + "=" + given->second);
  }
  for (const auto& [name, tensor] : example.described())
    single.push_back(name + ": " + std::string(tensor.dtype().name()));
  std::set<std::string> result;
  for (const std::string& one : single)
    for (const std::string& other : single) result.insert(one + ", " + other);
  return result;
}

// That which adds most choices first. All of them where TEGULA_TEST_ROWS is 'all'.
inline std::vector<const Case*> covering_cases(const Operator& op) {
  std::vector<std::pair<const Case*, std::set<std::string>>> left;
  for (const Case& example : op.check_cases) left.emplace_back(&example, choices_of(op, example));
  std::vector<const Case*> chosen;
  std::set<std::string> made;
  const auto gain = [&](const auto& entry) {
    return std::count_if(entry.second.begin(), entry.second.end(),
                         [&](const std::string& choice) { return !made.contains(choice); });
  };
  while (!left.empty()) {
    const auto best = std::max_element(left.begin(), left.end(),
                                       [&](const auto& a, const auto& b) { return gain(a) < gain(b); });
    if (gain(*best) == 0 && !tests_all_rows()) break;
    made.insert(best->second.begin(), best->second.end());
    chosen.push_back(best->first);
    left.erase(best);
  }
  return chosen;
}

inline std::vector<std::string> operator_names() {
  std::vector<std::string> result;
  for (const Operator& op : operators()) result.push_back(op.name);
  return result;
}

}  // namespace tegula::ops
