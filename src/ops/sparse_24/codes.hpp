// What is common to the tables of 2:4 sparse operators.
#pragma once
#include <cstdint>

#include "ops/schema/schema.hpp"

namespace tegula::ops {

inline const TypeRule types_of_24 = one_of({f16, bf16, e4m3, e5m2, i8});

// Four bits of metadata: two of positions 0 to 3, which increase.
inline constexpr int codes_of_24[6] = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110};

// Metadata of an example.
inline Tensor random_metadata(const Shape& shape, std::uint64_t seed) {
  const Tensor chosen = Tensor::random_integers(shape, i32, seed, 0, 36), result = Tensor::empty(shape, u8);
  const auto* from = chosen.data_as<std::int32_t>();
  auto* to = result.data_as<std::uint8_t>();
  for (std::int64_t i = 0; i < result.nelements(); ++i)
    to[i] = static_cast<std::uint8_t>(codes_of_24[from[i] % 6] | codes_of_24[from[i] / 6] << 4);
  return result;
}

}  // namespace tegula::ops
