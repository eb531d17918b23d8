#include "cuda/ranges.hpp"

#include <gtest/gtest.h>

#include "runtime/execution/host_compiler.hpp"
#include "runtime/files/file_io.hpp"

namespace tegula::cuda {
namespace ranges_test {

// In place of a profiler's library: it implements ranges of module 1, the core, and checks what the other
// tables promise. It keeps the names of the ranges that are open, and of all.
constexpr const char* profiler_text = R"text(
#include <cstddef>
#include <cstdint>
#include <string>
static std::string all;
static int push(const char* name) { all += std::string("(") + name; return 0; }
static int pop() { all += ")"; return 0; }
using Function = void (*)();
struct Callbacks { std::size_t bytes; int (*table)(int, Function***, unsigned*); };
struct Versions { std::size_t bytes; std::uint32_t version, reserved; void (*tell)(std::uint32_t); };
extern "C" int InitializeInjectionNvtx2(const void* (*exported)(std::uint32_t)) {
  auto* callbacks = static_cast<const Callbacks*>(exported(1));
  auto* versions = static_cast<const Versions*>(exported(3));
  if (!callbacks || callbacks->bytes != sizeof(Callbacks) || exported(2)) return 0;
  if (!versions || versions->bytes != sizeof(Versions) || versions->version != 3) return 0;
  versions->tell(2);
  Function** table = nullptr;
  unsigned count = 0;
  if (callbacks->table(7, &table, &count) || callbacks->table(0, &table, &count)) return 0;
  for (int module = 1; module < 7; ++module) {
    if (!callbacks->table(module, &table, &count) || table[0] || table[count]) return 0;
    for (unsigned i = 1; i < count; ++i)
      if (*table[i]) return 0;
  }
  if (!callbacks->table(1, &table, &count) || count != 16) return 0;
  *table[9] = reinterpret_cast<Function>(push);
  *table[11] = reinterpret_cast<Function>(pop);
  return 1;
}
extern "C" const char* ranges_seen() { return all.c_str(); }
)text";

TEST(Ranges, AreOpenUntilTheEndOfTheScope) {
  const HostCompiler* compiler = host_compiler();
  if (!compiler) GTEST_SKIP() << "no C++ compiler was found on this machine";
  const TemporaryDirectory directory;
  const std::string path = directory.file("profiler.so");
  compiler->compile({profiler_text, {"-w"}, {}}, path);
  const RangeFunctions functions = load_ranges(path);
  ASSERT_NE(functions.push, nullptr);
  {
    const Range outer("gemm", functions);
    const Range inner("softmax", functions);
  }
  { const Range next("gemm", functions); }
  auto* seen = reinterpret_cast<const char* (*)()>(functions.library->symbol("ranges_seen"));
  EXPECT_STREQ(seen(), "(gemm(softmax))(gemm)");
}

TEST(Ranges, AreNothingWithoutAProfiler) {
  const RangeFunctions functions = load_ranges("/nowhere/profiler.so");
  EXPECT_EQ(functions.push, nullptr);
  const Range range("gemm", functions);
}

}  // namespace ranges_test
}  // namespace tegula::cuda
