// Tiles of 8-bit floats that the producer converts, and scales, on their way into shared memory.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"

namespace tegula::emulation {
namespace converted_tiles_test {

constexpr int rows = 128, depth = 256, group = 128;

struct Converted {
  const char* name;
  DType from, to;
  // A step's tile of [64, 128] from the tensor, with a scale for each row and group.
  void (*fill)(const lang::Tensor& x, const lang::Tensor& scale, const lang::Expr& k, lang::Shared& tile);
};

void PrintTo(const Converted& c, std::ostream* out) { *out << c.name; }

void scaled_by_row(const lang::Tensor& x, const lang::Tensor& scale, const lang::Expr& k,
                   lang::Shared& tile) {
  using namespace lang;
  lang::Tensor columns = x.slice(all, range(k * group, (k + 1) * group));
  parallel(tile, [&](Index i, Index j) { tile(i, j) = columns(i, j) * scale(i, k); });
}

void scaled_by_column(const lang::Tensor& x, const lang::Tensor& scale, const lang::Expr& k,
                      lang::Shared& tile) {
  using namespace lang;
  parallel(tile,
           [&](Index i, Index j) { tile(i, j) = x(i, k * group + j) * scale(i, (k * group + j) / group); });
}

void plain(const lang::Tensor& x, const lang::Tensor&, const lang::Expr& k, lang::Shared& tile) {
  lang::copy(x.at(0, k * group), tile);
}

void of_whole_numbers(const lang::Tensor& x, const lang::Tensor& scale, const lang::Expr& k,
                      lang::Shared& tile) {
  using namespace lang;
  parallel(tile, [&](Index i, Index j) { tile(i, j) = f32(x(i, k * group + j)) * scale(i, k); });
}

lang::Kernel converted(const Converted& c) {
  using namespace lang;
  return kernel("converted", [&] {
    lang::Tensor A = input("A", {rows, depth}, c.to), X = input("X", {64, depth}, c.from);
    lang::Tensor scale = input("scale", {64, depth / group}, f32), out = output("out", {rows, 64}, f32);
    grid(1, {.threads = 256}, [&](Index) {
      Fragment acc({rows, 64}, f32, 0);
      pipelined(depth / group, {.stages = 2}, [&](Index k) {
        Shared a({rows, group}, c.to), b({64, group}, c.to);
        copy(A.at(0, k * group), a);
        c.fill(X, scale, k, b);
        gemm(a, b.T(), acc);
      });
      copy(acc, out.at(0, 0));
    });
  });
}

class ConvertedTiles : public ::testing::TestWithParam<Converted> {};

TEST_P(ConvertedTiles, AreAsInterpreted) {
  const Converted& c = GetParam();
  const lang::Kernel program = converted(c);
  const std::string text = text_with_roles(program);
  if (c.fill != plain) { EXPECT_NE(text.find("tg::store_part"), std::string::npos) << text; }
  const auto scales = Tensor::random_uniform({64, depth / group}, f32, 3, .5, 1.5);
  // A row that begins elsewhere is converted element by element.
  for (const int more : {0, 3}) {
    const Tensor room = Tensor::random_normal({64, depth + more}, f32, 1, 0, 1).to(c.from);
    expect_as_interpreted(
        program,
        {Tensor::random_normal({rows, depth}, c.to, 2, 0, 1), room.slice(1, more, depth + more), scales},
        {rows, 64}, 1e-3);
  }
}

const Converted all_converted[] = {
    {"e4m3_to_bf16_scaled_by_row", e4m3, bf16, scaled_by_row},
    {"e4m3_to_f16_scaled_by_column", e4m3, f16, scaled_by_column},
    {"e5m2_to_f16_scaled_by_row", e5m2, f16, scaled_by_row},
    {"e4m3_to_bf16", e4m3, bf16, plain},
    {"u8_to_bf16_scaled_by_row", u8, bf16, of_whole_numbers},
};

INSTANTIATE_TEST_SUITE_P(Table, ConvertedTiles, ::testing::ValuesIn(all_converted),
                         [](auto& info) { return std::string(info.param.name); });

// A page of rows for each step, with a factor of every 128 features. Whole pages are asked for once, so that
// threads move from row to row.
lang::Kernel converted_pages(int features) {
  using namespace lang;
  return kernel("pages", [&] {
    Dim pages("pages"), steps("steps");
    lang::Tensor A = input("A", {64, features}, bf16), X = input("X", {pages, 64, features}, e4m3);
    lang::Tensor scale = input("scale", {pages, 64, features / group}, f32),
                 table = input("table", {steps}, i32), out = output("out", {64, 64}, f32);
    grid(1, {.threads = 128}, [&](Index) {
      Shared a({64, features}, bf16);
      copy(A, a);
      Fragment acc({64, 64}, f32, 0);
      pipelined(steps, {.stages = 2}, [&](Index k) {
        Shared b({64, features}, bf16);
        Expr page = table(k);
        parallel(b, [&](Index i, Index j) { b(i, j) = X(page, i, j) * scale(page, i, j / group); });
        gemm(a, b.T(), acc);
      });
      copy(acc, out);
    });
  });
}

class ConvertedPages : public ::testing::TestWithParam<int> {};

// Pages that do not exist are zeros. Pointers move from row to row, and lines of the next step's rows are
// prefetched, also where a block has a processor alone (512 features).
TEST_P(ConvertedPages, AreFoundByMovingFromRowToRow) {
  const int features = GetParam(), pages = 3;
  const lang::Kernel program = converted_pages(features);
  const std::string text = text_with_roles(program);
  for (const char* part : {"tg::keep_order", "tg::prefetch"})
    EXPECT_NE(text.find(part), std::string::npos) << part << text;
  // The first loads of a step are begun together, in front of what is made of them.
  EXPECT_LT(text.find("tg::keep_order"), text.find("tg::store_part")) << text;
  const Tensor table = Tensor::from(std::vector<std::int32_t>{2, -1, 0, pages, 1});
  for (const int more : {0, 3}) {
    const Tensor room = Tensor::random_normal({pages, 64, features + more}, f32, 1, 0, 1).to(e4m3);
    expect_as_interpreted(
        program,
        {Tensor::random_normal({64, features}, bf16, 2, 0, 1), room.slice(2, more, features + more),
         Tensor::random_uniform({pages, 64, features / group}, f32, 3, .5, 1.5), table},
        {64, 64}, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Features, ConvertedPages, ::testing::Values(128, 512));

}  // namespace converted_tiles_test
}  // namespace tegula::emulation
