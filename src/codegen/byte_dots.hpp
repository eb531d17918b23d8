// Sums of products of the bytes of words, i32(u8(a >> 8 i)) * i32(i8(b >> 8 i)) for all four i: processors
// have an instruction for them. In place of a byte there may be any function of the lower or of the upper
// half of its bits, whose sixteen values processors look up by another.
#pragma once
#include <array>
#include <optional>

#include "ir/expr.hpp"

namespace tegula::codegen {

// The value of each number of four bits, which are the upper or the lower half of a byte.
struct ByteTable {
  std::array<std::uint8_t, 16> values = {};
  bool of_upper_half = false;
  bool operator==(const ByteTable&) const = default;
};

struct ByteDot {
  ir::Expr a, b;  // words, u32, of unsigned and of signed bytes
  std::optional<ByteTable> table = {};  // of what stands for the bytes of a
};

// A sum of i32: its products of bytes, and the terms that are left. It is unfinished if some of these are
// products of bytes of words whose other bytes are missing.
struct SumOfBytes {
  std::vector<ByteDot> dots;
  std::vector<ir::Expr> others;
  bool is_unfinished = false;
};
SumOfBytes sum_of_bytes(const ir::Expr& sum);

}  // namespace tegula::codegen
