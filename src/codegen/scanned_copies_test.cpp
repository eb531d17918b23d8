// Copies that scans make: which do, and that results stay what they are.
#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"

namespace tegula::codegen {
namespace scanned_copies_test {

using namespace lang;
using lang::Tensor;

Data wholes(const Shape& shape, DType type) { return Data::random_integers(shape, type, 1, 0, 5); }

// Rows of tensors that end within a tile and within a vector, with what stands for elements that do not
// exist.
void of_tensors(Program& p, DType type, DType result, int columns) {
  Tensor x = p.in(wholes({5, columns}, type)), out = p.out({4, 5, columns}, result);
  grid(2, [&](Index block) {
    int way = 0;
    for (const bool exclusive : {false, true})
      for (const bool reverse : {false, true}) {
        Fragment own({3, 96}, compute_type(type));
        copy(x.at(block * 3), own, {.fill = 2});
        copy(scan_sum(own, {.exclusive = exclusive, .reverse = reverse}), out.slice(way++).at(block * 3));
      }
  });
}

// A tile that others read too, and one that is changed before it is stored.
void of_tiles(Program& p) {
  Tensor x = p.in(wholes({4, 80}, f32)), out = p.out({2, 4, 80}, f32);
  grid(4, [&](Index row) {
    Fragment own({80}, f32);
    copy(x.slice(row), own);
    Fragment sums = scan_sum(own);
    parallel(sums, [&](Index i) { sums(i) = sums(i) * 2 + own(i); });
    copy(sums, out.slice(0, row));
    copy(scan_max(own), out.slice(1, row));
  });
}

// What a tile holds of the numbers that stand for elements that do not exist.
void of_rounded_fills(Program& p) {
  Tensor x = p.in(wholes({4, 40}, bf16)), out = p.out({4, 96}, f32);
  grid(4, [&](Index row) {
    Fragment own({96}, bf16);
    copy(x.slice(row), own, {.fill = 0.1});
    copy(scan_sum(own), out.slice(row));
  });
}

// Every second column, and a part of a tensor that the same grid writes.
void of_slices(Program& p) {
  Tensor x = p.in(wholes({6, 70}, bf16)), out = p.out({6, 100}, bf16);
  grid(6, [&](Index row) {
    Fragment own({70}, bf16);
    copy(x.slice(row, range(3, 60)), own);
    copy(scan_sum(own, {.reverse = true}), out.slice(row, range(20, 90)));
  });
}

// Rows of a tensor that is read and written: where they are, or `rows` and `columns` further.
void of_one_tensor(Program& p, int rows, int columns) {
  Tensor x = p.inout(wholes({12, 130}, f32));
  grid(2, [&](Index block) {
    Fragment own({4, 96}, f32);
    copy(x.at(block * 6, 0), own);
    copy(scan_sum(own), x.at(block * 6 + rows, columns));
  });
}

const Case cases[] = {
    {"rows of tensors",
     [](Program& p) {
       for (const DType type : {f32, bf16, f16, i32, u8})
         for (const int columns : {96, 83, 3}) of_tensors(p, type, compute_type(type), columns);
       of_tensors(p, bf16, bf16, 90);
       of_tensors(p, f32, f16, 64);
     }},
    {"tiles", of_tiles},
    {"slices", of_slices},
    {"rounded fills", of_rounded_fills},
    {"one tensor", [](Program& p) { of_one_tensor(p, 0, 0); }},
    {"columns further", [](Program& p) { of_one_tensor(p, 0, 5); }},
    {"rows further", [](Program& p) { of_one_tensor(p, 2, 0); }},
};

class CpuScannedCopies : public OnEverySet {};
TEST_P(CpuScannedCopies, AgreeWithTheInterpreter) { expect_agreement(cases); }
TEGULA_ON_EVERY_SET(CpuScannedCopies);

int count_of(const std::string& word, void (*program)(Program&)) {
  const Case one{"", program};
  const std::string text = print_cpu(Signature(Comparison(std::span(&one, 1)).kernel().ir())).text;
  int count = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(ScannedCopies, AreThoseThatNothingElseReads) {
  const auto rows = [](Program& p) { of_tensors(p, bf16, bf16, 90); };
  EXPECT_EQ(count_of("load_tile(", rows) + count_of("store_tile(", rows), 0);
  EXPECT_EQ(count_of("scan_row<", rows), 4);
  EXPECT_EQ(count_of("load_tile(", of_tiles), 1);
  EXPECT_EQ(count_of("store_tile(", of_tiles), 0);
}

// Columns that do not lie side by side.
TEST(ScannedCopies, OfColumns) {
  const lang::Kernel sums = kernel("sums_of_columns", [] {
    Dim m("M"), n("N");
    Tensor x = input("x", {m, n}, f32), out = output("out", {m, n}, f32);
    grid(m, [&](Index row) {
      Fragment own({128}, f32);
      copy(x.slice(row), own);
      copy(scan_sum(own), out.slice(row));
    });
  });
  const auto x = tegula::Tensor::random_normal({100, 7}, f32, 1).transpose(0, 1);
  const auto result = [&](tegula::Target target) {
    const auto out = tegula::Tensor::full({100, 7}, f32, 7).transpose(0, 1);
    tegula::compile(sums, target)(x, out);
    return out;
  };
  EXPECT_EQ(tegula::first_difference(result(tegula::Target::cpu()), result(tegula::Target::interpreter()),
                                     1e-5, 1e-5),
            std::nullopt);
}

}  // namespace scanned_copies_test
}  // namespace tegula::codegen
