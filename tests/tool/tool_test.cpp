// The built tool, as a user calls it. TEGULA_TOOL is its path.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tegula/files.hpp"

namespace tegula {
namespace {

struct Outcome {
  int status;
  std::string text;  // of both streams
};

Outcome tool(const std::string& arguments) {
  FILE* pipe = popen(("timeout 60 " TEGULA_TOOL " " + arguments + " 2>&1").c_str(), "r");
  Outcome outcome{-1, ""};
  std::array<char, 4096> buffer;
  while (std::size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) outcome.text.append(buffer.data(), n);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

class Tool : public testing::Test {
 protected:
  void SetUp() override {
    folder = std::filesystem::temp_directory_path() /
             ("tegula_tool_" + std::to_string(getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }
  std::string file(const std::string& name) const { return (folder / name).string(); }
  std::filesystem::path folder;
};

TEST_F(Tool, HelpOfEveryCommand) {
  EXPECT_EQ(tool("--help").status, 0);
  for (auto* command : {"list", "run", "check", "bench", "show", "cache", "env"}) {
    auto outcome = tool(std::string(command) + " --help");
    EXPECT_EQ(outcome.status, 0) << command;
    EXPECT_NE(outcome.text.find("--help"), std::string::npos) << command;
  }
  EXPECT_NE(tool("--version").text.find("tegula "), std::string::npos);
}

TEST_F(Tool, ListsOperatorsAndTheirOptions) {
  EXPECT_NE(tool("list").text.find("block_sparse_attention"), std::string::npos);
  EXPECT_NE(tool("list gemm").text.find("--option transpose_b"), std::string::npos);
  EXPECT_NE(tool("env").text.find("TEGULA_CACHE_DIR"), std::string::npos);
}

TEST_F(Tool, RunsAProduct) {
  auto a = Tensor::random_integers({5, 7}, f32, 1, -9, 9), b = Tensor::random_integers({7, 3}, f32, 2, -9, 9);
  write_npy(file("a.npy"), a);
  write_safetensors(file("b.safetensors"), {{"weights", b}});
  auto outcome = tool("run gemm --input a=" + file("a.npy") + " --input b=" + file("b.safetensors") +
                      ":weights --output " + file("c.npy"));
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  auto c = read_npy(file("c.npy"));
  ASSERT_EQ(c.shape(), (Shape{5, 3}));
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 3; ++j) {
      double sum = 0;
      for (int k = 0; k < 7; ++k) sum += a.get({i, k}) * b.get({k, j});
      EXPECT_EQ(c.get({i, j}), sum);
    }
}

TEST_F(Tool, ShowsPrograms) {
  auto outcome = tool("show attention --ir");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.text.find("gemm"), std::string::npos) << outcome.text;
}

TEST_F(Tool, ChecksAnOperator) {
  auto outcome = tool("check topk_blocks --target interpreter");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("ok"), std::string::npos);
}

// Every operator, printed and compiled, against its formula.
TEST_F(Tool, ChecksEveryOperatorOnTheCpu) {
  auto outcome = tool("check --target cpu");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_NE(outcome.text.find("block_sparse_attention"), std::string::npos);
}

TEST_F(Tool, RefusesWrongCalls) {
  std::ofstream(file("short.npy")) << "\x93NUMPY";
  struct {
    std::string arguments, words;
  } table[] = {
      {"run nothing", "gemm"},
      {"run gemm", "a"},
      {"run gemm --input a", "name=value"},
      {"run gemm --input a=" + file("missing.npy"), "missing.npy"},
      {"run gemm --input a=" + file("short.npy"), "short.npy"},
      {"list gemm --colour", "--colour"},
      {"check gemm --target moon", "moon"},
      {"", "subcommand"},
  };
  for (auto& row : table) {
    auto outcome = tool(row.arguments);
    EXPECT_EQ(outcome.status, 2) << row.arguments << "\n" << outcome.text;
    EXPECT_NE(outcome.text.find(row.words), std::string::npos) << row.arguments << "\n" << outcome.text;
  }
}

}  // namespace
}  // namespace tegula
