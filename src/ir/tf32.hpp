// The numbers of tf32: f32 numbers whose last 13 bits are 0.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace tegula::ir {

inline constexpr std::uint32_t half_of_tf32 = 0x1000, mask_of_tf32 = 0xffffe000;

// The nearest one; of two as near, that of the larger magnitude, as instructions of GPUs have it.
inline float rounded_to_tf32(float x) {
  if (std::isnan(x)) return x;
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + half_of_tf32) & mask_of_tf32);
}

}  // namespace tegula::ir
