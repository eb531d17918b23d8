// Which elements of 8-bit floats are only moved, so that their bytes need no conversion.
#include "passes/cuda/moved_elements.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace moved_elements_test {

using namespace lang;

struct Operands {
  Tensor bytes, wide, out, other, halves;
};
struct MovedCase {
  const char* name;
  std::size_t moved;
  void (*body)(const Operands& x, const Index& i);
};

void PrintTo(const MovedCase& c, std::ostream* out) { *out << c.name; }

class MovedElementsOf : public ::testing::TestWithParam<MovedCase> {};

TEST_P(MovedElementsOf, AreFound) {
  const testing::Lowered lowered(kernel("moved", [&] {
    Dim N("N");
    const Operands x{input("bytes", {N}, e4m3), input("wide", {N}, f32), output("out", {N}, e4m3),
                     output("other", {N}, e5m2), output("halves", {N}, bf16)};
    grid(ceildiv(N, 128), [&](Index b) {
      parallel(128, [&](Index i) { when(b * 128 + i < N, [&] { GetParam().body(x, i); }); });
    });
  }));
  EXPECT_EQ(moved_elements(lowered.body()).size(), GetParam().moved);
}

const MovedCase moved_cases[] = {
    {"moved", 1, [](const Operands& x, const Index& i) { x.out(i) = x.bytes(i); }},
    {"moved_to_two_places", 1,
     [](const Operands& x, const Index& i) {
       Expr element = x.bytes(i);
       x.out(i) = element;
       x.out(i / 2) = element;
     }},
    {"computed_with", 0, [](const Operands& x, const Index& i) { x.out(i) = x.bytes(i) * 2.0f; }},
    {"moved_and_computed_with", 0,
     [](const Operands& x, const Index& i) {
       Expr element = x.bytes(i);
       x.out(i) = element;
       x.halves(i) = element + 1.0f;
     }},
    {"stored_as_another_type", 0, [](const Operands& x, const Index& i) { x.other(i) = x.bytes(i); }},
    {"of_a_wider_type", 0, [](const Operands& x, const Index& i) { x.out(i) = x.wide(i); }},
};
INSTANTIATE_TEST_SUITE_P(Loops, MovedElementsOf, ::testing::ValuesIn(moved_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace moved_elements_test
}  // namespace tegula::passes
