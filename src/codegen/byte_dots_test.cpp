// Sums of products of bytes: which are printed as one function for four, also of what stands for halves of
// them, and that all have the same results.
#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace byte_dots_test {

using namespace lang;
using lang::Tensor;

constexpr int count = 37;

Expr product(const Expr& a, std::uint32_t a_bit, const Expr& b, std::uint32_t b_bit) {
  return i32(u8(a >> a_bit)) * i32(i8(b >> b_bit));
}
Expr dot(const Operand& sum, const Expr& a, const Expr& b, std::uint32_t bits = 32) {
  Operand result = sum;
  for (std::uint32_t bit = 0; bit < bits; bit += 8) result = Operand(result + product(a, bit, b, bit));
  return Expr(result);
}

// Products of what `of` makes of half of each byte.
Expr dot_of_halves(const Operand& sum, const Expr& a, const Expr& b, std::uint32_t half,
                   const std::function<Expr(const Expr& number)>& of) {
  Operand result = sum;
  for (std::uint32_t bit = 0; bit < 32; bit += 8)
    result = Operand(result + of((a >> (bit + half)) & 15u) * i32(i8(b >> bit)));
  return Expr(result);
}
Expr squared(const Expr& number) { return i32(number * number) + 7; }
Expr stepped(const Expr& number) { return select(number < 5u, 250 - i32(number & 3u), i32(number >> 2u)); }
Expr half_of(const Expr& number) { return i32(f32(number) * 1.5f); }

void elements(Program& p, const std::function<Expr(const Expr& a, const Expr& b)>& of) {
  Tensor a = p.in(Data::random_integers({count}, u32, 1, 0, std::int64_t{1} << 32));
  Tensor b = p.in(Data::random_integers({count}, u32, 2, 0, std::int64_t{1} << 32)),
         out = p.out({count}, i32);
  grid(1, [&](Index) { parallel(count, [&](Index i) { out(i) = of(a(i), b(i)); }); });
}

const Case whole[] = {
    {"after a constant", [](Program& p) { elements(p, [](auto& a, auto& b) { return dot(-5, a, b); }); }},
    {"of an expression, in two statements",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         return dot(dot(i32(a & 255u), (a >> 4u) & 0x0f0f0f0fu, b), a ^ b, b) * 3;
       });
     }},
    {"of one and the same word",
     [](Program& p) { elements(p, [](auto& a, auto&) { return dot(0, a, a); }); }},
    {"signed bytes first",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         Operand sum = 1;
         for (const std::uint32_t bit : {16u, 0u, 24u, 8u})
           sum = Operand(sum + i32(i8(b >> bit)) * i32(u8(a >> bit)));
         return Expr(sum);
       });
     }},
    {"of lower halves, squared",
     [](Program& p) { elements(p, [](auto& a, auto& b) { return dot_of_halves(3, a, b, 0, squared); }); }},
    {"of upper halves, by a branch",
     [](Program& p) { elements(p, [](auto& a, auto& b) { return dot_of_halves(0, a, b, 4, stepped); }); }},
    {"of both halves, by floats",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         return dot_of_halves(dot_of_halves(1, a, b, 0, half_of), a, b, 4, half_of);
       });
     }},
    {"beside one that lacks a byte",
     [](Program& p) { elements(p, [](auto& a, auto& b) { return dot(dot(0, b, a, 24), a, b); }); }},
};
const Case other[] = {
    {"three bytes", [](Program& p) { elements(p, [](auto& a, auto& b) { return dot(2, a, b, 24); }); }},
    {"three bytes in each of many statements",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         Operand sum = 0;
         for (std::uint32_t i = 1; i < 40; ++i) sum = Operand(dot(sum, a, b * i, 24));
         return Expr(sum);
       });
     }},
    {"bytes that do not meet",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         return product(a, 0, b, 8) + product(a, 8, b, 0) + product(a, 16, b, 24) + product(a, 24, b, 16);
       });
     }},
    {"functions of halves that differ",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         Operand sum = 0;
         for (std::uint32_t bit = 0; bit < 32; bit += 8)
           sum = Operand(sum + i32(((a >> bit) & 15u) + bit) * i32(i8(b >> bit)));
         return Expr(sum);
       });
     }},
    {"functions of halves that leave a byte",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         return dot_of_halves(0, a, b, 0, [](const Expr& number) { return i32(number) * 18; });
       });
     }},
    {"functions of five bits",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         Operand sum = 0;
         for (std::uint32_t bit = 0; bit < 32; bit += 8)
           sum = Operand(sum + (i32((a >> bit) & 31u) + 1) * i32(i8(b >> bit)));
         return Expr(sum);
       });
     }},
    {"not at bytes",
     [](Program& p) {
       elements(p, [](auto& a, auto& b) {
         return product(a, 4, b, 4) + product(a, 8, b, 8) + product(a, 16, b, 16) + product(a, 24, b, 24);
       });
     }},
};

class ByteDots : public OnEverySet {};
TEGULA_ON_EVERY_SET(ByteDots);
TEST_P(ByteDots, AgreeWithTheInterpreter) {
  expect_agreement(whole);
  expect_agreement(other);
}
TEST(ByteDots, AgreeByTheInstructionsOfThisMachine) { expect_agreement(whole); }

TEST(ByteDots, AreOfAllFourBytes) {
  const auto has = [](const Case& one) {
    const Signature signature(Comparison(std::span(&one, 1)).kernel().ir());
    return print_cpu(signature).text.find("dot_bytes(") != std::string::npos;
  };
  for (const Case& one : whole) EXPECT_TRUE(has(one)) << one.name;
  for (const Case& one : other) EXPECT_FALSE(has(one)) << one.name;
}

}  // namespace byte_dots_test
}  // namespace tegula::codegen
