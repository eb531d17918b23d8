// Products that leave something out: blocks that a mask does not have, and A of which two of every four
// elements along the inner dimension are stored.
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct Masked {
  Dim M{"M"}, N{"N"}, K{"K"};
  Tensor A, B, C, mask;
  GemmTile t;

  explicit Masked(const GemmTile& tile)
      : A(input("A", {M, K}, bf16)),
        B(input("B", {K, N}, bf16)),
        C(output("C", {M, N}, bf16)),
        mask(input("mask", {ceildiv(M, tile.m), ceildiv(N, tile.n), ceildiv(K, tile.k)}, boolean)),
        t(tile) {}
  void step(Fragment& acc, const Expr& row, const Expr& column, const Expr& k) const {
    Shared a({t.m, t.k}, bf16), b({t.k, t.n}, bf16);
    copy(A.at(row, k * t.k), a);
    copy(B.at(k * t.k, column), b);
    gemm(a, b, acc);
  }
};

Kernel masked_by_branch(const GemmTile& t) {
  return kernel("block_sparse_gemm_branch", [&] {
    Masked own(t);
    grid(ceildiv(own.N, t.n), ceildiv(own.M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(ceildiv(own.K, t.k), {.stages = 4},
                [&](Index k) { when(own.mask(y, x, k), [&] { own.step(acc, y * t.m, x * t.n, k); }); });
      copy(acc, own.C.at(y * t.m, x * t.n));
    });
  });
}

// Every block lists its steps first, at most `most`.
Kernel masked_by_list(const GemmTile& t, int most) {
  return kernel("block_sparse_gemm_list", [&] {
    Masked own(t);
    Expr steps = ceildiv(own.K, t.k);
    require(steps <= most, "the list has room for all blocks of the inner dimension");
    grid(ceildiv(own.N, t.n), ceildiv(own.M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Shared list({most}, i32);
      Var count = 0;
      serial(steps, [&](Index k) {
        when(own.mask(y, x, k), [&] {
          list(count) = k;
          count += 1;
        });
      });
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(count, {.stages = 4}, [&](Index i) { own.step(acc, y * t.m, x * t.n, list(i)); });
      copy(acc, own.C.at(y * t.m, x * t.n));
    });
  });
}

// Two bits for each stored value say which of its four columns it has, 16 in a u32. The tile becomes dense in
// registers.
Kernel two_of_four(const GemmTile& t) {
  return kernel("gemm_sparse24", [&] {
    Dim M("M"), N("N"), K("K");
    K.multiple_of(t.k);
    Tensor A = input("A", {M, K / 2}, f16), places = input("places", {M, K / 32}, u32);
    Tensor B = input("B", {K, N}, f16), C = output("C", {M, N}, f16);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(K / t.k, {.stages = 4}, [&](Index k) {
        Shared a({t.m, t.k / 2}, f16), place({t.m, t.k / 32}, u32), b({t.k, t.n}, f16);
        copy(A.at(y * t.m, k * (t.k / 2)), a);
        copy(places.at(y * t.m, k * (t.k / 32)), place);
        copy(B.at(k * t.k, x * t.n), b);
        Fragment W({t.m, t.k}, f32);
        parallel(W, [&](Index i, Index j) {
          Expr pair = place(i, j / 32) >> u32(j % 32 / 4 * 4), own = u32(j % 4);
          W(i, j) = select((pair & 3u) == own, a(i, j / 4 * 2),
                           select(((pair >> 2u) & 3u) == own, a(i, j / 4 * 2 + 1), 0));
        });
        gemm(W.to(f16), b, acc);
      });
      copy(acc, C.at(y * t.m, x * t.n));
    });
  });
}


Prepared masked_call(const Kernel& kernel) {
  const int M = 100, N = 72, K = 200, tile = 64;
  const Data a = normal({M, K}, bf16, 1), b = normal({K, N}, bf16, 2),
             mask = integers({2, 2, 4}, boolean, 3, 0, 2);
  const Numbers A(a), B(b), keep(mask);
  Numbers C({M, N});
  each(M, N, [&](int i, int j) {
    C(i, j) = sum_of(K, [&](int k) { return keep(i / tile, j / tile, k / tile) * A(i, k) * B(k, j); });
  });
  return {kernel, {a, b, Wanted{C, bf16, 4e-3}, mask}};
}

Prepared two_of_four_call() {
  constexpr int pairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  const int M = 72, N = 40, K = 128;
  const Data a = normal({M, K / 2}, f16, 1), pick = integers({M, K / 4}, i32, 2, 0, 6),
             b = normal({N, K}, f16, 3);
  const Data places = Data::zeros({M, K / 32}, u32);
  const Numbers A(a);
  Numbers dense({M, K});
  each(M, K / 4, 2, [&](int i, int g, int h) {
    const int at = pairs[pick.at<std::int32_t>(i, g)][h];
    places.at<unsigned>(i, g / 8) |= static_cast<unsigned>(at) << (g % 8 * 4 + h * 2);
    dense(i, g * 4 + at) = A(i, g * 2 + h);
  });
  return {two_of_four({64, 32, 64}),
          {a, places, b.transpose(0, 1).contiguous(), Wanted{product_of(dense, Numbers(b)), f16, 2e-3}}};
}

}  // namespace

Program block_sparse_gemm() {
  return {"gemm",
          "block_sparse_gemm",
          "a product whose blocks along the inner dimension a mask chooses",
          {{"branch", [] { return masked_call(masked_by_branch(small_tile)); }},
           {"list", [] { return masked_call(masked_by_list(small_tile, 8)); }}},
          {{"a branch, 128 x 256 x 64",
            [] {
              return masked_by_branch({128, 256, 64});
            }},
           {"a list of 512, 128 x 256 x 64",
            [] {
              return masked_by_list({128, 256, 64}, 512);
            }},
           {"a list of 1024, 128 x 256 x 64", [] {
              return masked_by_list({128, 256, 64}, 1024);
            }}}};
}
Program gemm_sparse24() {
  return {"gemm",
          "gemm_sparse24",
          "a product with two of every four elements of A stored, made dense in registers",
          {{"", two_of_four_call}},
          {{"128 x 256 x 64", [] {
              return two_of_four({128, 256, 64});
            }}}};
}

}  // namespace programs
