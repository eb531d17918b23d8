// Numbers of few bits times factors, rounded to bf16 for a product: by products of bf16 where these give what
// those of f32 give, whatever the factors are.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace exact_factors_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 64, columns = 64, few = 16;

struct Factored {
  const char* name;
  // The element of a word and of a number that its row has.
  lang::Expr (*element)(const lang::Expr& word, const lang::Expr& factor);
  DType factor = bf16;
  bool in_pairs = true;
  bool read_again = false;  // the numbers are stored, too
  DType operand = bf16;
};

void PrintTo(const Factored& c, std::ostream* out) { *out << c.name; }

lang::Expr number_of(const lang::Expr& word) { return bitcast(word & 0x81c00000u, f32); }
lang::Expr exponent(const lang::Expr& byte) {
  using namespace lang;
  return bitcast(select(byte == 255, 0x7fc00000u, max(u32(byte) << 23u, 1u << 22u)), f32);
}

lang::Kernel product(const Factored& c) {
  using namespace lang;
  return kernel("factored", [&] {
    lang::Tensor words = input("words", {rows, columns}, u32), factors = input("factors", {rows}, c.factor),
                 a = input("a", {few, columns}, c.operand), out = output("out", {rows, few}, f32);
    std::optional<lang::Tensor> again;
    if (c.read_again) again.emplace(workspace("again", {rows, columns}, f32));
    grid(1, {.threads = 128}, [&](Index) {
      Fragment sum({rows, few}, f32, 0);
      pipelined(1, {.stages = 1}, [&](Index) {
        Shared a_tile({few, columns}, c.operand), w_tile({rows, columns}, u32), of_row({rows}, c.factor);
        copy(a, a_tile);
        copy(words, w_tile);
        copy(factors, of_row);
        Fragment numbers({rows, columns}, f32);
        parallel(numbers, [&](Index i, Index j) {
          numbers(i, j) = c.element(w_tile(i, j), c.factor == u8 ? Expr(of_row(i)) : Expr(f32(of_row(i))));
        });
        if (again) copy(numbers, *again);
        gemm(numbers.to(c.operand), a_tile.T(), sum);
      });
      copy(sum, out);
    });
  });
}

// Scales of usual sizes, the least and the largest, none, infinity and NaN.
Tensor factors_of(DType type) {
  Tensor result = Tensor::random_normal({rows}, f32, 3);
  const float usual[] = {0.f, -0.f, 0x1p-133f, 0x1p-126f, 0x1.fep127f, -0x1p126f, INFINITY, NAN};
  for (std::size_t i = 0; i < std::size(usual); ++i) result.data_as<float>()[i] = usual[i];
  return type == u8 ? Tensor::random_integers({rows}, i32, 3, 0, 256).to(u8) : result.to(type);
}

class ExactFactors : public ::testing::TestWithParam<Factored> {};

TEST_P(ExactFactors, GiveTheSame) {
  const Watchdog watchdog("exact factors", most_time);
  const Factored& c = GetParam();
  const lang::Kernel program = product(c);
  const std::string text = text_with_roles(program);
  EXPECT_EQ(text.find("tg::times_bf16(") != std::string::npos, c.in_pairs) << text;
  // One element of a row, so that a sum is what the element was rounded to.
  Tensor a = Tensor::zeros({few, columns}, f32);
  for (int i = 0; i < few; ++i) a.data_as<float>()[i * columns + 3 * i] = 1;
  Tensor words = Tensor::zeros({rows, columns}, u32);
  for (int i = 0; i < rows * columns; ++i) words.data_as<std::uint32_t>()[i] = 2654435761u * (i + 1u);
  const auto bits = [&](Target target) {
    Tensor out = Tensor::full({rows, few}, f32, NAN);
    const std::vector<Argument> values{words, factors_of(c.factor), a.to(c.operand), out};
    compile(program, target).call_in_order(values);
    return out.values<float>();
  };
  const auto wanted = bits(Target::interpreter()), got = bits(Target::emulated_sm90());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_TRUE(std::bit_cast<std::uint32_t>(wanted[i]) == std::bit_cast<std::uint32_t>(got[i]) ||
                (std::isnan(wanted[i]) && std::isnan(got[i])))
        << "element " << i << ": " << got[i] << ", not " << wanted[i];
}

INSTANTIATE_TEST_SUITE_P(
    Table, ExactFactors,
    ::testing::Values(
        Factored{
            "powers",
            [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * 0x1p126f * exponent(x); },
            u8},
        Factored{"of_bf16",
                 [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * 0x1p126f * x; }},
        Factored{"of_e4m3",
                 [](const lang::Expr& w, const lang::Expr& x) { return x * (0x1p126f * number_of(w)); },
                 e4m3},
        Factored{"without_factor",
                 [](const lang::Expr& w, const lang::Expr&) { return number_of(w) * 0x1p126f; }},
        Factored{"of_f32",
                 [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * 0x1p126f * x; }, f32,
                 false},
        Factored{"small_power",
                 [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * 0x1p20f * x; }, bf16,
                 false},
        Factored{"no_power_of_two",
                 [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * 0x1.8p126f * x; }, bf16,
                 false},
        Factored{"factors_first",
                 [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * (x * 0x1p126f); }, bf16,
                 false},
        Factored{"long_numbers",
                 [](const lang::Expr& w, const lang::Expr& x) {
                   return bitcast(w & 0x81c00800u, f32) * 0x1p126f * x;
                 },
                 bf16, false},
        Factored{"of_infinite_bits",
                 [](const lang::Expr& w,
                    const lang::Expr& x) { return bitcast(w & 0x7fc00000u, f32) * 0x1p126f * x; },
                 bf16, false},
        Factored{"read_again",
                 [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * 0x1p126f * x; }, bf16,
                 false, true},
        Factored{"operand_of_f16",
                 [](const lang::Expr& w, const lang::Expr& x) { return number_of(w) * 0x1p126f * x; }, bf16,
                 false, false, f16}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace exact_factors_test
}  // namespace tegula::emulation
