#include "runtime/execution/host_compiler.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "runtime/execution/process.hpp"
#include "runtime/files/file_io.hpp"
#include "runtime/machine/cpu_features.hpp"
#include "runtime/machine/environment.hpp"
#include "runtime/testing/expect_error.hpp"
#include "runtime/testing/scoped_variable.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

using namespace std::chrono_literals;

// Texts that are kept after an error go to the test's own directory.
class Compiler : public testing::Test {
 protected:
  Compiler() {
    if (const char* usual = std::getenv("TMPDIR")) usual_ = usual;
    setenv("TMPDIR", directory_.path().c_str(), 1);
  }
  ~Compiler() override { usual_ ? setenv("TMPDIR", usual_->c_str(), 1) : unsetenv("TMPDIR"); }

  std::optional<std::string> usual_;
  TemporaryDirectory directory_;
  KernelCache cache_{directory_.file("cache"), 1 << 30};
};

HostCompiler::Source adder(int summand) {
  return {"#include \"number.hpp\"\nextern \"C\" int add(int x) { return x + number; }\n",
          {"-O2"},
          {{"number.hpp", "constexpr int number = " + std::to_string(summand) + ";\n"}}};
}

TEST_F(Compiler, CompilesOnceAndLoads) {
  ASSERT_NE(host_compiler(), nullptr) << "the tests are compiled here, so a compiler should be found";
  const HostCompiler& compiler = *host_compiler();
  EXPECT_FALSE(compiler.version().empty());
  EXPECT_EQ(compiler.load(adder(5), cache_).function<int(int)>("add")(2), 7);
  const std::uint64_t bytes = cache_.bytes();
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(compiler.load(adder(5), cache_).function<int(int)>("add")(3), 8);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 100ms) << "the second time nothing is compiled";
  EXPECT_EQ(cache_.bytes(), bytes);
  EXPECT_EQ(compiler.load(adder(6), cache_).function<int(int)>("add")(2), 8) << "headers are part of the key";
  EXPECT_ERROR(DeviceError, "no function 'subtract'", compiler.load(adder(5), cache_).symbol("subtract"));
}

TEST_F(Compiler, DoesWithoutACacheThatCannotBeWritten) {
  std::filesystem::remove_all(cache_.directory());
  testing::internal::CaptureStderr();
  for (int summand : {5, 6})
    EXPECT_EQ(host_compiler()->load(adder(summand), cache_).function<int(int)>("add")(2), 2 + summand);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("tegula: kernel cache " + cache_.directory() + ": cannot be written: "), 0u) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(Compiler, AcceptsTheFlagsOfEveryIsa) {
  for (const Isa isa : all_isas) {
    HostCompiler::Source source{"extern \"C\" int one() { return 1; }\n", {}, {}};
    for (const std::string_view flag : isa_flags(isa)) source.flags.emplace_back(flag);
    EXPECT_NO_THROW(host_compiler()->compile(source, directory_.file("out.so"))) << isa_name(isa);
  }
}

// What the temporary directory holds besides the cache.
std::size_t files_in(const std::string& directory) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    count += entry.path().filename() != "cache";
  return count;
}

TEST_F(Compiler, FailuresLeaveNothingBehind) {
  EXPECT_ERROR(DeviceError, "with TEGULA_DUMP its text is kept",
               host_compiler()->load({"int f() { return undeclared_name; }\n", {}, {}}, cache_));
  EXPECT_EQ(files_in(directory_.path()), 0u);
}

TEST_F(Compiler, ReportsErrorsAndKeepsTheText) {
  const ScopedVariable dump(Variable::dump, "stderr");
  const HostCompiler::Source wrong{"int f() { return undeclared_name; }\n", {}, {}};
  try {
    host_compiler()->load(wrong, cache_);
    FAIL();
  } catch (const DeviceError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("undeclared_name"), std::string::npos) << message;
    const std::size_t begin = message.find("kept in ") + 8, end = message.find('\n', begin);
    const std::string kept = message.substr(begin, end - begin);
    EXPECT_TRUE(std::filesystem::exists(kept)) << message;
  }
  EXPECT_EQ(cache_.bytes(), 0u);
}

std::string write_script(const std::string& path, const std::string& text) {
  std::ofstream(path) << "#!/bin/sh\n" << text;
  chmod(path.c_str(), 0700);
  return path;
}

TEST_F(Compiler, IsChosenByTheVariable) {
  const std::string usual = host_compiler()->path();
  {
    const ScopedVariable none(Variable::cxx, "none");
    EXPECT_FALSE(HostCompiler::find());
  }
  {
    const ScopedVariable path(Variable::cxx, usual);
    EXPECT_EQ(HostCompiler::find()->path(), usual);
  }
  const std::string broken = write_script(directory_.file("broken"), "exit 3\n");
  for (const std::string& wrong :
       {std::string("/nonexistent/g++"), std::string("no-such-compiler"), broken}) {
    const ScopedVariable variable(Variable::cxx, wrong);
    EXPECT_ERROR(ArgumentError, "TEGULA_CXX=" + wrong, HostCompiler::find());
  }
}

TEST_F(Compiler, IsStoppedWhenItHangs) {
  const ScopedVariable variable(
      Variable::cxx,
      write_script(directory_.file("slow"), "[ \"$1\" = --version ] && echo slow 1.0 && exit\nsleep 60\n"));
  std::optional<HostCompiler> compiler = HostCompiler::find();
  ASSERT_TRUE(compiler);
  EXPECT_EQ(compiler->version(), "slow 1.0");
  compiler->set_timeout(100ms);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_ERROR(DeviceError, "was stopped after 100 ms", compiler->load(adder(1), cache_));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST_F(Compiler, IsNotBelievedWhenItWritesNothing) {
  const ScopedVariable variable(Variable::cxx, write_script(directory_.file("idle"), "echo idle 1.0\n"));
  EXPECT_ERROR(DeviceError, "wrote nothing", HostCompiler::find()->load(adder(1), cache_));
}

TEST(Process, ReportsHowItEnded) {
  const TemporaryDirectory directory;
  const std::string output = directory.file("out"), shell = find_program("sh");
  ASSERT_FALSE(shell.empty());
  EXPECT_TRUE(run_process({shell, "-c", "echo a; echo b >&2"}, output, 10s).succeeded());
  std::ifstream in(output);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "a\nb\n");
  EXPECT_EQ(run_process({shell, "-c", "exit 7"}, output, 10s).exit_code, 7);
  EXPECT_EQ(run_process({shell, "-c", "kill -9 $$"}, output, 10s).exit_code, 137);
  EXPECT_TRUE(run_process({shell, "-c", "sleep 60 & sleep 60"}, output, 50ms).timed_out);
  EXPECT_FALSE(run_process({"/nonexistent"}, output, 10s).started);
  EXPECT_EQ(find_program("no-such-program"), "");
}

}  // namespace
}  // namespace tegula
