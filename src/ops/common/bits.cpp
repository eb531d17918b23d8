#include "ops/common/bits.hpp"

namespace tegula::ops {

using namespace lang;

Expr number_of_bits(const Expr& word) {
  Expr pairs = word - ((word >> 1u) & 0x55555555u);
  Expr fours = (pairs & 0x33333333u) + ((pairs >> 2u) & 0x33333333u);
  Expr bytes = (fours + (fours >> 4u)) & 0x0f0f0f0fu;
  return i32((bytes * 0x01010101u) >> 24u);
}

}  // namespace tegula::ops
