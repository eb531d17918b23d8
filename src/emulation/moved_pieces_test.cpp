// Tiles that threads store as they are: pieces of 16 bytes, several of a thread on their way at a time.
#include <gtest/gtest.h>

#include "emulation/testing/compared.hpp"
#include "runtime/testing/watchdog.hpp"

namespace tegula::emulation {
namespace moved_pieces_test {

using namespace lang;

struct Move {
  const char* name;
  DType from, to;
  Shape tile, tensor;  // a block has a tile along the first dimension of the tensor
  bool by_pieces = true;
  int threads = 128;
};

void PrintTo(const Move& c, std::ostream* out) { *out << c.name; }

lang::Kernel program(const Move& c) {
  return kernel("moved", [&] {
    const Extents extents(c.tensor.begin(), c.tensor.end());
    lang::Tensor in = input("in", extents, c.from), out = inout("out", extents, c.to);
    grid(static_cast<int>((c.tensor[0] + c.tile[0] - 1) / c.tile[0]), {.threads = c.threads},
         [&](Index block) {
           Shared tile(std::vector<int>(c.tile.begin(), c.tile.end()), c.from, Loc::current());
           Expr row = block * static_cast<int>(c.tile[0]);
           copy(in.at(row), tile);
           copy(tile, out.at(row));
         });
  });
}

class MovedPieces : public ::testing::TestWithParam<Move> {};

TEST_P(MovedPieces, AreThoseOfTheTile) {
  const Move& c = GetParam();
  const Watchdog watchdog(c.name, std::chrono::seconds(60));
  const lang::Kernel moved = program(c);
  const bool by_pieces =
      codegen::print_cuda(Signature(moved.ir()), {90}).text.find("tg::store_piece(") != std::string::npos;
  EXPECT_EQ(by_pieces, c.by_pieces);
  const tegula::Tensor in = tegula::Tensor::random_integers(c.tensor, c.from, 1, -8, 8);
  const auto result = [&](tegula::Target target) {
    const tegula::Tensor out = tegula::Tensor::full(c.tensor, c.to, 5);
    compile(moved, target)(in, out);
    return out;
  };
  const tegula::Tensor expected = result(tegula::Target::interpreter());
  for (const tegula::Target target : {tegula::Target::emulated(), tegula::Target::emulated_sm90()})
    EXPECT_TRUE(all_close(result(target), expected, 0, 0)) << target.name();
}

INSTANTIATE_TEST_SUITE_P(
    Table, MovedPieces,
    ::testing::Values(Move{"whole", bf16, bf16, {64, 64}, {128, 64}},
                      Move{"words", f32, f32, {64, 32}, {64, 32}},
                      Move{"bytes", e4m3, e4m3, {64, 128}, {128, 128}},
                      Move{"rows_that_end", bf16, bf16, {64, 64}, {100, 64}},
                      Move{"columns_that_end", bf16, bf16, {64, 64}, {100, 48}},
                      Move{"odd_rows", bf16, bf16, {64, 64}, {100, 43}},
                      Move{"three_dims", f16, f16, {8, 16, 32}, {20, 16, 32}},
                      Move{"rows_longer_than_the_threads", bf16, bf16, {4, 2048}, {7, 2048}},
                      Move{"one_piece_of_a_thread", bf16, bf16, {16, 64}, {40, 64}},
                      Move{"a_vector", f32, f32, {1024}, {3000}},
                      Move{"more_threads", bf16, bf16, {64, 128}, {64, 128}, true, 256},
                      Move{"fewer_pieces_than_threads", bf16, bf16, {8, 64}, {16, 64}, false},
                      Move{"converted", f32, bf16, {64, 64}, {64, 64}, false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace moved_pieces_test
}  // namespace tegula::emulation
