// Numbers of 4 and 2 bits: read, converted and packed by every executor as by tables written here.
#include <gtest/gtest.h>

#include <cstring>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace packed_numbers_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 37, columns = 96, tile_rows = 16, tile_columns = 32;
constexpr double magnitudes[] = {0, .5, 1, 1.5, 2, 3, 4, 6};

struct Format {
  const char* name;
  lang::PackedType type;
};
const Format formats[] = {{"i4", lang::i4},
                          {"i2", lang::i2},
                          {"e2m1", lang::e2m1},
                          {"u4_minus_8", lang::u4.minus(8)},
                          {"i4_words", lang::i4.in_words()},
                          {"u2_minus_1_words", lang::u2.minus(1).in_words()},
                          {"e2m1_words", lang::e2m1.in_words()}};

double number_of(lang::PackedType type, int code) {
  if (type.value() == f32) return code < 8 ? magnitudes[code] : -magnitudes[code - 8];
  const bool is_negative = type.code == lang::PackedType::Code::signed_integer && code >> (type.bits - 1);
  return code - (is_negative ? 1 << type.bits : 0) - type.excess;
}

int code_of(const std::vector<std::uint8_t>& bytes, lang::PackedType type, std::int64_t number) {
  const int in_byte = 8 / type.bits;
  return bytes[static_cast<std::size_t>(number / in_byte)] >> (number % in_byte * type.bits) &
         ((1 << type.bits) - 1);
}

// The elements of `bytes`: in words the same bytes.
Tensor elements_of(const std::vector<std::uint8_t>& bytes, lang::PackedType type) {
  const Tensor result = Tensor::zeros({rows, columns / type.in_element()}, type.storage);
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}
std::vector<std::uint8_t> bytes_of(const Tensor& elements) {
  const auto* first = static_cast<const std::uint8_t*>(elements.data());
  return {first, first + elements.nbytes()};
}
std::vector<std::uint8_t> random_bytes(lang::PackedType type) {
  return bytes_of(Tensor::random_integers({rows, columns * type.bits / 8}, i32, 7, 0, 256).to(u8));
}

// Numbers through a Shared tile and its conversion, from the tensor's window, and one by one.
void convert(const lang::PackedTensor& W, const lang::Tensor (&out)[3], const lang::Expr& row,
             const lang::Expr& column) {
  using namespace lang;
  PackedShared tile("weights", {tile_rows, tile_columns}, W.type());
  copy(W.at(row, column), tile);
  copy(load(tile, {tile_rows, tile_columns}, bf16), out[0].at(row, column));
  copy(load(W.at(row, column), {tile_rows, tile_columns}, f32), out[1].at(row, column));
  parallel(tile_rows, tile_columns, [&](Index i, Index j) {
    Expr last = tile_columns - 1 - j, number = f32(tile(i, last));
    out[2](row + i, column + last) = number;
  });
}

// Packs numbers through a tile and directly.
void pack(const lang::Tensor& X, const lang::PackedTensor (&out)[2], const lang::Expr& row,
          const lang::Expr& column) {
  using namespace lang;
  Shared x({tile_rows, tile_columns}, X.type());
  PackedShared tile({tile_rows, tile_columns}, out[0].type());
  copy(X.at(row, column), x);
  copy(x, tile);
  copy(tile, out[0].at(row, column));
  copy(load(X.at(row, column), {tile_rows, tile_columns}), out[1].at(row, column));
}

lang::Kernel conversions(lang::PackedType type) {
  using namespace lang;
  return kernel("conversions", [&] {
    Dim N("N");
    const auto numbers = [&](const char* name) { return output(name, {N, columns}, f32); };
    PackedTensor W = input("W", {N, columns}, type);
    lang::Tensor X = input("X", {N, columns}, type.value());
    const lang::Tensor converted[] = {numbers("tiles"), numbers("windows"), numbers("numbers")};
    const PackedTensor packed[] = {output("packed_tiles", {N, columns}, type),
                                   output("packed_windows", {N, columns}, type)};
    grid(ceildiv(N, tile_rows), columns / tile_columns, [&](Index by, Index bx) {
      convert(W, converted, by * tile_rows, bx * tile_columns);
      pack(X, packed, by * tile_rows, bx * tile_columns);
    });
  });
}

// Floats between all numbers, ties, and what no number is near; integers beyond both ends.
Tensor unpacked(lang::PackedType type) {
  if (type.value() == i32) return Tensor::random_integers({rows, columns}, i32, 5, -40, 40);
  const Tensor x = Tensor::random_integers({rows, columns}, i32, 5, -60, 60).to(f32);
  auto* numbers = x.data_as<float>();
  for (std::int64_t i = 0; i < x.nelements(); ++i) numbers[i] /= 8;
  const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 1e-30f, 0.25f + 0x1p-25f, -448};
  std::copy(std::begin(special), std::end(special), numbers);
  return x;
}

int nearest_code(lang::PackedType type, double x) {
  if (type.value() == i32) return (static_cast<int>(x) + type.excess) & ((1 << type.bits) - 1);
  const double magnitude = std::isnan(x) ? INFINITY : std::abs(x);
  int best = 7;
  for (int code = 6; code >= 0; --code) {
    const double here = std::abs(magnitude - magnitudes[code]),
                 other = std::abs(magnitude - magnitudes[best]);
    if (here < other || (here == other && code % 2 == 0 && std::isfinite(magnitude))) best = code;
  }
  return best | (std::signbit(x) ? 8 : 0);
}

class PackedNumbers : public ::testing::TestWithParam<Format> {};

TEST_P(PackedNumbers, AreThoseOfTables) {
  const Watchdog watchdog("packed numbers", most_time);
  const lang::PackedType type = GetParam().type;
  const lang::Kernel program = conversions(type);
  const std::vector<std::uint8_t> bytes = random_bytes(type);
  const Tensor x = unpacked(type);
  const std::vector<double> numbers = x.values<double>();
  for (const Target target : {Target::interpreter(), Target::cpu(), Target::emulated_sm90()}) {
    const auto nan = [] { return Tensor::full({rows, columns}, f32, NAN); };
    const Tensor out[] = {nan(), nan(), nan()}, packed[] = {elements_of({}, type), elements_of({}, type)};
    compile(program, target)(elements_of(bytes, type), x, out[0], out[1], out[2], packed[0], packed[1]);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      for (const Tensor& each : out)
        ASSERT_EQ(each.data_as<float>()[i], number_of(type, code_of(bytes, type, at))) << "number " << i;
      for (const Tensor& each : packed)
        ASSERT_EQ(code_of(bytes_of(each), type, at), nearest_code(type, numbers[i]))
            << "number " << i << ", " << numbers[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedNumbers, ::testing::ValuesIn(formats),
                         [](const auto& info) { return std::string(info.param.name); });

// A product with packed weights, which warp groups read from registers.
constexpr int product_m = 64, product_n = 40, product_k = 192;
constexpr lang::PackedType product_type = lang::u4.minus(8).in_words();

lang::Kernel product_of_packed() {
  using namespace lang;
  constexpr int step = 64;
  return kernel("packed_product", [&] {
    PackedTensor W = input("W", {product_m, product_k}, product_type);
    lang::Tensor X = input("X", {product_n, product_k}, bf16),
                 out = output("out", {product_m, product_n}, f32);
    grid(1, [&](Index) {
      Fragment sum({product_m, product_n}, f32, 0);
      pipelined(product_k / step, {.stages = 2}, [&](Index s) {
        PackedShared w({product_m, step}, product_type);
        Shared x({product_n, step}, bf16);
        copy(W.at(0, s * step), w);
        copy(X.at(0, s * step), x);
        gemm(load(w, {product_m, step}, bf16), x.T(), sum);
      });
      copy(sum, out);
    });
  });
}

TEST(PackedProducts, AreExact) {
  const Watchdog watchdog("a product of packed weights", most_time);
  const lang::Kernel program = product_of_packed();
  const std::string text = text_with_roles(program);
  EXPECT_NE(text.find("wgmma_n40_bf16"), std::string::npos) << text;
  expect_as_interpreted(program,
                        {Tensor::random_integers({product_m, product_k / 8}, i32, 3, 0, 2000000000).to(u32),
                         Tensor::random_integers({product_n, product_k}, i32, 4, -4, 5).to(bf16)},
                        {product_m, product_n}, 0,
                        {Target::cpu(), Target::emulated(), Target::emulated_sm90()});
}

}  // namespace packed_numbers_test
}  // namespace tegula::emulation
