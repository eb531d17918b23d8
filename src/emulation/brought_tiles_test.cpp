// Tiles outside of loops are copied asynchronously and awaited together: what else is written to their memory
// waits, too.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace brought_tiles_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 16, columns = 32;

// A tile that nobody reads; the next one takes its memory, and threads fill it element by element.
lang::Kernel unread() {
  return kernel("unread", [] {
    lang::Tensor A = input("A", {rows, columns}, f32), V = input("V", {rows}, f32),
                 Out = output("Out", {rows}, f32);
    grid(1, [&](Index) {
      Shared first({rows, columns}, f32);
      copy(A, first);
      Shared second({rows}, f32);
      copy(V.at(-3), second);
      parallel(rows, [&](Index i) { Out(i) = second(i); });
    });
  });
}

// The same, and its memory is taken by a tile that vectors fill.
lang::Kernel unread_by_vectors() {
  return kernel("unread_by_vectors", [] {
    lang::Tensor A = input("A", {rows, columns}, f32), V = input("V", {rows, columns}, f32),
                 Out = output("Out", {rows, columns}, f32);
    grid(1, [&](Index) {
      Shared first({rows, columns}, f32);
      copy(A, first);
      Shared second({rows, columns}, f32);
      copy(V, second);
      copy(second, Out);
    });
  });
}

// A tile that is filled twice: the second copy counts.
lang::Kernel twice() {
  return kernel("twice", [] {
    lang::Tensor A = input("A", {rows, columns}, f32), V = input("V", {rows, columns}, f32),
                 Out = output("Out", {rows, columns}, f32);
    grid(1, [&](Index) {
      Shared tile({rows, columns}, f32);
      copy(A, tile);
      copy(V, tile);
      copy(tile, Out);
    });
  });
}

Tensor normal(const Shape& shape, int seed) {
  return Tensor::random_normal(shape, f32, static_cast<std::uint64_t>(seed));
}

struct Case {
  const char* name;
  lang::Kernel (*program)();
  Shape read, written;  // shapes of V and Out
  int waits;            // before the memory is written again, and before what a copy brought is read
};

class BroughtTiles : public ::testing::TestWithParam<Case> {};

TEST_P(BroughtTiles, AreAwaitedBeforeTheirMemoryIsWritten) {
  const Case& c = GetParam();
  const Watchdog watchdog(c.name, most_time);
  // The emulated engine may be done before the text that forgot to wait goes on.
  const std::string text = codegen::print_cuda(Signature(c.program().ir()), {90}).text,
                    wait = "tg::wait_copies<0>();";
  int waits = 0;
  for (auto at = text.find(wait); at != std::string::npos; at = text.find(wait, at + 1)) ++waits;
  EXPECT_EQ(waits, c.waits) << text;
  expect_as_interpreted(c.program(), {normal({rows, columns}, 1), normal(c.read, 2)}, c.written, 0,
                        {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
}

INSTANTIATE_TEST_SUITE_P(
    Table, BroughtTiles,
    ::testing::Values(Case{"unread", unread, {rows}, {rows}, 1},
                      Case{"unread_by_vectors", unread_by_vectors, {rows, columns}, {rows, columns}, 2},
                      Case{"twice", twice, {rows, columns}, {rows, columns}, 2}),
    [](const auto& info) { return info.param.name; });

// Other threads' vectors of the tensor are still on their way when a thread's own have come.
TEST(BroughtTiles, AreAllThereBeforeTheirTensorIsWritten) {
  const Watchdog watchdog("source_written", most_time);
  const lang::Kernel program = kernel("source_written", [] {
    lang::Tensor A = inout("A", {rows, columns}, f32), Out = output("Out", {rows, columns}, f32);
    grid(1, [&](Index) {
      Shared tile({rows, columns}, f32);
      copy(A, tile);
      copy(Fragment({rows, columns}, f32, 7), A);
      copy(tile, Out);
    });
  });
  const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
  const auto wait = text.find("tg::wait_copies<0>();"), barrier = text.find("sync", wait),
             store = text.find("tg::store(", wait);
  EXPECT_LT(wait, barrier) << text;
  EXPECT_LT(barrier, store) << text;
  for (const tegula::Target& target : {tegula::Target::emulated_sm90(), tegula::Target::emulated()}) {
    const Tensor given = normal({rows, columns}, 1), a = normal({rows, columns}, 1),
                 out = Tensor::full({rows, columns}, f32, 0);
    compile(program, target).call_in_order(std::vector<Argument>{a, out});
    EXPECT_EQ(out.values<double>(), given.values<double>()) << target.name();
    EXPECT_EQ(a.values<double>(), std::vector<double>(rows * columns, 7)) << target.name();
  }
}

}  // namespace brought_tiles_test
}  // namespace tegula::emulation
