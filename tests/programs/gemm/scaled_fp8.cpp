// Products of e4m3 with a scale for each row of A and each 128 rows of B in every 128 of the inner dimension:
// C[m, n] = Σ_g sa[g, m] · sb[n / 128, g] · A[m, g] · B[n, g]ᵀ, in f32 after every g; plain and grouped.
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

constexpr int group = 128;

struct ScaledTile {
  int m, n;
  DType out = bf16;
  int threads = 0;
};
// The scales of A are [groups, rows], so that those of a tile are neighbours, or [rows, groups].
enum class Scales { by_group, by_row };
struct Operand8 {
  Tensor values, scales;
};

// acc += the product of tiles, step by step; `first` is the row of A, `column` that of B.
void multiply_scaled(Fragment& acc, const Operand8& a, const Operand8& b, const Expr& row, const Expr& column,
                     const ScaledTile& t, Scales order = Scales::by_group) {
  pipelined(ceildiv(a.values.extent(1), group), {.stages = 4}, [&](Index g) {
    Shared As({t.m, group}, e4m3), Bs({t.n, group}, e4m3), scale({t.m}, f32);
    copy(a.values.at(row, g * group), As);
    copy(b.values.at(column, g * group), Bs);
    copy((order == Scales::by_group ? a.scales.slice(g) : a.scales.slice(all, g)).at(row), scale);
    Fragment partial({t.m, t.n}, f32, 0);
    gemm(As, Bs.T(), partial, {.accumulate = Accumulate::tensor_core});
    if (group % t.n == 0) {
      Expr of_b = b.scales(column / group, g);
      parallel(acc, [&](Index i, Index j) { acc(i, j) += partial(i, j) * (scale(i) * of_b); });
    } else {  // columns of two blocks of B
      Expr left = b.scales(column / group, g), right = b.scales((column + t.n - 1) / group, g);
      Expr in_left = group - column % group;
      parallel(acc, [&](Index i, Index j) {
        acc(i, j) += partial(i, j) * (scale(i) * select(j < in_left, left, right));
      });
    }
  });
}

Kernel scaled_gemm(const ScaledTile& t, Scales order = Scales::by_group) {
  return kernel("gemm_fp8_scaled", [&] {
    Dim M("M"), N("N"), K("K");
    Expr groups = ceildiv(K, group);
    Tensor A = input("A", {M, K}, e4m3);
    Tensor sa = order == Scales::by_group ? input("sa", {groups, M}, f32) : input("sa", {M, groups}, f32);
    Tensor B = input("B", {N, K}, e4m3), sb = input("sb", {ceildiv(N, group), groups}, f32);
    Tensor C = output("C", {M, N}, t.out);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), {.threads = t.threads, .order = Order::grouped(8)},
         [&](Index x, Index y) {
           Fragment acc({t.m, t.n}, f32, 0);
           multiply_scaled(acc, {A, sa}, {B, sb}, y * t.m, x * t.n, t, order);
           copy(acc, C.at(y * t.m, x * t.n));
         });
  });
}

// The columns in two halves with sums of their own: the product of the second half runs while the first is
// scaled.
Kernel scaled_gemm_in_halves(const ScaledTile& t) {
  return kernel("gemm_fp8_scaled_halves", [&] {
    require(group % t.n == 0, "a tile has one scale of B");
    const int half = t.n / 2;
    Dim M("M"), N("N"), K("K");
    Tensor A = input("A", {M, K}, e4m3), sa = input("sa", {ceildiv(K, group), M}, f32);
    Tensor B = input("B", {N, K}, e4m3), sb = input("sb", {ceildiv(N, group), ceildiv(K, group)}, f32);
    Tensor C = output("C", {M, N}, t.out);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment left({t.m, half}, f32, 0), right({t.m, half}, f32, 0);
      pipelined(ceildiv(K, group), {.stages = 4}, [&](Index g) {
        Shared As({t.m, group}, e4m3), Bl({half, group}, e4m3), Br({half, group}, e4m3), scale({t.m}, f32);
        copy(A.at(y * t.m, g * group), As);
        copy(B.at(x * t.n, g * group), Bl);
        copy(B.at(x * t.n + half, g * group), Br);
        copy(sa.slice(g).at(y * t.m), scale);
        Fragment l({t.m, half}, f32, 0), r({t.m, half}, f32, 0);
        gemm(As, Bl.T(), l, {.accumulate = Accumulate::tensor_core});
        gemm(As, Br.T(), r, {.accumulate = Accumulate::tensor_core});
        Expr of_b = sb(x * t.n / group, g);
        parallel(left, [&](Index i, Index j) { left(i, j) += l(i, j) * (scale(i) * of_b); });
        parallel(right, [&](Index i, Index j) { right(i, j) += r(i, j) * (scale(i) * of_b); });
      });
      copy(left, C.at(y * t.m, x * t.n));
      copy(right, C.at(y * t.m, x * t.n + half));
    });
  });
}

// Rows first[g] … first[g + 1] of A times B[g].
Kernel grouped_scaled_gemm(const ScaledTile& t) {
  return kernel("grouped_gemm_fp8", [&] {
    Dim M("M"), N("N"), K("K"), G("G");
    Expr groups = ceildiv(K, group);
    Tensor A = input("A", {M, K}, e4m3), sa = input("sa", {groups, M}, f32), B = input("B", {G, N, K}, e4m3);
    Tensor sb = input("sb", {G, ceildiv(N, group), groups}, f32), first = input("first", {G + 1}, i32);
    Tensor C = output("C", {M, N}, t.out);
    grid(ceildiv(N, t.n), ceildiv(M, t.m) + G, {.order = Order::grouped(8)}, [&](Index x, Index y) {
      GroupTile own(first, y, t.m);
      exit_if(own.group < 0);
      Expr g = own.group, row = own.row;
      const Range rows = range(first(g), first(g + 1));
      Fragment acc({t.m, t.n}, f32, 0);
      multiply_scaled(acc, {A.slice(rows), sa.slice(all, rows)}, {B.slice(g), sb.slice(g)}, row, x * t.n, t);
      copy(acc, C.slice(rows).at(row, x * t.n));
    });
  });
}

// Group g has counts[g] rows.
Kernel masked_scaled_gemm(const ScaledTile& t) {
  return kernel("grouped_gemm_fp8_masked", [&] {
    Dim M("M"), N("N"), K("K"), G("G");
    Expr groups = ceildiv(K, group);
    Tensor A = input("A", {G, M, K}, e4m3), sa = input("sa", {G, groups, M}, f32);
    Tensor B = input("B", {G, N, K}, e4m3), sb = input("sb", {G, ceildiv(N, group), groups}, f32);
    Tensor counts = input("counts", {G}, i32), C = output("C", {G, M, N}, t.out);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), G, [&](Index x, Index y, Index g) {
      Expr count = counts(g);
      exit_if(y * t.m >= count);
      const Range rows = range(0, count);
      Fragment acc({t.m, t.n}, f32, 0);
      multiply_scaled(acc, {A.slice(g, rows), sa.slice(g, all, rows)}, {B.slice(g), sb.slice(g)}, y * t.m,
                      x * t.n, t);
      copy(acc, C.slice(g, rows).at(y * t.m, x * t.n));
    });
  });
}

// Σ over the inner dimension; sa [groups, m], sb [n / 128, groups].
double scaled_sum(const Numbers& a, const Numbers& sa, const Numbers& b, const Numbers& sb, int i, int j) {
  return sum_of(a.shape[1],
                [&](int k) { return a(i, k) * b(j, k) * sa(k / group, i) * sb(j / group, k / group); });
}
Numbers scaled_product(const Data& a, const Data& sa, const Data& b, const Data& sb) {
  const Numbers A(a), SA(sa), B(b), SB(sb);
  Numbers C({A.shape[0], B.shape[0]});
  each(A.shape[0], B.shape[0], [&](int i, int j) { C(i, j) = scaled_sum(A, SA, B, SB, i, j); });
  return C;
}

Prepared scaled_call(const Kernel& kernel, DType out, Scales order) {
  const int M = 70, N = 136, K = 300;
  const Data a = normal({M, K}, e4m3, 1), b = normal({N, K}, e4m3, 2);
  const Data sa = uniform({3, M}, f32, 3, .5, 2), sb = uniform({2, 3}, f32, 4, .5, 2);
  const Data given = order == Scales::by_group ? sa : sa.transpose(0, 1).contiguous();
  return {kernel, {a, given, b, sb, Wanted{scaled_product(a, sa, b, sb), out, out == f32 ? 1e-4 : 4e-3}}};
}

Prepared grouped_scaled_call() {
  const std::vector<int> first{0, 63, 63, 140};
  const int M = 140, N = 136, K = 256, G = 3;
  const Data a = normal({M, K}, e4m3, 1), b = normal({G, N, K}, e4m3, 2);
  const Data sa = uniform({2, M}, f32, 3, .5, 2), sb = uniform({G, 2, 2}, f32, 4, .5, 2);
  Numbers C({M, N});
  each(G, [&](int g) {
    put_rows(scaled_product(rows_of(a, first[g], first[g + 1]), sa.slice(1, first[g], first[g + 1]),
                            b.select(0, g), sb.select(0, g)),
             C, first[g]);
  });
  return {grouped_scaled_gemm({64, 64}), {a, sa, b, sb, Data::from(first), Wanted{C, bf16, 4e-3}}};
}

Prepared masked_scaled_call() {
  const std::vector<int> counts{70, 0, 3};
  const int M = 80, N = 136, K = 256, G = 3;
  const Data a = normal({G, M, K}, e4m3, 1), b = normal({G, N, K}, e4m3, 2);
  const Data sa = uniform({G, 2, M}, f32, 3, .5, 2), sb = uniform({G, 2, 2}, f32, 4, .5, 2);
  Numbers C({G, M, N}, NAN);
  each(G, [&](int g) {
    const Numbers own = scaled_product(a.select(0, g), sa.select(0, g), b.select(0, g), sb.select(0, g));
    each(counts[g], N, [&](int i, int j) { C(g, i, j) = own(i, j); });
  });
  return {masked_scaled_gemm({64, 64}), {a, sa, b, sb, Data::from(counts), Wanted{C, bf16, 4e-3}}};
}

}  // namespace

Program gemm_fp8_scaled() {
  return {"gemm",
          "gemm_fp8_scaled",
          "products of e4m3 with scales of rows and blocks in every 128 of the inner dimension",
          {{"rows_of_scales",
            [] {
              return scaled_call(scaled_gemm({64, 128, f32}), f32, Scales::by_group);
            }},
           {"columns_of_scales",
            [] {
              return scaled_call(scaled_gemm({64, 64, f32}, Scales::by_row), f32, Scales::by_row);
            }},
           {"halves",
            [] {
              return scaled_call(scaled_gemm_in_halves({64, 128, f32}), f32, Scales::by_group);
            }},
           {"48_columns",
            [] {
              return scaled_call(scaled_gemm({64, 48}), bf16, Scales::by_group);
            }},
           {"256_rows",
            [] {
              return scaled_call(scaled_gemm({256, 128}), bf16, Scales::by_group);
            }}},
          {{"256 x 128",
            [] {
              return scaled_gemm({256, 128});
            }},
           {"128 x 128",
            [] {
              return scaled_gemm({128, 128});
            }},
           {"128 x 128, scales by row",
            [] {
              return scaled_gemm({128, 128}, Scales::by_row);
            }},
           {"128 x 128 in halves",
            [] {
              return scaled_gemm_in_halves({128, 128});
            }},
           {"64 x 128",
            [] {
              return scaled_gemm({64, 128});
            }},
           {"128 x 96", [] {
              return scaled_gemm({128, 96});
            }}}};
}

Program grouped_gemm_fp8() {
  return {"gemm",
          "grouped_gemm_fp8",
          "the same for groups of rows with a matrix each, one after another or of equal room",
          {{"fences", grouped_scaled_call}, {"masked", masked_scaled_call}},
          {{"fences, 256 x 128",
            [] {
              return grouped_scaled_gemm({256, 128});
            }},
           {"masked, 256 x 128",
            [] {
              return masked_scaled_gemm({256, 128});
            }},
           {"fences, 128 x 128",
            [] {
              return grouped_scaled_gemm({128, 128});
            }},
           {"masked, 64 x 128", [] {
              return masked_scaled_gemm({64, 128});
            }}}};
}

}  // namespace programs
