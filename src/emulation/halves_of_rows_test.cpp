// Iterations that store several elements of a tensor, as a rotation does those of both halves of a row, by
// pieces of 16 bytes where each is a piece: on both emulated GPUs beside the interpreter.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace halves_of_rows_test {

using namespace lang;
using tegula::Tensor;

constexpr std::chrono::seconds most_time{60};

struct HalvesCase {
  std::string name;
  std::function<lang::Kernel()> program;
  std::vector<Tensor> inputs;
  Shape shape;
  bool by_pieces;
};
void PrintTo(const HalvesCase& c, std::ostream* out) { *out << c.name; }

enum class Spelling { of_a_tensor, of_slices, of_the_result, shifted, read_again };

// Rows of heads of 2 · half features, each pair of features turned by an angle of its row.
lang::Kernel rotation(int heads, int half, DType type, Spelling spelling) {
  return kernel("rotation", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, heads, 2 * half}, type), turns = input("turns", {M, 2 * half}, f32);
    lang::Tensor out = output("out", {M, heads, 2 * half}, f32);
    grid(M, [&](Index m) {
      lang::Tensor own = out.slice(m), low = own.slice(all, range(0, half)),
                   high = own.slice(all, range(half, 2 * half));
      parallel(heads, half, [&](Index h, Index d) {
        Expr a = x(m, h, d), b = x(m, h, half + d), c = turns(m, d), s = turns(m, half + d);
        if (spelling == Spelling::of_slices) {
          low(h, d) = a * c - b * s;
          high(h, d) = b * c + a * s;
        } else if (spelling == Spelling::shifted) {  // the first feature of each row is the last one's
          own(h, d + 1) = a * c - b * s;
          when(d + 1 < half, [&] { own(h, half + d + 1) = b * c + a * s; }).otherwise([&] {
            own(h, 0) = b * c + a * s;
          });
        } else if (spelling == Spelling::read_again) {
          own(h, d) = a * c - b * s;
          own(h, half + d) = b * c + a * own(h, d);
        } else {
          own(h, d) = a * c - b * s;
          if (spelling == Spelling::of_the_result) own(h, d) *= 2;
          own(h, half + d) = b * c + a * s;
        }
      });
    });
  });
}

// Four rows of a tensor from one iteration.
lang::Kernel fourths(int n) {
  return kernel("fourths", [=] {
    Dim M("M");
    lang::Tensor x = input("x", {M, n}, bf16), out = output("out", {M, 4, n}, f32);
    grid(ceildiv(M, 8), [&](Index block) {
      parallel(8, n, [&](Index i, Index j) {
        Expr m = block * 8 + i, a = x(m, j);
        for (int part = 0; part < 4; ++part) out(m, part, j) = a * static_cast<float>(part + 1);
      });
    });
  });
}

class HalvesOfRows : public ::testing::TestWithParam<HalvesCase> {};

TEST_P(HalvesOfRows, AreAsInterpreted) {
  const HalvesCase& c = GetParam();
  const Watchdog watchdog(c.name, most_time);
  expect_as_interpreted(c.program(), c.inputs, c.shape, 1e-5,
                        {tegula::Target::emulated_sm90(), tegula::Target::emulated()});
  const std::string text = codegen::print_cuda(Signature(c.program().ir()), {90}).text;
  EXPECT_EQ(text.find("tg::store_pack") != std::string::npos, c.by_pieces) << text;
}

HalvesCase rotated(const char* name, Spelling spelling, int heads, int half, DType type, bool by_pieces) {
  const auto normal = [](const Shape& shape, DType of, int seed) {
    return Tensor::random_normal(shape, of, static_cast<std::uint64_t>(seed));
  };
  const Shape shape{5, heads, 2 * half};
  return {name,
          [=] { return rotation(heads, half, type, spelling); },
          {normal(shape, type, 1), normal({5, 2 * half}, f32, 2)},
          shape,
          by_pieces};
}

std::vector<HalvesCase> cases() {
  return {
      rotated("plain", Spelling::of_a_tensor, 3, 64, bf16, true),
      rotated("of_f32", Spelling::of_a_tensor, 2, 16, f32, true),
      rotated("small", Spelling::of_a_tensor, 5, 8, f16, true),
      rotated("odd", Spelling::of_a_tensor, 3, 7, bf16, false),
      rotated("of_slices", Spelling::of_slices, 3, 64, bf16, true),
      rotated("stored_twice", Spelling::of_the_result, 3, 64, bf16, false),
      rotated("shifted", Spelling::shifted, 3, 64, bf16, false),
      rotated("read_again", Spelling::read_again, 3, 64, bf16, false),
      {"fourths", [] { return fourths(64); }, {Tensor::random_normal({13, 64}, bf16, 3)}, {13, 4, 64}, true},
  };
}

INSTANTIATE_TEST_SUITE_P(Table, HalvesOfRows, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace halves_of_rows_test
}  // namespace tegula::emulation
