// Grouped products of a mixture of experts: contiguous rows between fences of any size, aligned rows whose
// group is told, groups of equal room with a count each; and the gradient of the weights, a sum over the rows
// of a group.
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

// B is [G, N, K]; with `across` [G, K, N], whose tiles are not turned.
struct Rows {
  Dim M{"M"}, N{"N"}, K{"K"}, G{"G"};
  Tensor A, B;

  explicit Rows(bool across = false)
      : A(input("A", {M, K}, bf16)), B(across ? input("B", {G, K, N}, bf16) : input("B", {G, N, K}, bf16)) {}
};

void multiply_across(Fragment& acc, const Tensor& A, const Tensor& B, const Expr& m0, const Expr& n0,
                     const GemmTile& t) {
  pipelined(ceildiv(B.extent(0), t.k), {.stages = 4}, [&](Index k) {
    Shared a({t.m, t.k}, bf16), b({t.k, t.n}, bf16);
    copy(A.at(m0, k * t.k), a);
    copy(B.at(k * t.k, n0), b);
    gemm(a, b, acc);
  });
}

// Every block looks for its group. Rows of other groups read as zeros and are not written.
Kernel grouped_by_fences(const GemmTile& t, bool across) {
  return kernel("grouped_gemm", [&] {
    Rows r(across);
    Tensor first = input("first", {r.G + 1}, i32), C = output("C", {r.M, r.N}, bf16);
    grid(ceildiv(r.N, t.n), ceildiv(r.M, t.m) + r.G, {.order = Order::grouped(8)}, [&](Index x, Index y) {
      GroupTile own(first, y, t.m);
      exit_if(own.group < 0);
      Expr g = own.group, row = own.row;
      const Range rows = range(first(g), first(g + 1));
      Fragment acc({t.m, t.n}, f32, 0);
      if (across)
        multiply_across(acc, r.A.slice(rows), r.B.slice(g), row, x * t.n, t);
      else
        multiply(acc, r.A.slice(rows), r.B.slice(g), row, x * t.n, steps_of(r.K, t), t);
      copy(acc, C.slice(rows).at(row, x * t.n));
    });
  });
}

// A first grid makes a table of tiles, which pays with many groups: a search costs each block as much as a
// few steps.
void make_table(const Tensor& table, const Tensor& first, int rows) {
  grid(1, [&](Index) {
    Var before = 0;
    serial(first.extent(0) - 1, [&](Index g) {
      Expr begin = before, count = ceildiv(first(g + 1) - first(g), rows);
      parallel(count, [&](Index i) {
        table(begin + i, 0) = g;
        table(begin + i, 1) = i * rows;
      });
      before += count;
    });
    Expr begin = before;
    parallel(table.extent(0) - begin, [&](Index i) { table(begin + i, 0) = -1; });
  });
}
Kernel grouped_by_table(const GemmTile& t) {
  return kernel("grouped_gemm_table", [&] {
    Rows r;
    Tensor first = input("first", {r.G + 1}, i32), C = output("C", {r.M, r.N}, bf16);
    Expr tiles = ceildiv(r.M, t.m) + r.G;
    Tensor table = workspace("table", {tiles, 2}, i32);  // of a tile: the group and its first row there
    make_table(table, first, t.m);
    grid(ceildiv(r.N, t.n), tiles, {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr g = table(y, 0);
      exit_if(g < 0);
      Expr row = table(y, 1);
      const Range rows = range(first(g), first(g + 1));
      Fragment acc({t.m, t.n}, f32, 0);
      multiply(acc, r.A.slice(rows), r.B.slice(g), row, x * t.n, steps_of(r.K, t), t);
      copy(acc, C.slice(rows).at(row, x * t.n));
    });
  });
}

// Groups begin at multiples of the rows of a tile; group_of says whose a row is, −1 for padding.
Kernel grouped_and_aligned(const GemmTile& t) {
  return kernel("grouped_gemm_aligned", [&] {
    Rows r;
    Tensor group_of = input("group_of", {r.M}, i32), C = output("C", {r.M, r.N}, bf16);
    grid(ceildiv(r.N, t.n), ceildiv(r.M, t.m), {.order = Order::grouped(8)}, [&](Index x, Index y) {
      Expr g = group_of(y * t.m);
      exit_if(g < 0);
      Fragment acc({t.m, t.n}, f32, 0);
      multiply(acc, r.A, r.B.slice(g), y * t.m, x * t.n, steps_of(r.K, t), t);
      copy(acc, C.at(y * t.m, x * t.n));
    });
  });
}

Kernel grouped_and_masked(const GemmTile& t) {
  return kernel("grouped_gemm_masked", [&] {
    Dim M("M"), N("N"), K("K"), G("G");
    Tensor A = input("A", {G, M, K}, bf16), B = input("B", {G, N, K}, bf16);
    Tensor counts = input("counts", {G}, i32), C = output("C", {G, M, N}, bf16);
    grid(ceildiv(N, t.n), ceildiv(M, t.m), G, [&](Index x, Index y, Index g) {
      Expr count = counts(g);
      exit_if(y * t.m >= count);
      const Range rows = range(0, count);
      Fragment acc({t.m, t.n}, f32, 0);
      multiply(acc, A.slice(g, rows), B.slice(g), y * t.m, x * t.n, steps_of(K, t), t);
      copy(acc, C.slice(g, rows).at(y * t.m, x * t.n));
    });
  });
}

// dB[g] = A[rows of g]ᵀ · dC[rows of g]; that of an empty group is zero.
Kernel gradient_of_weights(const GemmTile& t) {
  return kernel("grouped_gemm_weight_gradient", [&] {
    Dim M("M"), N("N"), K("K"), G("G");
    Tensor A = input("A", {M, K}, bf16), dC = input("dC", {M, N}, bf16), first = input("first", {G + 1}, i32);
    Tensor dB = output("dB", {G, K, N}, f32);
    grid(ceildiv(N, t.n), ceildiv(K, t.m), G, [&](Index x, Index y, Index g) {
      const Range rows = range(first(g), first(g + 1));
      Tensor a = A.slice(rows), dc = dC.slice(rows);
      Fragment acc({t.m, t.n}, f32, 0);
      pipelined(ceildiv(a.extent(0), t.k), {.stages = 4}, [&](Index k) {
        Shared As({t.k, t.m}, bf16), Ds({t.k, t.n}, bf16);
        copy(a.at(k * t.k, y * t.m), As);
        copy(dc.at(k * t.k, x * t.n), Ds);
        gemm(As.T(), Ds, acc);
      });
      copy(acc, dB.slice(g).at(y * t.m, x * t.n));
    });
  });
}

constexpr int columns = 80, depth = 100, group_count = 4;

Prepared fences_call(const Kernel& kernel, bool across = false) {
  const std::vector<int> first{0, 63, 63, 140, 251};
  const int M = first.back();
  const Data a = normal({M, depth}, bf16, 1), b = normal({group_count, columns, depth}, bf16, 2);
  Numbers C({M, columns});
  each(group_count, [&](int g) {
    put_rows(product_of(Numbers(rows_of(a, first[g], first[g + 1])), Numbers(b.select(0, g))), C, first[g]);
  });
  return {kernel, {a, across ? b.transpose(1, 2).contiguous() : b, Data::from(first), Wanted{C, bf16, 4e-3}}};
}

Prepared aligned_call() {
  const int M = 256, tile = 64;
  const std::vector<int> groups{2, -1, 0, 0};  // of tiles
  std::vector<int> group_of(M);
  each(M, [&](int i) { group_of[i] = groups[i / tile]; });
  const Data a = normal({M, depth}, bf16, 4), b = normal({group_count, columns, depth}, bf16, 2);
  Numbers C({M, columns}, NAN);
  each(M / tile, [&](int i) {
    if (groups[i] < 0) return;
    const Data rows = rows_of(a, i * tile, (i + 1) * tile);
    put_rows(product_of(Numbers(rows), Numbers(b.select(0, groups[i]))), C, i * tile);
  });
  return {grouped_and_aligned(small_tile), {a, b, Data::from(group_of), Wanted{C, bf16, 4e-3}}};
}

Prepared masked_call() {
  const std::vector<int> counts{0, 70, 64, 3};
  const int M = 90;
  const Data a = normal({group_count, M, depth}, bf16, 5), b = normal({group_count, columns, depth}, bf16, 2);
  Numbers C({group_count, M, columns}, NAN);
  each(group_count, [&](int g) {
    const Numbers own = product_of(Numbers(a.select(0, g)), Numbers(b.select(0, g)));
    each(counts[g], columns, [&](int i, int j) { C(g, i, j) = own(i, j); });
  });
  return {grouped_and_masked(small_tile), {a, b, Data::from(counts), Wanted{C, bf16, 4e-3}}};
}

Prepared weight_gradient_call() {
  const std::vector<int> first{0, 63, 63, 140, 251};
  const int M = first.back();
  const Data a = normal({M, depth}, bf16, 1), dc = normal({M, columns}, bf16, 3);
  const Numbers A(a), D(dc);
  Numbers dB({group_count, depth, columns});
  each(group_count, depth, columns, [&](int g, int i, int j) {
    for (int row = first[g]; row < first[g + 1]; ++row) dB(g, i, j) += A(row, i) * D(row, j);
  });
  return {gradient_of_weights(small_tile), {a, dc, Data::from(first), Wanted{dB, f32, 1e-4}}};
}

}  // namespace

Program grouped_gemm() {
  return {"gemm",
          "grouped_gemm",
          "rows of groups times the matrix of their group",
          {{"fences", [] { return fences_call(grouped_by_fences(small_tile, false)); }},
           {"fences_across", [] { return fences_call(grouped_by_fences(small_tile, true), true); }},
           {"table", [] { return fences_call(grouped_by_table(small_tile)); }},
           {"aligned", aligned_call},
           {"masked", masked_call}},
          {{"fences, 128 x 256 x 64", [] { return grouped_by_fences(large_tile, false); }},
           {"fences, B [K, N], 128 x 256 x 64", [] { return grouped_by_fences(large_tile, true); }},
           {"table, 128 x 256 x 64", [] { return grouped_by_table(large_tile); }},
           {"aligned, 128 x 256 x 64", [] { return grouped_and_aligned(large_tile); }},
           {"masked, 128 x 256 x 64", [] { return grouped_and_masked(large_tile); }}}};
}

Program grouped_gemm_weight_gradient() {
  return {"gemm",
          "grouped_gemm_weight_gradient",
          "the gradient of the matrices of groups, sums over their rows",
          {{"", weight_gradient_call}},
          {{"128 x 256 x 64", [] { return gradient_of_weights(large_tile); }}}};
}

}  // namespace programs
