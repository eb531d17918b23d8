// The pages for readers: their links lead to files and headings that exist, and the index names every lesson.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
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

std::vector<fs::path> pages() {
  std::vector<fs::path> result = {source / "README.md", source / "CONTRIBUTING.md", source / "CHANGELOG.md"};
  for (const auto& entry : fs::directory_iterator(source / "docs"))
    if (entry.path().extension() == ".md") result.push_back(entry.path());
  return result;
}

TEST(Pages, LinksLeadSomewhere) {
  const std::regex link(R"(\]\(([^)#\s]*)(#[^)\s]*)?\))");
  for (const fs::path& page : pages()) {
    const std::string text = prose(page);
    for (std::sregex_iterator match(text.begin(), text.end(), link), end; match != end; ++match) {
      const std::string to = (*match)[1], anchor = (*match)[2];
      if (to.starts_with("http")) continue;
      const fs::path file = to.empty() ? page : page.parent_path() / to;
      EXPECT_TRUE(fs::exists(file)) << page << " links to " << to << ", which does not exist";
      if (!anchor.empty() && file.extension() == ".md")
        EXPECT_TRUE(anchors(file).contains(anchor.substr(1)))
            << page << " links to " << to << anchor << ": no such heading";
    }
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
