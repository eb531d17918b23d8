// C = A · Wᵀ with weights of 4 bits, W = (q − zero) · scale by groups along the inner dimension; many rows of
// A, or few.
#include <deque>

#include "tests/programs/gemm/four_bits.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// Where weights are decoded: into registers that feed the product, from plain or packed order; by way of
// registers into shared memory; by a loop over a shared tile. `slabs`: packed, in slabs of a step, of which
// one is decoded while the product of another runs.
// `parts`: packed, in parts of a step, each for a warp group.
enum class Way { registers, packed, shared, loop, slabs, parts };

struct Int4Tile : GemmTile {
  int group = 128, slab = 32;
  int threads = 0;
  DType type = f16;
};

struct Weights {
  Dim N{"N"}, K{"K"};
  Tensor B, scale, zero;
  int groups;  // of a step

  Weights(const Int4Tile& t, bool packed)
      : B(packed ? input("B", {N, K / 8}, u32) : input("B", {N, K / 2}, u8)),
        scale(input("scale", {K / t.group, N}, t.type)),
        zero(input("zero", {K / t.group, N}, t.type)),
        groups((t.k + t.group - 1) / t.group) {
    require(t.k % t.group == 0 || t.group % t.k == 0, "steps and groups fit each other");
    K.multiple_of(t.k), K.multiple_of(t.group);
  }
};
// The tiles of a step.
struct WeightTiles {
  Shared B, scale, zero;

  WeightTiles(const Weights& w, const Int4Tile& t, const Index& step, const Expr& column, bool packed)
      : B({t.n, packed ? t.k / 8 : t.k / 2}, packed ? u32 : u8),
        scale({w.groups, t.n}, t.type),
        zero({w.groups, t.n}, t.type) {
    copy(w.B.at(column, packed ? step * (t.k / 8) : step * (t.k / 2)), B);
    copy(w.scale.at(step * t.k / t.group, column), scale);
    copy(w.zero.at(step * t.k / t.group, column), zero);
  }
  Expr value(const Index& i, const Index& j, const Int4Tile& t, bool packed) const {
    Expr at = packed ? packed_place(j, t.k) : Expr(j);
    Expr q = packed ? (B(i, at / 8) >> u32(at % 8 * 4)) & 15u : (B(i, at / 2) >> u32(at % 2 * 4)) & 15u;
    return (f32(q) - zero(j / t.group, i)) * scale(j / t.group, i);
  }
};

// One step whose weights are decoded into registers, W · Aᵀ, or into shared memory, A · Wᵀ.
void multiply_decoded(Fragment& acc, const WeightTiles& w, const Shared& a, const Int4Tile& t, Way way) {
  const bool packed = way == Way::packed;
  Fragment W({t.n, t.k}, f32);
  if (way != Way::loop) parallel(W, [&](Index i, Index j) { W(i, j) = w.value(i, j, t, packed); });
  if (way == Way::registers || packed) return gemm(W.to(t.type), a.T(), acc);
  Shared in_shared({t.n, t.k}, t.type);
  if (way == Way::loop)
    parallel(in_shared, [&](Index i, Index j) { in_shared(i, j) = w.value(i, j, t, packed); });
  else
    copy(W, in_shared);
  gemm(a, in_shared.T(), acc);
}

Kernel int4_gemm(Way way, const Int4Tile& t) {
  return kernel("gemm_int4", [&] {
    const bool turned = way == Way::registers || way == Way::packed;
    Dim M("M");
    Weights w(t, way == Way::packed);
    Tensor A = input("A", {M, w.K}, t.type), C = output("C", {M, w.N}, t.type);
    grid(ceildiv(w.N, t.n), ceildiv(M, t.m), {.threads = t.threads, .order = Order::grouped(8)},
         [&](Index x, Index y) {
           Fragment acc({turned ? t.n : t.m, turned ? t.m : t.n}, f32, 0);
           pipelined(w.K / t.k, {.stages = 4}, [&](Index step) {
             Shared a({t.m, t.k}, t.type);
             copy(A.at(y * t.m, step * t.k), a);
             const WeightTiles tiles(w, t, step, x * t.n, way == Way::packed);
             multiply_decoded(acc, tiles, a, t, way);
           });
           if (turned)
             copy(acc.T(), C.at(y * t.m, x * t.n));
           else
             copy(acc, C.at(y * t.m, x * t.n));
         });
  });
}

// A value is a bit operation and a fused multiply-add: (1 + q / 16) · 16 s − (16 + z) s, where q stands in
// the highest bits of a mantissa.
Kernel int4_gemm_in_slabs(const Int4Tile& t) {
  return kernel("gemm_int4_slabs", [&] {
    require(t.group % t.slab == 0 && t.k % t.slab == 0, "a slab lies in one group");
    Dim M("M");
    Weights w(t, true);
    w.N.multiple_of(8);
    Tensor A = input("A", {M, w.K}, t.type), C = output("C", {M, w.N}, t.type);
    grid(ceildiv(w.N, t.n), ceildiv(M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment acc({t.n, t.m}, f32, 0);
      pipelined(w.K / t.k, {.stages = 4}, [&](Index step) {
        const WeightTiles own(w, t, step, x * t.n, true);
        for (int first = 0; first < t.k; first += t.slab) {
          Shared a({t.m, t.slab}, t.type);
          copy(A.at(y * t.m, step * t.k + first), a);
          Fragment W({t.n, t.slab}, f32), times({t.n}, f32), plus({t.n}, f32);
          const int g = first / t.group;
          parallel(times, [&](Index i) {
            times(i) = own.scale(g, i) * 16.f;
            plus(i) = (own.zero(g, i) + 16.f) * -own.scale(g, i);
          });
          parallel(W, [&](Index i, Index j) {
            Expr at = packed_place(j + first, t.k), word = own.B(i, at / 8), shift = 19 - at % 8 * 4;
            Expr q = ((word << u32(max(shift, 0))) >> u32(max(-shift, 0))) & 0x780000u;
            W(i, j) = fma(bitcast(q | 0x3f800000u, f32), times(i), plus(i));
          });
          gemm(W.to(t.type), a.T(), acc);
        }
      });
      copy(acc.T(), C.at(y * t.m, x * t.n));
    });
  });
}

// Few rows of A: a block has a processor to itself, and its warp groups decode parts of a step at the same
// time. Words of a part lie in rows of their own, which quads of lanes read without conflicts of banks.
Kernel int4_gemm_in_parts(const Int4Tile& t, int parts) {
  return kernel("gemm_int4_parts", [&] {
    const int k = t.k / parts, words = k / 8;
    require(k % t.group == 0 || t.group % k == 0, "parts and groups fit each other");
    Dim M("M");
    Weights w(t, true);
    Tensor A = input("A", {M, w.K}, t.type), C = output("C", {M, w.N}, t.type);
    grid(ceildiv(w.N, t.n), ceildiv(M, t.m), {.blocks_per_processor = 1}, [&](Index x, Index y) {
      Fragment acc({t.n, t.m}, f32, 0);
      pipelined(w.K / t.k, {.stages = 4}, [&](Index step) {
        Shared a({t.m, t.k}, t.type), B({parts * t.n, words}, u32);
        Shared scale({w.groups, t.n}, t.type), zero({w.groups, t.n}, t.type);
        copy(A.at(y * t.m, step * t.k), a);
        for (int p = 0; p < parts; ++p)
          copy(w.B.at(x * t.n, (step * parts + p) * words), B.slice(range(p * t.n, (p + 1) * t.n)));
        copy(w.scale.at(step * t.k / t.group, x * t.n), scale);
        copy(w.zero.at(step * t.k / t.group, x * t.n), zero);
        unrolled(parts, [&](Index part) {
          Fragment W({t.n, k}, f32);
          parallel(W, [&](Index i, Index j) {
            Expr at = packed_place(j, k), q = (B(part * t.n + i, at / 8) >> u32(at % 8 * 4)) & 15u;
            Expr g = (part * k + j) / t.group;
            W(i, j) = (f32(q) - zero(g, i)) * scale(g, i);
          });
          gemm(W.to(t.type), a.reshape({t.m, parts, k}).slice(all, part, all).T(), acc);
        });
      });
      copy(acc.T(), C.at(y * t.m, x * t.n));
    });
  });
}

struct Int4GemvTile {
  int n, k, threads, group = 128;
};
struct GemvWeights {
  Dim N{"N"}, W{"W"};  // words of 8 along the inner dimension
  Tensor B, scale, zero;

  explicit GemvWeights(int group)
      : B(input("B", {N, W}, u32)),
        scale(input("scale", {N, W / (group / 8)}, f16)),
        zero(input("zero", {N, W / (group / 8)}, f16)) {
    W.multiple_of(group / 8);
  }
};

// A word takes its eight activations one by one.
Kernel int4_gemv(const Int4GemvTile& t) {
  return kernel("gemv_int4", [&] {
    GemvWeights w(t.group);
    Tensor a = input("a", {w.W * 8}, f16), C = output("C", {w.N}, f16);
    const int words = t.k / 8;
    grid(ceildiv(w.N, t.n), {.threads = t.threads}, [&](Index x) {
      Fragment sums({t.n, words}, f32, 0);
      serial(ceildiv(w.W, words), [&](Index s) {
        Fragment word = load(w.B.at(x * t.n, s * words), {t.n, words});
        parallel(sums, [&](Index i, Index j) {
          Expr at = s * words + j, g = at / (t.group / 8);
          Var sum = 0.0f, activations = 0.0f;
          for (int e = 0; e < 8; ++e) {
            Expr activation = a(at * 8 + e);
            sum += f32((word(i, j) >> u32(4 * e)) & 15u) * activation;
            activations += activation;
          }
          sums(i, j) += (sum - w.zero(x * t.n + i, g) * activations) * w.scale(x * t.n + i, g);
        });
      });
      copy(reduce_sum(sums), C.at(x * t.n));
    });
  });
}

// Activations are given as [M, 8, K / 8], element e of every word, so that they are loaded as vectors like
// words.
Kernel int4_gemv_interleaved(const Int4GemvTile& t) {
  return kernel("gemv_int4_interleaved", [&] {
    Dim M("M");
    GemvWeights w(t.group);
    Tensor A = input("A", {M, 8, w.W}, f16), C = output("C", {M, w.N}, f16);
    const int words = t.k / 8;
    grid(ceildiv(w.N, t.n), M, {.threads = t.threads}, [&](Index x, Index m) {
      Fragment sums({t.n, words}, f32, 0);
      serial(ceildiv(w.W, words), [&](Index s) {
        Fragment word = load(w.B.at(x * t.n, s * words), {t.n, words});
        Fragment sum({t.n, words}, f32, 0), activations({words}, f32, 0);
        for (int e = 0; e < 8; ++e) {
          Fragment a = load(A.slice(m, e).at(s * words), {words});
          parallel(sum, [&](Index i, Index j) { sum(i, j) += f32((word(i, j) >> u32(4 * e)) & 15u) * a(j); });
          parallel(activations, [&](Index j) { activations(j) += a(j); });
        }
        parallel(sums, [&](Index i, Index j) {
          Expr g = (s * words + j) / (t.group / 8);
          sums(i, j) += (sum(i, j) - w.zero(x * t.n + i, g) * activations(j)) * w.scale(x * t.n + i, g);
        });
      });
      copy(reduce_sum(sums), C.slice(m).at(x * t.n));
    });
  });
}

// What a lane has of a row in a step: four words, and the numbers of their group.
constexpr int lanes = 32, lane_words = 4;
struct LaneWords {
  Fragment word{{lanes, lane_words}, u32}, scale{{lanes}, f32}, zero{{lanes}, f32};

  LaneWords(const GemvWeights& w, const Expr& row, const Expr& step, int group) {
    parallel(word, [&](Index i, Index q) { word(i, q) = w.B(row, (step * lanes + i) * lane_words + q); });
    parallel(scale, [&](Index i) {
      Expr g = (step * lanes + i) / (group / 8 / lane_words);
      scale(i) = w.scale(row, g);
      zero(i) = w.zero(row, g);
    });
  }
};

// Two numbers of a word at a time stand in the mantissas of floats between 1 and 2, which are 1 + q / 16 and
// 1 + q / 256: for a weight one logical operation and one multiply-add, for two of them a shift. What the
// ones add up to are sums of activations, which all rows share.
void add_products(const Tensor& a, const Expr& step, const std::vector<LaneWords>& rows,
                  std::vector<Fragment>& sums) {
  parallel(lanes, [&](Index lane) {
    std::deque<Var> high, low;
    for (std::size_t r = 0; r < rows.size(); ++r) high.emplace_back(0.0f), low.emplace_back(0.0f);
    Var of_high = 0.0f, of_low = 0.0f;
    for (int e = 0; e < 8 * lane_words; e += 2) {
      Expr at = (step * lanes + lane) * (8 * lane_words) + e, even = a(at), odd = a(at + 1);
      of_high += odd;
      of_low += even;
      const int shift = 15 - 4 * (e % 8);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        Expr word = rows[r].word(lane, e / 8), pair = shift > 0 ? word << u32(shift) : word >> u32(-shift);
        high[r] += bitcast((pair & 0x780000u) | 0x3f800000u, f32) * odd;
        low[r] += bitcast((pair & 0x78000u) | 0x3f800000u, f32) * even;
      }
    }
    for (std::size_t r = 0; r < rows.size(); ++r)
      sums[r](lane) +=
          ((high[r] - of_high) * 16.f + (low[r] - of_low) * 256.f - rows[r].zero(lane) * (of_high + of_low)) *
          rows[r].scale(lane);
  });
}

// A block is a warp, and has some rows.
Kernel int4_gemv_by_lanes(int rows, int group) {
  return kernel("gemv_int4_lanes", [&] {
    constexpr int words = lanes * lane_words;
    GemvWeights w(group);
    w.W.multiple_of(words), w.N.multiple_of(rows);
    Tensor a = input("a", {w.W * 8}, f16), C = output("C", {w.N}, f16);
    grid(w.N / rows, {.threads = lanes}, [&](Index x) {
      std::vector<Fragment> sums;
      for (int r = 0; r < rows; ++r) sums.emplace_back(std::initializer_list<int>{lanes}, f32, 0);
      serial(w.W / words, [&](Index step) {
        std::vector<LaneWords> own;
        for (int r = 0; r < rows; ++r) own.emplace_back(w, x * rows + r, step, group);
        add_products(a, step, own, sums);
      });
      for (int r = 0; r < rows; ++r) C(x * rows + r) = reduce_sum(sums[r]).scalar();
    });
  });
}

Prepared int4_call(Way way) {
  Int4Tile t{{32, 64, 64}};
  t.group = way == Way::slabs ? 64 : 32;
  const int M = 40, N = 136, K = way == Way::parts ? 256 : 128, parts = 2;
  if (way == Way::parts) t.k = 128;
  const Data a = normal({M, K}, f16, 1), q = integers({N, K}, i32, 2, 0, 16);
  const Data scale = uniform({K / t.group, N}, f16, 3, .5, 2),
             zero = integers({K / t.group, N}, f16, 4, 0, 16);
  const Numbers Q(q), S(scale), Z(zero);
  Numbers W({N, K});
  each(N, K, [&](int n, int j) {
    W(n, j) = tegula::round_to(f16, (Q(n, j) - Z(j / t.group, n)) * S(j / t.group, n));
  });
  const bool packed = way == Way::packed || way == Way::slabs || way == Way::parts;
  const Data weights = packed ? packed_words(q, way == Way::parts ? t.k / parts : t.k) : packed_bytes(q);
  const Wanted C{product_of(Numbers(a), W), f16, 4e-3};
  if (way == Way::parts) return {int4_gemm_in_parts(t, parts), {weights, scale, zero, a, C}};
  return way == Way::slabs ? Prepared{int4_gemm_in_slabs(t), {weights, scale, zero, a, C}}
                           : Prepared{int4_gemm(way, t), {weights, scale, zero, a, C}};
}

enum class Gemv { words, interleaved, lanes };

Prepared int4_gemv_call(Gemv form) {
  const bool interleaved = form == Gemv::interleaved, by_lanes = form == Gemv::lanes;
  const Int4GemvTile t{4, 256, 128};
  const int M = interleaved ? 2 : 1, N = by_lanes ? 48 : 50, K = by_lanes ? 2048 : 512;
  const Data a = normal({M, K}, f16, 1), q = integers({N, K}, i32, 2, 0, 16);
  const Data scale = uniform({N, K / t.group}, f16, 3, .5, 2),
             zero = integers({N, K / t.group}, f16, 4, 0, 16);
  const Numbers Q(q), S(scale), Z(zero);
  Numbers W({N, K});
  each(N, K, [&](int n, int j) { W(n, j) = (Q(n, j) - Z(n, j / t.group)) * S(n, j / t.group); });
  Wanted C{product_of(Numbers(a), W), f16, 4e-3};
  if (!interleaved) C.exact.shape = {N};
  const Data given = interleaved ? a.reshape({M, K / 8, 8}).transpose(1, 2).contiguous() : a.reshape({K});
  return {interleaved ? int4_gemv_interleaved(t)
          : by_lanes  ? int4_gemv_by_lanes(4, t.group)
                      : int4_gemv(t),
          {packed_words(q), scale, zero, given, C}};
}

Int4Tile tile(int m, int n, int k, int slab = 32) { return {{m, n, k}, 128, slab}; }

}  // namespace

Program gemm_int4() {
  return {"gemm",
          "gemm_int4",
          "a product with weights of 4 bits, whose scales and zeros are those of groups",
          {{"registers", [] { return int4_call(Way::registers); }},
           {"packed", [] { return int4_call(Way::packed); }},
           {"shared", [] { return int4_call(Way::shared); }},
           {"loop", [] { return int4_call(Way::loop); }},
           {"slabs", [] { return int4_call(Way::slabs); }},
           {"parts", [] { return int4_call(Way::parts); }}},
          {{"into registers, 128 x 128 x 64", [] { return int4_gemm(Way::registers, tile(128, 128, 64)); }},
           {"packed, 128 x 128 x 64", [] { return int4_gemm(Way::packed, tile(128, 128, 64)); }},
           {"packed, 256 x 128 x 64", [] { return int4_gemm(Way::packed, tile(256, 128, 64)); }},
           {"packed, 16 x 64 x 128", [] { return int4_gemm(Way::packed, tile(16, 64, 128)); }},
           {"packed, 16 x 128 x 128", [] { return int4_gemm(Way::packed, tile(16, 128, 128)); }},
           {"into shared memory, 128 x 128 x 64", [] { return int4_gemm(Way::shared, tile(128, 128, 64)); }},
           {"by a loop, 128 x 128 x 64", [] { return int4_gemm(Way::loop, tile(128, 128, 64)); }},
           {"slabs, 256 x 128 x 128", [] { return int4_gemm_in_slabs(tile(256, 128, 128)); }},
           {"slabs, 16 x 64 x 256", [] { return int4_gemm_in_slabs(tile(16, 64, 256, 64)); }},
           {"four parts, 16 x 64 x 512", [] { return int4_gemm_in_parts(tile(16, 64, 512), 4); }},
           {"two parts, 16 x 64 x 256", [] { return int4_gemm_in_parts(tile(16, 64, 256), 2); }}}};
}
Program gemv_int4() {
  return {"gemm",
          "gemv_int4",
          "such weights times a vector, or two whose elements are interleaved",
          {{"", [] { return int4_gemv_call(Gemv::words); }},
           {"interleaved", [] { return int4_gemv_call(Gemv::interleaved); }},
           {"rows of a warp", [] { return int4_gemv_call(Gemv::lanes); }}},
          {{"4 x 4096",
            [] {
              return int4_gemv({4, 4096, 256});
            }},
           {"interleaved, 4 x 4096",
            [] {
              return int4_gemv_interleaved({4, 4096, 128});
            }},
           {"rows of a warp, 2", [] { return int4_gemv_by_lanes(2, 128); }},
           {"rows of a warp, 4", [] { return int4_gemv_by_lanes(4, 128); }}}};
}

}  // namespace programs
