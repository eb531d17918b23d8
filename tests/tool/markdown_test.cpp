// The pages of docs/reference are what the tables of operators say.
#include "tools/markdown.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/tool/tool.hpp"

namespace tegula {
namespace {

const std::filesystem::path folder = std::filesystem::path(TEGULA_SOURCE) / "docs" / "reference";
constexpr const char* remedy = "run scripts/print-reference";

std::string contents(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(Reference, PagesAreWhatTheTablesSay) {
  std::size_t pages = 1;
  for (const ops::OperatorSchema* schema : ops::operator_schemas()) {
    EXPECT_EQ(contents(folder / (schema->name + ".md")), tool::operator_in_markdown(*schema)) << remedy;
    ++pages;
  }
  EXPECT_TRUE(has(contents(folder / "README.md"), tool::operators_in_markdown())) << remedy;
  using Files = std::filesystem::directory_iterator;
  EXPECT_EQ(static_cast<std::size_t>(std::distance(Files(folder), Files())), pages) << remedy;
}

TEST(Reference, TablesInOtherDocumentsAreWhatTheTablesSay) {
  const std::filesystem::path source = TEGULA_SOURCE;
  EXPECT_TRUE(has(contents(source / "README.md"), tool::operators_in_brief("docs/reference"))) << remedy;
  EXPECT_TRUE(has(contents(source / "docs" / "python.md"), tool::operators_in_brief("reference"))) << remedy;
}

TEST_F(Tool, PrintsPagesOfReference) {
  EXPECT_TRUE(has(tool("list --markdown").out, "[`gemm`](gemm.md)"));
  EXPECT_TRUE(has(tool("list gemm --markdown").out, "| `bias` | `[n]` |"));
  EXPECT_TRUE(has(tool("list --links pages").out, "| [`gemm`](pages/gemm.md) | matrix product"));
  EXPECT_EQ(tool("list germ --markdown").status, 2);
}

}  // namespace
}  // namespace tegula
