// x → e4m3 with a scale for 128 columns of a row, or for blocks of 128 × 128; scales in f32 or rounded up to
// powers of two (ue8m0, stored as bytes), rows first or last; and rows divided into padded groups.
#include <algorithm>

#include "tests/programs/list.hpp"

namespace programs {
namespace {

constexpr int cast_group = 128;
constexpr float largest_e4m3 = 448.F;  // of e4m3

enum class Scales { floats, powers };

struct CastTile {
  int rows = 32;
  Scales scales = Scales::floats;
  bool rows_last = false;  // scales are [groups, rows]
  DType type = bf16;

  DType scale_type() const { return scales == Scales::powers ? u8 : f32; }
};

// The least power of two that is not below s > 0, as the byte of its exponent.
Expr exponent_above(const Expr& s) { return (bitcast(s, u32) + 0x7fffffu) >> u32(23); }
Expr power_of(const Expr& exponent) { return bitcast(exponent << u32(23), f32); }
Expr scale_of(const Expr& magnitude) { return max(magnitude, 1e-4f) / largest_e4m3; }

Kernel cast_of_rows(const CastTile& t) {
  return kernel("cast_fp8_rows", [&] {
    Dim M("M"), N("N");
    Expr groups = ceildiv(N, cast_group);
    Tensor X = input("X", {M, N}, t.type), Y = output("Y", {M, N}, e4m3);
    Tensor scales = t.rows_last ? output("scales", {groups, M}, t.scale_type())
                                : output("scales", {M, groups}, t.scale_type());
    grid(groups, ceildiv(M, t.rows), [&](Index g, Index y) {
      Fragment x = load(X.at(y * t.rows, g * cast_group), {t.rows, cast_group}), s = reduce_absmax(x);
      Fragment q({t.rows, cast_group}, f32);
      parallel(s, [&](Index i) { s(i) = scale_of(s(i)); });
      Tensor to = t.rows_last ? scales.slice(g) : scales.slice(all, g);
      if (t.scales == Scales::powers) {
        Fragment exponent({t.rows}, u8);
        parallel(exponent, [&](Index i) {
          Expr above = exponent_above(s(i));
          exponent(i) = u8(above);
          s(i) = power_of(above);
        });
        copy(exponent, to.at(y * t.rows));
      } else {
        copy(s, to.at(y * t.rows));
      }
      parallel(q, [&](Index i, Index j) { q(i, j) = x(i, j) / s(i); });
      copy(q, Y.at(y * t.rows, g * cast_group));
    });
  });
}

Kernel cast_of_blocks(const CastTile& t) {
  return kernel("cast_fp8_blocks", [&] {
    Dim M("M"), N("N");
    Tensor X = input("X", {M, N}, t.type), Y = output("Y", {M, N}, e4m3);
    Tensor scales = output("scales", {ceildiv(M, cast_group), ceildiv(N, cast_group)}, t.scale_type());
    grid(ceildiv(N, cast_group), ceildiv(M, cast_group), [&](Index column, Index row) {
      Fragment x = load(X.at(row * cast_group, column * cast_group), {cast_group, cast_group}), q({cast_group, cast_group}, f32);
      Fragment magnitude = reduce_absmax(reduce_absmax(x));
      Expr exact = scale_of(magnitude.scalar()), above = exponent_above(exact);
      const bool powers = t.scales == Scales::powers;
      Expr s = powers ? power_of(above) : exact;
      scales(row, column) = powers ? Expr(u8(above)) : exact;
      parallel(q, [&](Index i, Index j) { q(i, j) = x(i, j) / s; });
      copy(q, Y.at(row * cast_group, column * cast_group));
    });
  });
}

// Rows of group b, sizes[b] of them one after the other, to Y[b]; after its last row are zeros with scale
// 0.
Kernel cast_of_groups(const CastTile& t) {
  return kernel("cast_fp8_groups", [&] {
    Dim M("M"), N("N"), G("G"), P("P");
    Tensor X = input("X", {M, N}, t.type), sizes = input("sizes", {G}, i32), Y = output("Y", {G, P, N}, e4m3);
    Tensor scales = output("scales", {G, P, ceildiv(N, cast_group)}, f32);
    grid(ceildiv(N, cast_group), ceildiv(P, t.rows), G, [&](Index g, Index y, Index b) {
      Var begin = 0;
      serial(b, [&](Index i) { begin += sizes(i); });
      Expr first = begin;
      Tensor own = X.slice(range(first, first + sizes(b)));
      Fragment x = load(own.at(y * t.rows, g * cast_group), {t.rows, cast_group}), s = reduce_absmax(x);
      Fragment q({t.rows, cast_group}, f32);
      parallel(s, [&](Index i) { s(i) = select(y * t.rows + i < own.extent(0), scale_of(s(i)), 0); });
      parallel(q, [&](Index i, Index j) { q(i, j) = select(s(i) > 0, x(i, j) / s(i), 0); });
      copy(s, scales.slice(b, all, g).at(y * t.rows));
      copy(q, Y.slice(b).at(y * t.rows, g * cast_group));
    });
  });
}

constexpr int M = 150, N = 300, G = 3;

Data values_of_calls() {
  const Data x = normal({M, N}, bf16, 1);
  tegula::copy_elements(Data::zeros({cast_group}, bf16), x.select(0, 5).slice(0, 0, cast_group));
  return x;
}
// The scale of rows [first, end) and columns of group g.
double scale_of(const Numbers& x, int first, int end, int g, Scales kind) {
  double magnitude = 1e-4;
  for (int i = first; i < std::min(end, M); ++i)
    for (int j = g * cast_group; j < std::min(N, (g + 1) * cast_group); ++j)
      magnitude = std::max(magnitude, std::abs(x(i, j)));
  const double scale = magnitude / largest_e4m3;
  return kind == Scales::powers ? std::exp2(std::ceil(std::log2(scale))) : scale;
}
double stored(double scale, Scales kind) { return kind == Scales::powers ? std::log2(scale) + 127 : scale; }
// Quotients near the middle of two numbers of e4m3 may round to either.
Wanted in_8_bits(const Numbers& exact) { return {exact, e4m3, 0.04}; }

Prepared rows_call(const CastTile& t) {
  const Data x = values_of_calls();
  const Numbers X(x);
  Numbers Y(X.shape), scales(t.rows_last ? Shape{G, M} : Shape{M, G});
  each(M, N, [&](int i, int j) {
    const double s = scale_of(X, i, i + 1, j / cast_group, t.scales);
    (t.rows_last ? scales(j / cast_group, i) : scales(i, j / cast_group)) = stored(s, t.scales);
    Y(i, j) = X(i, j) / s;
  });
  return {cast_of_rows(t), {x, in_8_bits(Y), Wanted{scales, t.scale_type(), 1e-6}}};
}
Prepared blocks_call(const CastTile& t) {
  const Data x = values_of_calls();
  const Numbers X(x);
  Numbers Y(X.shape), scales({2, G});
  each(2, G, [&](int b, int g) {
    const double s = scale_of(X, b * cast_group, (b + 1) * cast_group, g, t.scales);
    scales(b, g) = stored(s, t.scales);
    for (int i = b * cast_group; i < std::min(M, (b + 1) * cast_group); ++i)
      for (int j = g * cast_group; j < std::min(N, (g + 1) * cast_group); ++j) Y(i, j) = X(i, j) / s;
  });
  return {cast_of_blocks(t), {x, in_8_bits(Y), Wanted{scales, t.scale_type(), 1e-6}}};
}
Prepared groups_call() {
  const std::vector<int> sizes{40, 0, 110}, first{0, 40, 40};
  const int P = 120;
  const Data x = values_of_calls();
  const Numbers X(x);
  Numbers Y({3, P, N}), scales({3, P, G});
  each(3, [&](int b) {
    each(sizes[b], N, [&](int i, int j) {
      const int row = first[b] + i;
      const double s = scales(b, i, j / cast_group) = scale_of(X, row, row + 1, j / cast_group, Scales::floats);
      Y(b, i, j) = X(row, j) / s;
    });
  });
  return {cast_of_groups({8}), {x, Data::from(sizes), in_8_bits(Y), Wanted{scales, f32, 1e-6}}};
}

}  // namespace

Program cast_fp8() {
  return {
      "gemm",
      "cast_fp8",
      "values to e4m3 with scales of rows, blocks or groups of rows",
      {{"rows", [] { return rows_call({8}); }},
       {"rows_last_powers",
        [] {
          return rows_call({32, Scales::powers, true});
        }},
       {"blocks", [] { return blocks_call({}); }},
       {"blocks_powers", [] { return blocks_call({.scales = Scales::powers}); }},
       {"groups", groups_call}},
      {{"rows, 32 at a time", [] { return cast_of_rows({}); }},
       {"rows last, powers of two",
        [] {
          return cast_of_rows({32, Scales::powers, true});
        }},
       {"rows of f32, 8 at a time", [] { return cast_of_rows({.rows = 8, .rows_last = true, .type = f32}); }},
       {"blocks", [] { return cast_of_blocks({}); }},
       {"groups", [] { return cast_of_groups({}); }}}};
}

}  // namespace programs
