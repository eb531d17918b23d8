// Tiles that are copied with rows and columns exchanged.
#include "codegen/cpu.hpp"
#include "codegen/testing/compare.hpp"
#include "codegen/testing/data.hpp"

namespace tegula::codegen {
namespace transposed_copies_test {

using namespace lang;
using lang::Tensor;

// The tile that is copied to has no padding after its rows if it is seen with another shape.
void turned(Program& p, int rows, int columns, DType type, bool dense = false) {
  Tensor x = p.in(Data::random_integers({rows, columns}, type, 1, -9, 10)),
         y = p.out({columns, rows + 3}, type);
  grid(1, [&](Index) {
    Shared own({rows, columns}, type), turned({columns, rows}, type);
    copy(x, own);
    copy(own.T(), turned);
    if (dense)
      copy(turned.reshape({columns * rows}), y.reshape({columns * (rows + 3)}).at(0));
    else
      copy(turned, y.at(0, 3));
  });
}

// Of a tensor that may lack the last rows and columns.
void stored(Program& p, int rows, int columns, DType held, DType type, int lacks = 0) {
  Tensor x = p.in(Data::random_integers({rows, columns}, held, 1, -9, 10)),
         y = p.out({columns - lacks, rows + 3 - lacks}, type);
  grid(1, [&](Index) {
    Shared own({rows, columns}, held);
    copy(x, own);
    copy(own.T(), y.at(0, 3));
  });
}

const Case to_tensors[] = {
    {"blocks of a vector's square", [](Program& p) { stored(p, 32, 48, f32, f32); }},
    {"rounded", [](Program& p) { stored(p, 37, 21, f32, bf16), stored(p, 16, 32, f32, f16); }},
    {"bytes", [](Program& p) { stored(p, 20, 33, f32, e4m3); }},
    {"cut by the tensor",
     [](Program& p) { stored(p, 40, 35, f32, f32, 5), stored(p, 33, 19, bf16, bf16, 2); }},
    {"integers", [](Program& p) { stored(p, 17, 21, i32, i32), stored(p, 9, 17, u8, u8, 1); }},
};

const Case whole[] = {
    {"blocks of a vector's square", [](Program& p) { turned(p, 32, 48, f32); }},
    {"few rows", [](Program& p) { turned(p, 5, 37, f32); }},
    {"few columns", [](Program& p) { turned(p, 50, 3, i32); }},
    {"rows without padding", [](Program& p) { turned(p, 21, 19, f32, true); }},
    {"small types", [](Program& p) { turned(p, 17, 33, bf16), turned(p, 9, 20, i8); }},
    {"bytes", [](Program& p) { turned(p, 17, 33, u8); }},
    {"bools", [](Program& p) { turned(p, 33, 17, boolean); }},
};

const Case others[] = {
    {"wide elements", [](Program& p) { turned(p, 9, 20, f64); }},
    {"without a sign", [](Program& p) { turned(p, 17, 20, u32); }},
    {"a part",
     [](Program& p) {
       Tensor x = p.in(Data::random_integers({20, 24}, f32, 2, -9, 10)), y = p.out({24, 8}, f32);
       grid(1, [&](Index) {
         Shared own({20, 24}, f32), turned({24, 8}, f32);
         copy(x, own);
         copy(own.slice(range(4, 12)).T(), turned);
         copy(turned, y);
       });
     }},
};

class TransposedCopies : public OnEverySet {};
TEGULA_ON_EVERY_SET(TransposedCopies);
TEST_P(TransposedCopies, HaveTheElements) {
  expect_agreement(whole);
  expect_agreement(others);
  expect_agreement(to_tensors);
}

TEST(TransposedCopy, IsOfWholeTiles) {
  const auto has = [](const Case& one) {
    const Signature signature(Comparison(std::span(&one, 1)).kernel().ir());
    return print_cpu(signature).text.find("copy_transposed(") != std::string::npos;
  };
  for (const Case& one : whole) EXPECT_TRUE(has(one)) << one.name;
  for (const Case& one : others) EXPECT_FALSE(has(one)) << one.name;
}

}  // namespace transposed_copies_test
}  // namespace tegula::codegen
