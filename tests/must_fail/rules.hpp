// The rules that a source file of the compiler enforces, found by reading the file.
#pragma once
#include <string>
#include <vector>

namespace must_fail {

struct Rule {
  std::string place;  // builder.cpp:41
  std::string words;  // the longest piece of its message that stands in the source
};

// One for every call of a function in `callers`, which takes the message of the refusal.
std::vector<Rule> rules_of(const std::string& path, const std::vector<std::string>& callers);

}  // namespace must_fail
