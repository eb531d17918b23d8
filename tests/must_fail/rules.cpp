#include "tests/must_fail/rules.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace must_fail {

namespace {

// The end of the literal that begins at `at`, after its quote.
std::size_t end_of_literal(const std::string& text, std::size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote; ++at)
    if (text[at] == '\\') ++at;
  return at + 1;
}

// The end of the parentheses that open at `at`.
std::size_t end_of_call(const std::string& text, std::size_t at) {
  for (int depth = 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '\'') {
      at = end_of_literal(text, at);
      continue;
    }
    if (text[at] == '(') ++depth;
    if (text[at] == ')' && --depth == 0) return at + 1;
    ++at;
  }
  return at;
}

// The string literals of a call; what C++ joins is one.
std::vector<std::string> literals(const std::string& call) {
  std::vector<std::string> found;
  std::size_t last = std::string::npos;
  for (std::size_t at = call.find('"'); at != std::string::npos; at = call.find('"', at)) {
    const std::size_t end = end_of_literal(call, at);
    const auto text = call.substr(at + 1, end - at - 2);
    const bool joined =
        last != std::string::npos && call.find_first_not_of(" \n", last) == at && !found.empty();
    if (joined)
      found.back() += text;
    else
      found.push_back(text);
    at = last = end;
  }
  return found;
}

}  // namespace

std::vector<Rule> rules_of(const std::string& path, const std::vector<std::string>& callers) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<Rule> rules;
  for (const std::string& caller : callers)
    for (std::size_t at = text.find(caller + "("); at != std::string::npos;
         at = text.find(caller + "(", at + 1)) {
      const char before = at == 0 ? ' ' : text[at - 1];
      if (std::isalnum(static_cast<unsigned char>(before)) || before == '_') continue;
      const auto all = literals(text.substr(at, end_of_call(text, at + caller.size()) - at));
      if (all.empty()) continue;
      const auto longest =
          std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.size() < b.size(); });
      const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
      rules.push_back(
          {std::filesystem::path(path).filename().string() + ":" + std::to_string(line), *longest});
    }
  return rules;
}

}  // namespace must_fail
