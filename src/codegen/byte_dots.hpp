// Sums of products of the bytes of words, i32(u8(a >> 8 i)) * i32(i8(b >> 8 i)) for all four i: processors
// have an instruction for them.
#pragma once
#include "ir/expr.hpp"

namespace tegula::codegen {

struct ByteDot {
  ir::Expr a, b;  // words, u32, of unsigned and of signed bytes
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
