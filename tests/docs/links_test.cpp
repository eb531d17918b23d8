// The pages for readers: their links lead to files and headings that exist, and the index names every lesson.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>

namespace {

namespace fs = std::filesystem;
const fs::path source = TEGULA_SOURCE;

std::string contents(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Without blocks of code, whose brackets are no links.
std::string prose(const fs::path& page) {
  std::istringstream lines(contents(page));
  std::string result;
  bool code = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```"))
      code = !code;
    else if (!code)
      result += line + "\n";
  }
  return result;
}

// As sites that show Markdown name a heading: `## Two commands` is #two-commands.
std::set<std::string> anchors(const fs::path& page) {
  std::istringstream lines(prose(page));
  std::set<std::string> result;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#")) continue;
    std::string anchor;
    for (char c : line.substr(line.find(' ') + 1)) {
      if (c == ' ') anchor += '-';
      if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    result.insert(anchor);
  }
  return result;
}

// What stands in the parentheses of [text](link), which hold no blanks.
std::vector<std::string> links(const std::string& text) {
  std::vector<std::string> result;
  for (std::size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 2)) {
    const std::size_t end = text.find_first_of(") \t\n", at + 2);
    if (end != std::string::npos && text[end] == ')') result.push_back(text.substr(at + 2, end - at - 2));
  }
  return result;
}

std::vector<fs::path> pages() {
  std::vector<fs::path> result = {source / "README.md", source / "CONTRIBUTING.md", source / "CHANGELOG.md"};
  for (const auto& entry : fs::directory_iterator(source / "docs"))
    if (entry.path().extension() == ".md") result.push_back(entry.path());
  return result;
}

TEST(Pages, LinksLeadSomewhere) {
  std::map<fs::path, std::set<std::string>> headings;  // hundreds of links lead to the same few pages
  for (const fs::path& page : pages())
    for (const std::string& link : links(prose(page))) {
      if (link.starts_with("http")) continue;
      const std::size_t hash = std::min(link.find('#'), link.size());
      const std::string to = link.substr(0, hash), anchor = link.substr(hash);
      const fs::path file = (to.empty() ? page : page.parent_path() / to).lexically_normal();
      EXPECT_TRUE(fs::exists(file)) << page << " links to " << to << ", which does not exist";
      if (anchor.empty() || file.extension() != ".md") continue;
      if (!headings.contains(file)) headings[file] = anchors(file);
      EXPECT_TRUE(headings[file].contains(anchor.substr(1)))
          << page << " links to " << link << ": no such heading";
    }
}

TEST(Pages, FunctionsOfTheReferenceAreDeclared) {
  std::string headers;
  for (const auto& entry : fs::directory_iterator(source / "include" / "tegula" / "ops"))
    headers += contents(entry.path());
  const std::regex named("`ops::([a-z0-9_]+)` in C");
  std::size_t found = 0;
  for (const auto& entry : fs::directory_iterator(source / "docs" / "reference")) {
    const std::string page = contents(entry.path());
    std::smatch name;
    if (!std::regex_search(page, name, named)) continue;
    ++found;
    EXPECT_NE(headers.find(" " + name[1].str() + "("), std::string::npos)
        << entry.path() << " names ops::" << name[1] << ", which no header declares";
  }
  EXPECT_GT(found, 80u);
}

TEST(Pages, IndexNamesAllLessonsAndPages) {
  const std::string index = contents(source / "docs" / "README.md");
  for (const auto& entry : fs::directory_iterator(source / "examples"))
    if (entry.path().extension() == ".cpp")
      EXPECT_NE(index.find("(../examples/" + entry.path().filename().string() + ")"), std::string::npos)
          << entry.path() << " is missing in docs/README.md";
  for (const fs::path& page : pages())
    if (page.parent_path().filename() == "docs" && page.filename() != "README.md")
      EXPECT_NE(index.find("(" + page.filename().string()), std::string::npos)
          << page << " is missing in docs/README.md";
}

}  // namespace
