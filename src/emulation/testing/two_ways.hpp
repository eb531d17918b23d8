// For tests: products that their sums hold in two ways.
#pragma once
#include <functional>

#include "emulation/testing/compared.hpp"

namespace tegula::emulation {

using AddProducts = std::function<void(lang::Fragment& of_warps, lang::Fragment& of_group)>;

// What `block` stores to `out` [24, 64] is as interpreted. Its first argument adds two products in a loop:
// one of warps, along a part of the features, and one of a warp group, whose operands are exchanged.
inline void expect_products_in_two_ways(
    DType type, const std::function<void(const AddProducts& add, lang::Tensor& out)>& block) {
  const lang::Kernel program = lang::kernel("two_ways", [&] {
    using namespace lang;
    lang::Tensor a = input("a", {24, 128}, type), b = input("b", {64, 128}, type),
                 out = output("out", {24, 64}, f32);
    const AddProducts add = [&](Fragment& of_warps, Fragment& of_group) {
      pipelined(2, {.stages = 2}, [&](Index k) {
        Shared left({24, 64}, type), right({64, 64}, type);
        copy(a.at(0, k * 64), left);
        copy(b.at(0, k * 64), right);
        gemm(left.slice(all, range(8, 40)), right.slice(all, range(8, 40)).T(), of_warps);
        gemm(left, right.T(), of_group);
      });
    };
    grid(1, [&](Index) { block(add, out); });
  });
  const auto integers = [&](const Shape& shape, std::uint64_t seed) {
    return Tensor::random_integers(shape, i32, seed, -2, 3).to(type);
  };
  expect_as_interpreted(program, {integers({24, 128}, 1), integers({64, 128}, 2)}, {24, 64}, 0);
}

}  // namespace tegula::emulation
