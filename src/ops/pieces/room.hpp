// Shared memory of a block, and tiles of a step that fit it.
#pragma once
#include "ops/products/tile_types.hpp"

namespace tegula::ops {

// What a block has on the GPU of the call: before Hopper less.
inline std::int64_t room_of_block(const BoundCall& call) {
  constexpr std::int64_t of_hopper = 227 << 10, of_sm80 = 163 << 10;
  return has_copy_engine(call) ? of_hopper : of_sm80;
}

// The rows of a step, halved until the bytes of its tiles fit the room. Products take no fewer than 16.
template <class Bytes>
int fitting_rows(int rows, std::int64_t room, const Bytes& bytes_of) {
  constexpr int least = 16;
  while (rows > least && bytes_of(rows) > room) rows /= 2;
  return rows;
}

}  // namespace tegula::ops
