#include "spelling.hpp"

#include <algorithm>
#include <regex>

namespace tegula::python {

std::string spelled_as_its_source(const std::string& text) {
  static const std::regex place(R"(\.py:\d+)");
  if (!std::regex_search(text, place)) return text;
  static const std::pair<std::regex, const char*> spellings[] = {
      {std::regex(R"(\.(\w+) = true\b)"), "$1=True"},
      {std::regex(R"(\.(\w+) = false\b)"), "$1=False"},
      {std::regex(R"(\.(\w+) = \w+::(\w+))"), "$1=\"$2\""},
      {std::regex(R"(\.(\w+) = (\d+))"), "$1=$2"},
      {std::regex(R"(\{(\w+=\w+)\})"), "$1"},
      {std::regex(R"(\.T\(\))"), ".T"},
      {std::regex(R"(grid option \.(\w+))"), "grid option $1"},
  };
  std::string result = text;
  for (const auto& [cpp, python] : spellings) result = std::regex_replace(result, cpp, python);
  return result;
}

std::string with_spelled_notes(const std::string& text) {
  static const std::regex note(R"(^\s*\S+\.py:\d+: )");
  std::string result;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::string line = text.substr(begin, end - begin);
    result += std::regex_search(line, note) ? spelled_as_its_source(line) : line;
    begin = end;
  }
  return result;
}

}  // namespace tegula::python
