// Which loops make pieces of a tile's rows of pieces of a tensor's.
#include "passes/cuda/plan_conversions.hpp"

#include <gtest/gtest.h>

#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes {
namespace plan_conversions_test {

using namespace lang;

struct Operands {
  Tensor bytes, halves, scales, list;
};
struct ConversionCase {
  const char* name;
  int elements;  // of a piece; 0: none
  void (*body)(const Operands& x, Index b);
};

void PrintTo(const ConversionCase& c, std::ostream* out) { *out << c.name; }

class ConvertedRows : public ::testing::TestWithParam<ConversionCase> {};

TEST_P(ConvertedRows, ArePlannedInPieces) {
  const ConversionCase& c = GetParam();
  const testing::Lowered lowered(kernel("rows", [&] {
    Dim N("N"), L("L");
    const Operands x{input("bytes", {N, 256}, e4m3), input("halves", {N, 256}, bf16),
                     input("scales", {N, 256}, f32), input("list", {L}, i32)};
    Tensor y = output("y", {64, 64}, bf16);
    grid(ceildiv(N, 64), [&](Index b) { c.body(x, b); });
    (void)y;
  }));
  int elements = 0;
  for (const ir::Stmt& s : lowered.body())
    if (const auto plan = plan_conversion(s)) elements = plan->elements;
  EXPECT_EQ(elements, c.elements);
}

const ConversionCase conversion_cases[] = {
    {"converted", 16,
     [](const Operands& x, Index) {
       Shared t({64, 128}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(i, d); });
     }},
    {"a_factor_of_every_128", 16,
     [](const Operands& x, Index) {
       Shared t({64, 256}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(i, d) * x.scales(i, d / 128); });
     }},
    {"rows_looked_up", 16,
     [](const Operands& x, Index) {
       Shared t({64, 256}, bf16);
       parallel(t, [&](Index i, Index d) {
         Expr r = x.list(i);
         t(i, d) = x.bytes(r, d) * x.scales(r, d / 16);
       });
     }},
    {"rows_looked_up_if_there_are_any", 16,
     [](const Operands& x, Index) {
       Shared t({64, 256}, bf16);
       parallel(t, [&](Index i, Index d) {
         Expr r = select(i < 3, x.list(i), -1);
         t(i, d) = x.bytes(r, d) * x.scales(r, d / 128);
       });
     }},
    {"columns_of_a_step", 16,
     [](const Operands& x, Index b) {
       Shared t({64, 64}, f16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(x.list(i), b * 64 + d); });
     }},
    {"a_factor_of_each_element", 16,
     [](const Operands& x, Index) {
       Shared t({64, 256}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(i, d) * x.scales(i, d); });
     }},
    {"scaled_only", 8,
     [](const Operands& x, Index) {
       Shared t({64, 256}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.halves(x.list(i), d) * 2; });
     }},
    {"a_factor_of_every_8", 0,
     [](const Operands& x, Index) {
       Shared t({64, 256}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(i, d) * x.scales(i, d / 8); });
     }},
    {"rows_that_differ_from_column_to_column", 0,
     [](const Operands& x, Index) {
       Shared t({64, 256}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(x.list(d), i); });
     }},
    {"columns_looked_up", 0,
     [](const Operands& x, Index) {
       Shared t({64, 64}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(i, x.list(i) * 64 + d); });
     }},
    {"columns_that_begin_anywhere", 0,
     [](const Operands& x, Index b) {
       Shared t({64, 64}, bf16);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(i, b * 8 + d); });
     }},
    {"a_tile_of_words", 0,
     [](const Operands& x, Index) {
       Shared t({64, 64}, f32);
       parallel(t, [&](Index i, Index d) { t(i, d) = x.bytes(i, d); });
     }},
};

INSTANTIATE_TEST_SUITE_P(Loops, ConvertedRows, ::testing::ValuesIn(conversion_cases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace plan_conversions_test
}  // namespace tegula::passes
