// How tensors of example calls lie in memory, and how long their packed sequences are.
#pragma once
#include <array>
#include <string>

#include "tegula/error.hpp"
#include "tegula/runtime.hpp"

namespace tegula::ops {

enum class Strides : std::uint8_t {
  plain,       // row by row
  sliced,      // a part of a tensor with twice as many rows, as queries are of queries, keys and values
  padded,      // rows with eight elements more
  odd,         // rows with one element more, which begin anywhere
  swapped,     // with the two dims before the last one exchanged: heads before tokens
  transposed,  // with the last two dims exchanged
};
inline constexpr std::array strides_names{"plain", "sliced", "padded", "odd", "swapped", "transposed"};

enum class Packing : std::uint8_t {
  random,
  even,
  rising,    // each sequence longer than the one before
  one_long,  // the first has half of the tokens
  empty,     // every other sequence has no token
};
inline constexpr std::array packing_names{"random", "even", "rising", "one_long", "empty"};

template <class T, std::size_t n>
T named(const std::string& name, const std::array<const char*, n>& names) {
  for (std::size_t i = 0; i < n; ++i)
    if (name == names[i]) return static_cast<T>(i);
  throw InternalError("an example says '" + name + "'");
}

// A tensor without memory that lies so.
TensorRef described_as(Strides strides, DType type, const Shape& shape);
// A copy on the device that lies so; of what is plain and there, the tensor itself.
Tensor laid_out(Strides strides, const Tensor& values, Device device);

// Where `count` - 1 sequences begin and end that have so many tokens together: i32 [count].
Tensor boundaries(Packing packing, std::int64_t count, std::int64_t tokens, std::uint64_t seed);

}  // namespace tegula::ops
