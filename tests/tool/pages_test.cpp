// What the pages for readers tell to type: commands, options and cases that the tool has.
#include <map>
#include <regex>
#include <sstream>

#include "ops/registry.hpp"
#include "tests/tool/tool.hpp"

namespace tegula {
namespace {

namespace fs = std::filesystem;

struct Typed {
  std::string page, words;  // behind `tegula`
};

// Lines of code, and words in a line of prose, which may go on in the next line.
std::vector<Typed> typed_in(const fs::path& page) {
  const std::string text = contents(page.string());
  std::vector<Typed> all;
  for (const char* form : {"(?:^|\n)    tegula ([^\n#]*)", "`tegula ([^`]*)`"}) {
    const std::regex call(form);
    for (std::sregex_iterator match(text.begin(), text.end(), call), end; match != end; ++match)
      all.push_back({page.filename().string(), (*match)[1]});
  }
  return all;
}

std::vector<Typed> typed() {
  std::vector<fs::path> pages{fs::path(TEGULA_SOURCE) / "README.md",
                              fs::path(TEGULA_SOURCE) / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(fs::path(TEGULA_SOURCE) / "docs"))
    if (entry.path().extension() == ".md" && entry.path().filename() != "performance-log.md")
      pages.push_back(entry.path());  // the log tells what was typed
  std::vector<Typed> all;
  for (const fs::path& page : pages)
    for (Typed& own : typed_in(page)) all.push_back(std::move(own));
  return all;
}

class Page : public Tool {
 protected:
  const std::string& help_of(const std::string& command) {
    const auto [found, is_new] = helps_.try_emplace(command);
    if (is_new) found->second = tool(command + " --help").out;
    return found->second;
  }
  void check(const Typed& call) {
    std::istringstream in(call.words);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    ASSERT_FALSE(words.empty());
    if (words[0].starts_with("--")) return;
    const std::string& help = help_of(words[0]);
    ASSERT_TRUE(has(help, "--help")) << "there is no command " << words[0];
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::string option = words[i].substr(0, words[i].find('='));
      if (option.starts_with("--")) {
        EXPECT_TRUE(has(help, option)) << words[0] << " has no option " << option;
      }
      if (option == "--case" && i + 1 < words.size()) expect_case(words[1], words[i + 1]);
    }
  }

 private:
  static void expect_case(const std::string& name, const std::string& wanted) {
    const ops::Operator& op = ops::find_operator(name);
    bool found = false;
    for (auto* cases : {&op.check_cases, &op.bench_cases})
      for (auto& own : *cases) found |= own.name == wanted;
    EXPECT_TRUE(found) << name << " has no case " << wanted;
  }
  std::map<std::string, std::string> helps_;
};

TEST_F(Page, TellsWhatTheToolHas) {
  const std::vector<Typed> all = typed();
  EXPECT_GT(all.size(), 40u);
  for (const Typed& call : all) {
    SCOPED_TRACE(call.page + ": tegula " + call.words);
    // The operator that its page adds.
    if (!has(call.words, "swiglu ")) check(call);
  }
}

}  // namespace
}  // namespace tegula
