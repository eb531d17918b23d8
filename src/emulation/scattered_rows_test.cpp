// Rows that a loop stores, or adds, to where a list says: of sums of products, of fragments without a product
// and of shared tiles; each in pieces of 16 bytes where rows allow it, and with every entry of the list read
// once for a row.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace scattered_rows_test {

constexpr std::chrono::seconds most_time{60};
constexpr int rows = 100, depth = 64, places = 150;

enum class From : std::uint8_t { product, fragment, shared };

struct Scatter {
  const char* name;
  From from;
  DType type;
  const char* by;  // in the text for Hopper
  int columns = 64;
  int padding = 0;  // elements between two rows of the tensor
  bool adds = false, limited = false, weighted = false;
  bool chosen = false;  // a row that is not there is said by its place
};

void PrintTo(const Scatter& c, std::ostream* out) { *out << c.name; }

struct Tensors {
  lang::Tensor list, weights, out;
};

template <class Tile>
void scatter(const Scatter& c, const Tensors& of, const lang::Index& block, const Tile& tile) {
  using namespace lang;
  parallel(64, c.columns, [&](Index i, Index j) {
    Expr row = block * 64 + i;
    const auto place = [&] { return c.chosen ? select(row < rows, of.list(row), -1) : Expr(of.list(row)); };
    const auto write = [&] {
      Expr value = c.weighted ? tile(i, j) * of.weights(row) : Expr(tile(i, j));
      if (!c.adds)
        of.out(place(), j) = value;
      else if (c.type == f32)
        atomic_add(of.out(place(), j), value);
      else
        atomic_add(of.out(place(), j), c.type(value));
    };
    if (c.limited)
      when(row < rows, write);
    else
      write();
  });
}

lang::Kernel program(const Scatter& c) {
  using namespace lang;
  return kernel("scatter", [&] {
    lang::Tensor a = input("a", {128, depth}, bf16), b = input("b", {c.columns, depth}, bf16),
                 list = input("list", {128}, i32), weights = input("weights", {128}, f32),
                 out = inout("out", {places, c.columns}, c.type);
    grid(2, {.threads = 128}, [&](Index block) {
      const Tensors of{list, weights, out};
      if (c.from == From::product) {
        Fragment sum({64, c.columns}, f32, 0);
        pipelined(2, {.stages = 2}, [&](Index n) {
          Shared left({64, depth / 2}, bf16), right({c.columns, depth / 2}, bf16);
          copy(a.at(block * 64, n * (depth / 2)), left);
          copy(b.at(0, n * (depth / 2)), right);
          gemm(left, right.T(), sum);
        });
        return scatter(c, of, block, sum);
      }
      if (c.from == From::fragment)
        return scatter(c, of, block, load(a.at(block * 64, 0), {64, c.columns}, f32));
      Shared tile({64, c.columns}, bf16);
      copy(a.at(block * 64, 0), tile);
      scatter(c, of, block, tile);
    });
  });
}

// Different places, some of them outside the tensor; -7 where nothing is read.
Tensor list_of(const Scatter& c) {
  std::vector<std::int32_t> result(128, -7);
  for (int i = 0; i < (c.limited ? rows : 128); ++i)
    result[static_cast<std::size_t>(i)] = (i * 7 + 3) % 160 - 5;
  return Tensor::from(result, {128});
}

class ScatteredRows : public ::testing::TestWithParam<Scatter> {};

TEST_P(ScatteredRows, AreWhereTheListSays) {
  const Watchdog watchdog("scattered rows", most_time);
  const Scatter& c = GetParam();
  const lang::Kernel kernel = program(c);
  EXPECT_NE(codegen::print_cuda(Signature(kernel.ir()), {90}).text.find(c.by), std::string::npos);
  const Tensor a = Tensor::random_integers({128, depth}, bf16, 1, -3, 3),
               b = Tensor::random_integers({c.columns, depth}, bf16, 2, -1, 1),
               weights = Tensor::random_integers({128}, f32, 3, 1, 3), list = list_of(c);
  const auto result = [&](Target target) {
    const Tensor whole = Tensor::full({places, c.columns + c.padding}, c.type, 5);
    compile(kernel, target)(a, b, list, weights, whole.ref().slice(1, 0, c.columns));
    return whole;
  };
  const Tensor expected = result(Target::interpreter());
  std::vector<Target> targets{Target::emulated_sm90()};
  if (c.weighted) targets.insert(targets.end(), {Target::emulated(), Target::cpu()});
  for (const Target target : targets) EXPECT_TRUE(all_close(result(target), expected, 0, 0)) << c.name;
}

const Scatter scatters[] = {
    {"sums", From::product, bf16, "tg::store_quad("},
    {"sums_f32", From::product, f32, "tg::store_quad("},
    {"sums_padded", From::product, bf16, "tg::store_quad(", 64, 8},
    {"sums_off_16_bytes", From::product, bf16, "tg::store_quad(", 64, 3},
    {"sums_narrow", From::product, bf16, "of_row", 24},
    {"sums_weighted", From::product, bf16, "tg::store_quad(", 64, 0, false, true, true},
    {"sums_added", From::product, f32, "tg::add_quad(", 64, 0, true},
    {"sums_added_limited", From::product, f32, "tg::add_quad(", 48, 4, true, true, true},
    {"sums_added_bf16", From::product, bf16, "tg::add_quad(", 64, 0, true, true},
    {"sums_added_f16", From::product, f16, "tg::add_quad(", 32, 0, true, true},
    {"sums_added_narrow", From::product, f32, "tg::add_pack(", 24, 0, true},
    {"fragments_weighted", From::fragment, f32, "tg::store_pack(", 64, 0, false, true, true},
    {"fragments_added", From::fragment, f32, "tg::add_pack(", 64, 0, true, true, true},
    {"fragments_added_bf16", From::fragment, bf16, "tg::add_pack(", 64, 0, true, true},
    {"sums_chosen", From::product, bf16, "tg::store_quad(", 64, 0, false, false, false, true},
    {"fragments_chosen", From::fragment, bf16, "tg::store_pack(", 64, 0, false, false, false, true},
    {"fragments_chosen_added", From::fragment, f32, "tg::add_pack(", 64, 0, true, false, true, true},
    {"tiles_chosen", From::shared, bf16, "tg::store_pack(", 64, 0, false, false, false, true},
    {"tiles", From::shared, bf16, "tg::store_pack("},
    {"tiles_limited", From::shared, f32, "tg::store_pack(", 64, 0, false, true},
};

INSTANTIATE_TEST_SUITE_P(Table, ScatteredRows, ::testing::ValuesIn(scatters),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace scattered_rows_test
}  // namespace tegula::emulation
