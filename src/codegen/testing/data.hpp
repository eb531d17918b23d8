// Numbers for tests of memory, and tensors that are in larger ones.
#pragma once
#include "codegen/testing/compare.hpp"

namespace tegula::codegen {

inline Data ints(const Shape& shape, std::uint64_t seed = 1) {
  return Data::random_integers(shape, i32, seed, -9, 10);
}
inline Data floats(const Shape& shape, std::uint64_t seed = 1) {
  return Data::random_integers(shape, f32, seed, -9, 10);
}
inline Data list(const std::vector<std::int32_t>& values) { return Data::from(values); }

// Parts of larger tensors: other distances between elements, also negative ones.
inline Given reversed(const Data& whole, int dim) {
  return {whole, [dim](const Data& x) { return x.flip(dim); }};
}
inline Given every_other(const Data& whole, int dim) {
  return {whole, [dim](const Data& x) { return x.slice(dim, 0, x.size(dim), 2); }};
}
inline Given transposed(const Data& whole) {
  return {whole, [](const Data& x) { return x.transpose(0, 1); }};
}
inline Given inner(const Data& whole) {
  return {whole, [](const Data& x) { return x.slice(0, 1, x.size(0) - 1).slice(1, 2, x.size(1) - 1); }};
}

}  // namespace tegula::codegen
