// C[n] = Σ_k B[n, k] · a[k]. What differs is the tile, whether the inner dimension is divided among warps or
// blocks, and how partial sums are added up.
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct GemvTile {
  int n, k, threads;
};
struct Vectors {
  Dim N{"N"}, K{"K"};
  Tensor a, B;

  Vectors() : a(input("a", {K}, f16)), B(input("B", {N, K}, f16)) {}
};

// Sums of rows are formed in every step, or products are kept by column and added up at the end.
Kernel gemv_by_rows(const GemvTile& t, bool late) {
  return kernel(late ? "gemv_late_sum" : "gemv_rows", [&] {
    Vectors v;
    Tensor C = output("C", {v.N}, f16);
    grid(ceildiv(v.N, t.n), {.threads = t.threads}, [&](Index x) {
      Fragment sum({t.n}, f32, 0), products({t.n, t.k}, f32, 0);
      serial(ceildiv(v.K, t.k), [&](Index s) {
        Fragment b = load(v.B.at(x * t.n, s * t.k), {t.n, t.k}), a = load(v.a.at(s * t.k), {t.k});
        if (late) {
          parallel(products, [&](Index i, Index j) { products(i, j) += b(i, j) * a(j); });
        } else {
          parallel(products, [&](Index i, Index j) { products(i, j) = b(i, j) * a(j); });
          reduce_sum(products, sum);
        }
      });
      if (late) reduce_sum(products, sum);
      copy(sum, C.at(x * t.n));
    });
  });
}

Kernel gemv_by_warps(int warps, int k) {
  return kernel("gemv_warps", [&] {
    Vectors v;
    Tensor C = output("C", {v.N}, f16);
    grid(ceildiv(v.N, warps), {.threads = warps * 32}, [&](Index x) {
      each_group(warps, Group::warp, [&](Index w) {
        Fragment products({1, k}, f32, 0);
        serial(ceildiv(v.K, k), [&](Index s) {
          Fragment b = load(v.B.at(x * warps + w, s * k), {1, k}), a = load(v.a.at(s * k), {k});
          parallel(products, [&](Index i, Index j) { products(i, j) += b(i, j) * a(j); });
        });
        copy(reduce_sum(products), C.at(x * warps + w));
      });
    });
  });
}

// Parts of several blocks are added by atomics to a cleared f32 result.
Kernel gemv_by_splits(const GemvTile& t, int splits) {
  return kernel("gemv_split", [&] {
    Vectors v;
    Tensor C = output("C", {v.N}, f32, {.zero = true});
    grid(ceildiv(v.N, t.n), splits, {.threads = t.threads}, [&](Index x, Index partial) {
      Expr steps = ceildiv(v.K, t.k);
      Fragment products({t.n, t.k}, f32, 0);
      serial(range(partial * steps / splits, (partial + 1) * steps / splits), [&](Index s) {
        Fragment b = load(v.B.at(x * t.n, s * t.k), {t.n, t.k}), a = load(v.a.at(s * t.k), {t.k});
        parallel(products, [&](Index i, Index j) { products(i, j) += b(i, j) * a(j); });
      });
      atomic_add(C.at(x * t.n), reduce_sum(products));
    });
  });
}

// A thread has a row, whose elements it reads one after another; the vector is in shared memory.
Kernel gemv_by_threads(int n, int k) {
  return kernel("gemv_threads", [&] {
    Vectors v;
    Tensor C = output("C", {v.N}, f16);
    grid(ceildiv(v.N, n), {.threads = n}, [&](Index x) {
      Fragment sum({n}, f32, 0);
      serial(ceildiv(v.K, k), [&](Index s) {
        Shared a({k}, f16);
        copy(v.a.at(s * k), a);
        parallel(sum, [&](Index i) {
          Var partial = 0.0f;
          serial(k, [&](Index j) { partial += a(j) * v.B(x * n + i, s * k + j); });
          sum(i) += partial;
        });
      });
      copy(sum, C.at(x * n));
    });
  });
}

// Lanes of a row add their partial sums by atomics in shared memory.
Kernel gemv_by_lanes(int n, int lanes, int k) {
  return kernel("gemv_shared_atomics", [&] {
    Vectors v;
    Tensor C = output("C", {v.N}, f16);
    grid(ceildiv(v.N, n), {.threads = n * lanes}, [&](Index x) {
      Shared sum({n}, f32);
      clear(sum);
      parallel(n, lanes, [&](Index i, Index lane) {
        Var partial = 0.0f;
        serial(ceildiv(v.K, lanes * k), [&](Index s) {
          serial(k, [&](Index j) {
            Expr at = (s * lanes + lane) * k + j;
            partial += v.a(at) * v.B(x * n + i, at);
          });
        });
        atomic_add(sum(i), partial);
      });
      copy(sum, C.at(x * n));
    });
  });
}

// i8 activations and ternary weights, 16 in a u32 as q − 1; sums in i32.
Kernel gemv_of_ternary(const GemvTile& t) {
  return kernel("gemv_ternary", [&] {
    Dim N("N"), K("K");
    K.multiple_of(16);
    Tensor a = input("a", {K}, i8), B = input("B", {N, K / 16}, u32), C = output("C", {N}, i32);
    const int words = t.k / 16;
    grid(ceildiv(N, t.n), {.threads = t.threads}, [&](Index x) {
      Fragment partial({t.n, words}, i32, 0);
      serial(ceildiv(K, t.k), [&](Index s) {
        Fragment word = load(B.at(x * t.n, s * words), {t.n, words});
        parallel(partial, [&](Index i, Index j) {
          Var sum = 0;
          for (int e = 0; e < 16; ++e) {
            Expr value = a(s * t.k + j * 16 + e);
            sum += i32((word(i, j) >> u32(2 * e)) & 3u) * value - value;
          }
          partial(i, j) += sum;
        });
      });
      copy(reduce_sum(partial), C.at(x * t.n));
    });
  });
}

Prepared gemv_call(const Kernel& kernel, DType out, int n, int k) {
  const Data a = normal({1, k}, f16, 1), B = normal({n, k}, f16, 2);
  Numbers C = product_of(Numbers(B), Numbers(a));
  C.shape = {n};
  return {kernel, {a.reshape({k}), B, Wanted{C, out, 2e-3}}};
}

Prepared ternary_call(int n, int k) {
  const Data a = integers({1, k}, i8, 1, -128, 128), q = integers({n, k}, i32, 2, -1, 2);
  const Data words = Data::zeros({n, k / 16}, u32);
  each(n, k, [&](int i, int j) {
    words.at<unsigned>(i, j / 16) |= static_cast<unsigned>(q.at<std::int32_t>(i, j) + 1) << (j % 16 * 2);
  });
  Numbers C = product_of(Numbers(q), Numbers(a));
  C.shape = {n};
  return {gemv_of_ternary({8, 256, 128}), {a.reshape({k}), words, Wanted{C, i32, 0}}};
}

}  // namespace

Program gemv() {
  return {"gemm",
          "gemv",
          "a matrix of f16 times a vector",
          {{"rows",
            [] {
              return gemv_call(gemv_by_rows({8, 256, 128}, false), f16, 50, 500);
            }},
           {"late_sum",
            [] {
              return gemv_call(gemv_by_rows({8, 256, 128}, true), f16, 50, 500);
            }},
           {"warps", [] { return gemv_call(gemv_by_warps(4, 256), f16, 50, 504); }},
           {"splits",
            [] {
              return gemv_call(gemv_by_splits({8, 128, 128}, 3), f32, 50, 500);
            }},
           {"threads", [] { return gemv_call(gemv_by_threads(32, 64), f16, 50, 200); }},
           {"shared_atomics", [] { return gemv_call(gemv_by_lanes(4, 32, 8), f16, 50, 500); }}},
          {{"sums of rows, 4 x 2048",
            [] {
              return gemv_by_rows({4, 2048, 128}, false);
            }},
           {"late sum, 4 x 2048",
            [] {
              return gemv_by_rows({4, 2048, 256}, true);
            }},
           {"a row for a warp, 8 x 512", [] { return gemv_by_warps(8, 512); }},
           {"four splits, 4 x 2048",
            [] {
              return gemv_by_splits({4, 2048, 256}, 4);
            }},
           {"a row for a thread", [] { return gemv_by_threads(128, 64); }},
           {"atomics in shared memory", [] { return gemv_by_lanes(4, 32, 8); }}}};
}

Program gemv_ternary() {
  return {"gemm",
          "gemv_ternary",
          "a matrix of −1, 0 and 1 in two bits times a vector of i8",
          {{"", [] { return ternary_call(50, 512); }}},
          {{"4 x 4096", [] {
              return gemv_of_ternary({4, 4096, 256});
            }}}};
}

}  // namespace programs
