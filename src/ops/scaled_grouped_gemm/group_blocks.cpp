#include "ops/scaled_grouped_gemm/group_blocks.hpp"

#include "ops/pieces/padding.hpp"
#include "ops/products/scaled_products.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

constexpr int columns_of_tile = 128, bytes_of_word = 4, words = scaled_block / bytes_of_word;
// A pitch at which neighbouring squares of bytes are in different banks.
constexpr int pitch = words + 1;

struct GroupBlocks {
  const GroupBlocksKernel& c;
  Dim m{"m"}, columns{"columns"};
  Expr groups = scalar("groups", i32);
  Tensor values = c.by_column ? input("values", {columns, m}, u8) : input("values", {m, columns}, u8);
  Tensor read = c.padded ? padded("padded_values", values) : values;
  Tensor offsets = input("offsets", {groups + 1}, i32);
  Expr ranges = scalar("parts", i32);
  Tensor blocks = output("blocks", {columns, Dim("words")}, u32);

  // A word of four bytes, the first one lowest.
  template <class Byte>
  static Expr word_of(const Byte& byte) {
    Operand result = u32(byte(0));
    for (unsigned i = 1; i < bytes_of_word; ++i)
      result = Operand(result | u32(byte(static_cast<int>(i))) << 8u * i);
    return result;
  }

  // Threads take squares of 4 × 4 bytes; of 32 neighbours eight are contiguous, and four below.
  static void transpose(const Shared& tile, Shared& turned) {
    constexpr int across = 8, down = 4, squares_across = columns_of_tile / bytes_of_word;
    parallel(squares_across * words, [&](Index i) {
      Expr warp = i / (across * down);
      Expr square = i % across + warp % (squares_across / across) * across,
           word = i / across % down + warp / (squares_across / across) * down;
      for (int column = 0; column < bytes_of_word; ++column)
        turned(square * bytes_of_word + column, word) = word_of(
            [&](int row) { return tile(word * bytes_of_word + row, square * bytes_of_word + column); });
    });
  }

  void bring(const Range& rows, const Expr& first, const Expr& column, const Window& to) const {
    Shared turned({columns_of_tile, pitch}, u32);
    if (c.by_column) {
      Shared tile({columns_of_tile, scaled_block}, u8);
      copy(read.slice(all, rows).at(column, first), tile);
      parallel(columns_of_tile, words, [&](Index i, Index word) {
        turned(i, word) = word_of([&](int byte) { return tile(i, word * bytes_of_word + byte); });
      });
    } else {
      Shared tile({scaled_block, columns_of_tile}, u8);
      copy(read.slice(rows).at(first, column), tile);
      transpose(tile, turned);
    }
    copy(turned.slice(all, range(0, words)), to);
  }

  void run() const {
    grid(ceildiv(columns, columns_of_tile), ranges, groups, [&](Index x, Index number, Index group) {
      // Wrong offsets are the product's to report.
      Expr begin = clamp(offsets(group), 0, m), end = clamp(offsets(group + 1), begin, m);
      Expr first = begin / scaled_block, count = select(begin < end, ceildiv(end, scaled_block) - first, 0);
      serial(ceildiv(count - number, ranges), [&](Index step) {
        Expr block = first + number + step * ranges, column = x * columns_of_tile;
        bring(range(begin, end), block * scaled_block - begin, column,
              blocks.at(column, (block + group) * words));
      });
    });
  }
};

}  // namespace

Kernel group_blocks_program(const GroupBlocksKernel& c) {
  return kernel(instance_name("group_blocks", c), [&] { GroupBlocks{c}.run(); });
}

}  // namespace tegula::ops
