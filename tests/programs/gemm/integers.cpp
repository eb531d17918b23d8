// C = A · Bᵀ in i32 with A in i8; B in i8, in signed 4 bits, two in a byte, or ternary in 2 bits, four in a
// byte as q − 1. By products of integers; or, since all these values are exact in bf16 and their sums below
// 2^24 in f32, by those of bf16, for which A is converted in every block or by a grid before.
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

enum class IntegerWay { integers, floats, floats_before };

// Element j of row i of a tile of packed bytes.
Expr unpacked(const Shared& bytes, int bits, const Index& i, const Index& j) {
  if (bits == 8) return i32(bytes(i, j));
  if (bits == 4) return (i32(bytes(i, j / 2)) << (28 - j % 2 * 4)) >> 28;
  return (i32(bytes(i, j / 4)) >> (j % 4 * 2) & 3) - 1;
}

struct Integers {
  Dim M{"M"}, N{"N"}, K{"K"};
  Tensor A, B, C;

  Integers(int bits, const GemmTile& t)
      : A(input("A", {M, K}, i8)), B(input("B", {N, K * bits / 8}, i8)), C(output("C", {M, N}, i32)) {
    K.multiple_of(t.k);
  }
};

Kernel product_of_integers(int bits, const GemmTile& t) {
  return kernel("gemm_i8", [&] {
    Integers own(bits, t);
    grid(ceildiv(own.N, t.n), ceildiv(own.M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment acc({t.m, t.n}, i32, 0);
      pipelined(own.K / t.k, {.stages = 4}, [&](Index k) {
        Shared a({t.m, t.k}, i8), b({t.n, t.k * bits / 8}, i8);
        copy(own.A.at(y * t.m, k * t.k), a);
        copy(own.B.at(x * t.n, k * (t.k * bits / 8)), b);
        if (bits == 8) return gemm(a, b.T(), acc);
        Shared w({t.n, t.k}, i8);
        parallel(w, [&](Index i, Index j) { w(i, j) = i8(unpacked(b, bits, i, j)); });
        gemm(a, w.T(), acc);
      });
      copy(acc, own.C.at(y * t.m, x * t.n));
    });
  });
}

void convert_grid(const Tensor& from, const Tensor& to) {
  grid(ceildiv(from.extent(1), 256), ceildiv(from.extent(0), 16), [&](Index x, Index y) {
    Fragment a({16, 256}, i8), converted({16, 256}, f32);
    copy(from.at(y * 16, x * 256), a);
    parallel(converted, [&](Index i, Index j) { converted(i, j) = f32(a(i, j)); });
    copy(converted, to.at(y * 16, x * 256));
  });
}
Kernel product_of_floats(int bits, const GemmTile& t, bool before) {
  return kernel(before ? "gemm_i8_by_bf16_before" : "gemm_i8_by_bf16", [&] {
    Integers own(bits, t);
    std::optional<Tensor> A16;
    if (before) {
      A16.emplace(workspace("A16", {own.M, own.K}, bf16));
      convert_grid(own.A, *A16);
    }
    grid(ceildiv(own.N, t.n), ceildiv(own.M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment acc({t.n, t.m}, f32, 0), sums({t.n, t.m}, i32);
      pipelined(own.K / t.k, {.stages = 4}, [&](Index k) {
        Shared a({t.m, t.k}, bf16), b({t.n, t.k * bits / 8}, i8);
        copy(own.B.at(x * t.n, k * (t.k * bits / 8)), b);
        if (before) {
          copy(A16->at(y * t.m, k * t.k), a);
        } else {
          Shared bytes({t.m, t.k}, i8);
          copy(own.A.at(y * t.m, k * t.k), bytes);
          Fragment converted({t.m, t.k}, f32);
          parallel(converted, [&](Index i, Index j) { converted(i, j) = f32(bytes(i, j)); });
          copy(converted, a);
        }
        Fragment w({t.n, t.k}, f32);
        parallel(w, [&](Index i, Index j) { w(i, j) = f32(unpacked(b, bits, i, j)); });
        gemm(w.to(bf16), a.T(), acc);
      });
      parallel(sums, [&](Index i, Index j) { sums(i, j) = i32(acc(i, j)); });
      copy(sums.T(), own.C.at(y * t.m, x * t.n));
    });
  });
}

Kernel integer_gemm(IntegerWay way, int bits, const GemmTile& t) {
  return way == IntegerWay::integers ? product_of_integers(bits, t)
                              : product_of_floats(bits, t, way == IntegerWay::floats_before);
}

Prepared integer_call(IntegerWay way, int bits) {
  const int M = 40, N = 72, K = 128, each_byte = 8 / bits;
  const int low = bits == 2 ? -1 : -(1 << (bits - 1)), high = bits == 2 ? 2 : 1 << (bits - 1);
  const Data a = integers({M, K}, i8, 1, -128, 128), q = integers({N, K}, i32, 2, low, high);
  const Data bytes = Data::zeros({N, K / each_byte}, i8);
  each(N, K, [&](int i, int j) {
    const int value = q.at<std::int32_t>(i, j) + (bits == 2), mask = (1 << bits) - 1;
    auto& byte = bytes.at<std::int8_t>(i, j / each_byte);
    byte = static_cast<std::int8_t>(byte | ((value & mask) << (j % each_byte * bits)));
  });
  return {integer_gemm(way, bits, {32, 64, 64}),
          {a, bytes, Wanted{product_of(Numbers(a), Numbers(q)), i32, 0}}};
}

const GemmTile deep{128, 128, 128};

}  // namespace

Program gemm_i8() {
  return {"gemm",
          "gemm_i8",
          "products of i8 with i8, 4 bits or 2 bits, in i32",
          {{"8_bits", [] { return integer_call(IntegerWay::integers, 8); }},
           {"2_bits", [] { return integer_call(IntegerWay::integers, 2); }},
           {"4_bits_by_bf16", [] { return integer_call(IntegerWay::floats, 4); }},
           {"2_bits_by_bf16_before", [] { return integer_call(IntegerWay::floats_before, 2); }}},
          {{"8 bits, 128 x 128 x 128", [] { return integer_gemm(IntegerWay::integers, 8, deep); }},
           {"4 bits by bf16, 128 x 128 x 128", [] { return integer_gemm(IntegerWay::floats, 4, deep); }},
           {"4 bits by bf16 made before, 128 x 128 x 64", [] {
              return integer_gemm(IntegerWay::floats_before, 4, {128, 128, 64});
            }}}};
}

}  // namespace programs
