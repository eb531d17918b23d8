// Kernels of a user's own file, and the report.
#include "runtime/execution/process.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/show.hpp"
#include "tests/tool/tool.hpp"
#include "tests/tool/xml.hpp"

namespace tegula {
namespace {

class KernelFile : public Tool {
 protected:
  std::string written(const std::string& text) const {
    const std::string path = file("mine.cpp");
    std::ofstream(path) << text;
    return "'" + path + "'";
  }
};

// A product whose text has all that a report shows, and a program of the user's own in the same file.
constexpr const char* mine = R"(#include <tegula/lang.hpp>
using namespace tegula::lang;
Kernel product(int tile) {
  return kernel("product_" + std::to_string(tile), [&] {
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, bf16), B = input("B", {N, K}, bf16), C = output("C", {M, N}, f32);
    grid(ceildiv(N, tile), ceildiv(M, tile), [&](Index bx, Index by) {
      Fragment acc({tile, tile}, f32, 0);
      pipelined(ceildiv(K, 64), {.stages = 2}, [&](Index step) {
        Shared As({tile, 64}, bf16), Bs({tile, 64}, bf16);
        copy(A.at(by * tile, step * 64), As);
        copy(B.at(bx * tile, step * 64), Bs);
        gemm(As, Bs.T(), acc);
      });
      copy(acc, C.at(by * tile, bx * tile));
    });
  });
}
TEGULA_KERNELS(product(64), product(TILE))
int main() { return 1; }
)";

TEST_F(KernelFile, IsShownAsOperatorsAre) {
  const std::string report_file = file("mine.html"), pictures = file("pictures");
  const auto outcome =
      tool("show " + written(mine) + " --flag=-DTILE=128 --ir --cpp --cuda --resources --schedule --layout " +
           "--shared-memory --svg '" + pictures + "' --html '" + report_file +
           "' --extent M=4096,N=4096,K=512 --machine h200");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words : {"kernel product_64", "kernel product_128", "extern \"C\"", "__global__",
                            "mine.cpp:12", "bytes of shared memory", "product_128_0.schedule.svg",
                            "product_128_0.layout.svg", "product_64_0.memory.svg"})
    EXPECT_TRUE(has(outcome.out, words)) << words << outcome.out;
  EXPECT_TRUE(has(contents(pictures + "/product_64_0.memory.svg"), "bf16[64, 64], mine.cpp:10, 2 slots"));
  EXPECT_EQ(xml_fault(contents(pictures + "/product_64_0.memory.svg")), "");

  const std::string html = contents(report_file), doctype = "<!DOCTYPE html>\n";
  ASSERT_EQ(html.rfind(doctype, 0), 0u);
  EXPECT_EQ(xml_fault(html.substr(doctype.size())), "");
  for (auto& [words, count] :
       std::initializer_list<std::pair<const char*, int>>{{"<section id=\"kernel-", 2},
                                                          {"<h3>Schedule</h3>", 2},
                                                          {"<h3>Shared memory</h3>", 2},
                                                          {"<h3>Roofline estimate</h3>", 2},
                                                          {"on H200 SXM, 141 GB: ", 4},
                                                          {"<svg ", 8},
                                                          {"<figure>", 8},
                                                          {"src=", 0},
                                                          {"url(", 0},
                                                          {"<link", 0},
                                                          {"@import", 0}})
    EXPECT_EQ(count_of(html, words), count) << words;
  // The product stands in the program, twice, and in the texts for both machines.
  EXPECT_GE(count_of(html, "data-at=\"mine.cpp:13\""), 8);
}

// In a browser the script of the page marks what comes from the same line, and all pictures have a size.
TEST_F(KernelFile, ReportWorksInABrowser) {
  std::string browser = find_program("chromium-headless-shell");
  if (browser.empty()) browser = find_program("chromium");
  if (browser.empty()) GTEST_SKIP() << "there is no chromium; on Debian install chromium-headless-shell";
  const std::string page = file("page.html");
  ASSERT_EQ(
      tool("show " + written(mine) + " --flag=-DTILE=128 --extent M=512,N=512,K=512 --html '" + page + "'")
          .status,
      0);
  std::string html = contents(page);
  html.insert(
      html.rfind("</body>"),
      "<script>document.querySelector('.line[data-at]').dispatchEvent(new Event('mouseenter'));"
      "document.title = 'chosen ' + document.querySelectorAll('.line.chosen').length + ', empty pictures ' + "
      "Array.from(document.querySelectorAll('svg')).filter(s => s.getBoundingClientRect().width < 50).length;"
      "</script>");
  std::ofstream(page) << html;
  const TemporaryDirectory home;
  const ProcessResult run =
      run_process({browser, "--headless", "--no-sandbox", "--disable-gpu",
                   "--user-data-dir=" + home.file("data"), "--dump-dom", "file://" + page},
                  file("dom"), std::chrono::seconds(60));
  ASSERT_TRUE(run.succeeded()) << contents(file("dom"));
  const std::string dom = contents(file("dom"));
  int chosen = 0, empty = -1;
  const auto at = dom.find("<title>chosen ");
  ASSERT_NE(at, std::string::npos) << dom.substr(0, 2000);
  std::sscanf(dom.c_str() + at, "<title>chosen %d, empty pictures %d", &chosen, &empty);
  EXPECT_GE(chosen, 2);
  EXPECT_EQ(empty, 0);
}

TEST_F(KernelFile, KernelsOfOneNameHavePicturesEach) {
  const std::string pictures = file("pictures");
  const auto outcome =
      tool("show " + written(mine) + " --flag=-DTILE=64 --schedule --svg '" + pictures + "'");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  for (const char* name : {"/product_64_0.schedule.svg", "/product_64.2_0.schedule.svg"}) {
    EXPECT_TRUE(has(outcome.out, name)) << outcome.out;
    EXPECT_EQ(xml_fault(contents(pictures + name)), "");
  }
}

TEST_F(KernelFile, IsAnalyzed) {
  const auto outcome =
      tool("analyze " + written(mine) + " --flag=-DTILE=128 --extent M=4096,N=4096,K=512 --machine h200");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  for (const char* words :
       {"product_64", "product_128", "operations, bf16", "1.718e+10", "bound by second-level cache"})
    EXPECT_TRUE(has(outcome.out, words)) << words << outcome.out;
  const std::string missing = tool("analyze " + written(mine) + " --flag=-DTILE=128 --extent M=4096").err;
  EXPECT_TRUE(has(missing, "mine.cpp: kernel 'product_64' needs the values of N, K; give each by its name"))
      << missing;
}

TEST_F(KernelFile, IsRefusedWithTheRemedy) {
  struct {
    const char *text, *words;
  } table[] = {
      {"int main() {}\n", "lists no kernels; add a line such as TEGULA_KERNELS("},
      {"#include <tegula/lang.hpp>\nTEGULA_KERNELS(nothing())\n", "mine.cpp:2"},
      {"#include <tegula/lang.hpp>\nTEGULA_KERNELS(tegula::lang::kernel(\"bad name\", [] {}))\n", "bad name"},
      {"#include <tegula/lang.hpp>\nTEGULA_KERNELS((std::abort(), tegula::lang::kernel(\"k\", [] {})))\n",
       "mine.cpp ended with status 134; above 128"},
  };
  for (auto& row : table) {
    const auto outcome = tool("show " + written(row.text));
    EXPECT_NE(outcome.status, 0);
    EXPECT_TRUE(has(outcome.err, row.words)) << outcome.err;
  }
  EXPECT_TRUE(has(tool("show nowhere.cpp").err, "there is no file nowhere.cpp"));
  EXPECT_TRUE(has(tool("show " + written(mine) + " --extent M=4").err, "add --html FILE"));
  EXPECT_TRUE(has(tool("show gemm --extent m=4 --html '" + file("gemm.html") + "'").err,
                  "--extent is for source files"));
  const auto none = tool("show " + written(mine), "TEGULA_CXX=none");
  EXPECT_TRUE(has(none.err, "no C++ compiler was found")) << none.err;
}

}  // namespace
}  // namespace tegula
