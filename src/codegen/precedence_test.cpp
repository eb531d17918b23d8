// Expressions in expressions: the generated text has the parentheses that it needs.
#include "codegen/cuda/testing/texts.hpp"
#include "codegen/testing/data.hpp"
#include "codegen/text.hpp"

namespace tegula::codegen {
namespace precedence_test {

using namespace lang;
using lang::Tensor;

TEST(Precedence, DecidesOnParentheses) {
  const struct {
    ir::Op operation, operand;
    bool is_second, needs;
  } table[] = {
      {ir::Op::add, ir::Op::mul, false, false},
      {ir::Op::mul, ir::Op::add, false, true},
      {ir::Op::sub, ir::Op::sub, false, false},
      {ir::Op::sub, ir::Op::sub, true, true},
      {ir::Op::lt, ir::Op::add, true, false},
      {ir::Op::eq, ir::Op::lt, false, true},
      {ir::Op::logical_and, ir::Op::lt, false, false},
      {ir::Op::logical_or, ir::Op::logical_and, false, true},
      {ir::Op::logical_and, ir::Op::logical_or, false, true},
      {ir::Op::bit_and, ir::Op::add, false, true},
      {ir::Op::add, ir::Op::select, false, true},
      {ir::Op::add, ir::Op::bit_xor, true, true},
  };
  for (const auto& row : table)
    EXPECT_EQ(needs_parentheses(row.operation, row.operand, row.is_second), row.needs)
        << ir::name_of(row.operation) << " of " << ir::name_of(row.operand);
  EXPECT_EQ(bare("(a + b)"), "a + b");
  EXPECT_EQ(bare("(a) + (b)"), "(a) + (b)");
  EXPECT_EQ(grouped("(x1_)"), "x1_");
  EXPECT_EQ(grouped("a + b"), "(a + b)");
}

const Case precedence_cases[] = {
    {"choices in choices",
     [](Program& p) {
       const int n = 37;
       Tensor A = p.in(Data::random_integers({n}, i32, 3, -20, 21)), X = p.in(floats({n}, 4)),
              Y = p.out({2, 6, n}, f32);
       grid(1, [&](Index) {
         const auto body = [&](int row, const Index& i) {
           Expr a = A(i), x = X(i), chosen = select(a % 3 == 0, x, 2 * x),
                sign = select(i % 5 < 2, a > 0, a < 7);
           Y(row, 0, i) = select(select(i % 2 == 0, a % 3 == 0, a % 5 == 1), x, -x);
           Y(row, 1, i) = select(a > 0, x, select(a % 2 == 0, x * 3, chosen));
           Y(row, 2, i) = select(a > 0, select(a % 2 == 0, x * 3, chosen), x);
           Y(row, 3, i) = x - (chosen - x) - select(sign, 1.0f, x) * (x + 1);
           Y(row, 4, i) = select(sign == (a > 2) && (sign || a < 1), x / (chosen * 2), x / chosen * 2);
           Y(row, 5, i) = f32((a - (a - i)) % 4 * 3 - (a - i) + select((a & 3) == 1, 1, 0));
         };
         parallel(n, [&](Index i) { body(0, i); });
         serial(n, [&](Index i) { body(1, i); });
       });
     }},
    {"divisions by constants",
     [](Program& p) {
       const int n = 37, divisors[] = {1, 2, 8, 7, 1 << 30};
       Tensor A = p.in(Data::random_integers({n}, i32, 3, -20, 21)),
              U = p.in(Data::random_integers({n}, u32, 4, 0, 21)), Y = p.out({2, 5, 6, n}, i32),
              Z = p.out({2, 5, 2, n}, u32);
       grid(1, [&](Index) {
         const auto body = [&](int row, const Index& i) {
           for (int k = 0; k < 5; ++k) {
             const int by = divisors[k];
             Expr a = A(i), u = U(i);
             Y(row, k, 0, i) = a / by, Y(row, k, 1, i) = a % by;
             Y(row, k, 2, i) = floordiv(a, by), Y(row, k, 3, i) = floormod(a, by);
             Y(row, k, 4, i) = i / by, Y(row, k, 5, i) = i % by;
             Z(row, k, 0, i) = u / u32(by), Z(row, k, 1, i) = u % u32(by);
           }
         };
         parallel(n, [&](Index i) { body(0, i); });
         serial(n, [&](Index i) { body(1, i); });
       });
     }},
};

class CpuPrecedence : public OnEverySet {};
TEGULA_ON_EVERY_SET(CpuPrecedence);
TEST_P(CpuPrecedence, AgreesWithTheInterpreter) { expect_agreement(precedence_cases); }

TEST(CudaPrecedence, AgreesWithTheInterpreter) { expect_agreement_on_cuda(precedence_cases); }

}  // namespace precedence_test
}  // namespace tegula::codegen
