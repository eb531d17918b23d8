// Which expressions are a few bits of a word, and what they are as floats.
#include "codegen/cuda/word_bits.hpp"

#include <gtest/gtest.h>

#include "codegen/cuda/testing/texts.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {
namespace word_bits_test {

using lang::Expr;

struct BitsCase {
  const char* name;
  int first, count;  // 0: none
  Expr (*of)(const Expr& word);
};

void PrintTo(const BitsCase& c, std::ostream* out) { *out << c.name; }

const BitsCase cases[] = {
    {"the_lowest", 0, 4, [](const Expr& w) { return w & 15u; }},
    {"the_mask_in_front", 0, 4, [](const Expr& w) { return 15u & w; }},
    {"shifted_and_masked", 12, 4, [](const Expr& w) { return (w >> 12u) & 15u; }},
    {"masked_and_shifted", 12, 4, [](const Expr& w) { return (w & 0xf000u) >> 12u; }},
    {"masked_with_more_and_shifted", 12, 4, [](const Expr& w) { return (w & 0xffffu) >> 12u; }},
    {"across_the_mantissas_end", 21, 4, [](const Expr& w) { return (w >> 21u) & 15u; }},
    {"the_highest", 28, 4, [](const Expr& w) { return w >> 28u; }},
    {"the_sign", 31, 1, [](const Expr& w) { return (w >> 31u) & 1u; }},
    {"as_a_signed_number", 20, 3, [](const Expr& w) { return i32((w >> 20u) & 7u); }},
    {"of_a_signed_number", 20, 3, [](const Expr& w) { return (i32(w) >> 20) & 7; }},
    {"seven", 5, 7, [](const Expr& w) { return (w >> 5u) & 127u; }},
    {"a_byte", 0, 0, [](const Expr& w) { return (w >> 8u) & 255u; }},
    {"a_mask_with_a_hole", 0, 0, [](const Expr& w) { return (w >> 8u) & 13u; }},
    {"a_mask_that_begins_later", 0, 0, [](const Expr& w) { return w & 0xf0u; }},
    {"a_signed_number_shifted", 0, 0, [](const Expr& w) { return i32(w) >> 28; }},
    {"of_a_shift_that_is_not_known", 0, 4, [](const Expr& w) { return (w >> (w & 31u)) & 15u; }},
};

class WordBits : public ::testing::TestWithParam<BitsCase> {};

TEST_P(WordBits, BecomeFloatsByTheirMantissa) {
  using namespace lang;
  const BitsCase& c = GetParam();
  const lang::Kernel program = kernel("bits", [&] {
    lang::Tensor x = input("x", {256}, u32), y = output("y", {256}, f32), z = output("z", {256}, bf16);
    grid(1, {.threads = 128}, [&](Index) {
      parallel(256, [&](Index i) { y(i) = f32(c.of(x(i))) * 2; });
      parallel(256, [&](Index i) { z(i) = bf16(c.of(x(i))); });
    });
  });
  const std::string text = print_cuda(Signature(program.ir()), {90}).text;
  const std::string call = fmt::format("tg::bits_to_f32<{}, {}>(", c.first, c.count);
  if (c.count > 0)
    EXPECT_NE(text.find(call), std::string::npos) << text;
  else
    EXPECT_EQ(text.find("bits_to_f32"), std::string::npos) << text;
  expect_clean_code(program, 90);
  Data x = Data::random_integers({256}, i32, 1, -(1 << 30), 1 << 30).to(i32);
  for (int i = 0; i < 256; ++i) x.at<std::int32_t>(i) *= 5;
  Data words = Data::zeros({256}, u32);
  std::memcpy(words.data(), x.data(), static_cast<std::size_t>(x.nbytes()));
  const auto results = [&](tegula::Target target) {
    const Data y = Data::zeros({256}, f32), z = Data::zeros({256}, bf16);
    compile(program, target)(words, y, z);
    return std::pair(y.values<double>(), z.values<double>());
  };
  EXPECT_EQ(results(tegula::Target::emulated_sm90()), results(tegula::Target::interpreter()));
}

INSTANTIATE_TEST_SUITE_P(Table, WordBits, ::testing::ValuesIn(cases),
                         [](auto& info) { return std::string(info.param.name); });

}  // namespace word_bits_test
}  // namespace tegula::codegen
