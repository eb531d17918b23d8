// Rows that begin and end at any element, however a program is written: no element beside them is touched.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"

namespace tegula::emulation {
namespace odd_rows_test {

constexpr int rows = 7;  // the last tile lacks one

struct Place {
  const lang::Tensor &x, &out;
  int width;
  lang::Expr row;
};
struct Written {
  const char* name;
  int tile;  // rows of it
  void (*body)(const Place&);
  const char* has = "tg::store_anywhere<";
};

const Written all_written[] = {
    {"softmax", 4,
     [](const Place& p) {
       using namespace lang;
       Fragment x = load(p.x.at(p.row), {4, p.width}, f32), most = reduce_max(x);
       parallel(x, [&](Index i, Index j) { x(i, j) = exp2(x(i, j) - most(i)); });
       Fragment sum = reduce_sum(x);
       parallel(x, [&](Index i, Index j) { x(i, j) /= sum(i); });
       copy(x, p.out.at(p.row));
     }},
    {"row_by_row", 1,
     [](const Place& p) {
       using namespace lang;
       Fragment x = load(p.x.slice(p.row).at(0), {p.width}, f32);
       const Var sum = reduce_sum(x).scalar();
       parallel(x, [&](Index j) { x(j) += sum; });
       copy(x, p.out.slice(p.row).at(0));
     }},
    {"in_one_loop", 4,
     [](const Place& p) {
       using namespace lang;
       Fragment x({4, p.width}, f32);
       parallel(x, [&](Index i, Index j) { x(i, j) = p.x(p.row + i, j) * 2; });
       parallel(x, [&](Index i, Index j) { p.out(p.row + i, j) = x(i, j) + p.x(p.row + i, j); });
     }},
    {"tile_wider_than_rows", 2,
     [](const Place& p) {
       using namespace lang;
       const int wide = (p.width + 127) / 128 * 128;
       Fragment x = load(p.x.at(p.row), {2, wide}, f32), sum = reduce_sum(x);
       parallel(x, [&](Index i, Index j) { x(i, j) -= sum(i); });
       copy(x, p.out.at(p.row));
     }},
    {"filled_beyond_the_end", 2,
     [](const Place& p) {
       using namespace lang;
       const int wide = (p.width + 127) / 128 * 128;
       Fragment x({2, wide}, f32);
       copy(p.x.at(p.row), x, {.fill = -9});
       Fragment least = reduce_min(x);
       parallel(x, [&](Index i, Index j) { x(i, j) -= least(i); });
       copy(x, p.out.at(p.row));
     },
     "tg::load"},
    {"columns_within_rows", 4,
     [](const Place& p) {
       using namespace lang;
       Fragment x = load(p.x.at(p.row, 3), {4, p.width - 9}, f32);
       parallel(x, [&](Index i, Index j) { x(i, j) += 1; });
       copy(x, p.out.at(p.row, 5));
     }},
    {"sums_of_columns", 4,
     [](const Place& p) {
       using namespace lang;
       Fragment x = load(p.x.at(p.row), {4, p.width}, f32), sum = reduce_sum(x, 0);
       parallel(x, [&](Index i, Index j) { x(i, j) = sum(j); });
       copy(x, p.out.at(p.row));
     }},
    {"halves", 4,
     [](const Place& p) {
       using namespace lang;
       const int half = p.width / 2;
       lang::Tensor left = p.x.slice(all, range(0, half)), right = p.x.slice(all, range(half, 2 * half));
       Fragment a = load(left.at(p.row), {4, half}, f32), b = load(right.at(p.row), {4, half}, f32);
       parallel(a, [&](Index i, Index j) { a(i, j) *= b(i, j); });
       copy(a, p.out.slice(all, range(half, 2 * half)).at(p.row));
     },
     "tg::"},
    {"numbers_of_rows_are_divided", 2,
     [](const Place& p) {
       using namespace lang;
       lang::Expr row = min(p.row, ceildiv(p.x.extent(0), 2) * 2);
       Fragment x = load(p.x.at(row), {2, p.width}, f32), sum = reduce_sum(x);
       parallel(x, [&](Index i, Index j) { x(i, j) -= sum(i); });
       copy(x, p.out.at(row));
     }},
    {"steps", 1,
     [](const Place& p) {
       using namespace lang;
       Fragment sum({p.width}, f32, 0);
       pipelined(3, [&](Index step) {
         Fragment x = load(p.x.slice((p.row + step) % rows).at(0), {p.width}, f32);
         parallel(sum, [&](Index j) { sum(j) += x(j); });
       });
       copy(sum, p.out.slice(p.row).at(0));
     }},
};

void PrintTo(const Written& c, std::ostream* out) { *out << c.name; }

lang::Kernel odd_rows(const Written& c, int width, DType type, DType to) {
  using namespace lang;
  return kernel("odd_rows", [&] {
    Dim M("M");
    lang::Tensor x = input("x", {M, width}, type), out = output("out", {M, width}, to);
    grid(ceildiv(M, c.tile), {.threads = 64}, [&](Index block) {
      c.body({x, out, width, Expr(block * c.tile)});
    });
  });
}

class OddRows : public ::testing::TestWithParam<Written> {};

// Rows of `x` are in a wider tensor if it is said so; everything around those of `out` stays as it was.
void expect_rows(const lang::Kernel& program, int width, DType type, DType to, int before, int behind) {
  const int wide = before + width + behind;
  const auto within = [&](const Tensor& t) { return t.slice(1, before, before + width); };
  const Tensor x = Tensor::random_normal({rows, wide}, f32, 3).to(type);
  const auto result = [&](Target target) {
    const Tensor out = Tensor::full({rows, wide}, f32, 77).to(to);
    const std::vector<Argument> values{within(x), within(out)};
    compile(program, target).call_in_order(values);
    return out.to(f32).values<double>();
  };
  const auto wanted = result(Target::interpreter()), got = result(Target::emulated_sm90());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], wanted[i], 1e-5 + 0.02 * std::abs(wanted[i])) << "element " << i;
}

TEST_P(OddRows, AreLoadedAndStoredByAlignedWords) {
  for (const int width : {65, 129, 257, 1001}) {
    SCOPED_TRACE(width);
    const lang::Kernel program = odd_rows(GetParam(), width, bf16, bf16);
    expect_rows(program, width, bf16, bf16, 0, 0);
    const std::string text = codegen::print_cuda(Signature(program.ir()), {90}).text;
    if (width == 1001) { EXPECT_NE(text.find(GetParam().has), std::string::npos) << text; }
  }
}

TEST_P(OddRows, AreOfAnyDtype) {
  const DType types[][2] = {{f16, f16}, {f32, f32}, {bf16, f32}, {f32, bf16}, {bf16, e4m3}, {e4m3, bf16}};
  for (const auto& [type, to] : types) {
    SCOPED_TRACE(std::string(type.name()) + " to " + std::string(to.name()));
    expect_rows(odd_rows(GetParam(), 259, type, to), 259, type, to, 0, 0);
  }
}

TEST_P(OddRows, BeginAnywhereInWiderOnes) {
  for (const auto& [before, behind] : {std::pair(1, 0), std::pair(0, 1), std::pair(3, 8), std::pair(8, 5)}) {
    SCOPED_TRACE(before * 100 + behind);
    for (const int width : {256, 257}) {
      SCOPED_TRACE(width);
      expect_rows(odd_rows(GetParam(), width, bf16, bf16), width, bf16, bf16, before, behind);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Written, OddRows, ::testing::ValuesIn(all_written),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace odd_rows_test
}  // namespace tegula::emulation
