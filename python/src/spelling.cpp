#include "spelling.hpp"

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
  };
  std::string result = text;
  for (const auto& [cpp, python] : spellings) result = std::regex_replace(result, cpp, python);
  return result;
}

}  // namespace tegula::python
