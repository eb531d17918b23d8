// For tests: products of tiles of 16-bit floats that come from tensors of 8-bit floats, brought in several
// ways.
#pragma once
#include <optional>
#include <ostream>

#include "tegula/lang.hpp"

namespace tegula::passes::testing {

enum class Brought {
  copy,         // of all rows
  loop,         // over elements
  limited,      // rows of a window that ends, or begins, inside of the tile
  parts,        // of rows, from pages of a list
  short_parts,  // that are limited
  by_rows,      // each looked up: no box
  or_none,      // the same where the list has a row, written another way
  scaled,       // by a factor of each row: threads compute
};

struct WidenedCase {
  const char* name;
  std::size_t tiles;  // that warps widen
  Brought brought = Brought::copy;
  DType from = e4m3, to = bf16;
  int columns = 128, rows = 64, threads = 256;
  bool both = false;     // the left operand of each step, too
  bool factors = false;  // of rows, in a vector that elements are looked up for
  bool uneven = false;   // steps of blocks by a list
  bool engine = true;
  int stages = 2;
  int missing = 0;  // columns of the tile that tensors have not
};

inline void PrintTo(const WidenedCase& c, std::ostream* out) { *out << c.name; }

// Rows of the tile of the step.
inline void bring(const WidenedCase& c, const lang::Tensor& x, const lang::Tensor& list,
                  const lang::Expr& step, const lang::Expr& limit, lang::Shared& tile) {
  using namespace lang;
  const int part = 16;
  Expr first = step * c.rows;
  switch (c.brought) {
    case Brought::copy:
      return copy(x.at(first, 0), tile);
    case Brought::loop:
      return parallel(tile, [&](Index i, Index j) { tile(i, j) = x(first + i, j); });
    case Brought::limited:
      return copy(x.slice(range(3, limit)).at(first, 0), tile);
    case Brought::parts:
    case Brought::short_parts:
      for (int i = 0; i < c.rows / part; ++i) {
        Expr page = list((step + i) % 8) * part;
        Shared rows = tile.slice(range(i * part, (i + 1) * part), all);
        if (c.brought == Brought::parts)
          copy(x.at(page, 0), rows);
        else
          copy(x.slice(range(page, page + clamp(limit - first - i * part, 0, part))).at(page, 0), rows);
      }
      return;
    case Brought::by_rows:
      return parallel(tile, [&](Index i, Index j) { tile(i, j) = x(list(i % 8) * 8 + step, j); });
    case Brought::or_none:
      return parallel(tile, [&](Index i, Index j) {
        Expr token = first + i, own = select(token < limit, list(token % 8) * 8, -1);
        tile(i, j) = x(own, j);
      });
    case Brought::scaled:
      return parallel(tile, [&](Index i, Index j) { tile(i, j) = x(first + i, j) * 2.f; });
  }
}

// out = the sum over steps of a · tileᵀ · tile of values that come likewise; with factors, those of the first
// product's columns.
inline lang::Kernel widened_program(const WidenedCase& c) {
  using namespace lang;
  const int rows = c.threads / 2;
  return kernel("widened", [&] {
    Dim m("m"), n("n");
    lang::Tensor a = input("a", {m, c.columns}, c.to), x = input("x", {n, c.columns - c.missing}, c.from),
                 y = input("y", {n, c.columns - c.missing}, c.both ? c.from : c.to),
                 list = input("list", {8}, i32), factor = input("factor", {n, 3}, f32),
                 out = output("out", {m, c.columns}, f32);
    grid(ceildiv(m, rows), {.threads = c.threads}, [&](Index b) {
      Shared left({rows, c.columns}, c.to);
      copy(a.at(b * rows, 0), left);
      Fragment sum({rows, c.columns}, f32, 0);
      Expr all_steps = ceildiv(n, c.rows), limit = n - 5;
      pipelined(c.uneven ? min(all_steps, list(b % 8) + 1) : all_steps, {.stages = c.stages},
                [&](Index step) {
                  Shared tile({c.rows, c.columns}, c.to), values({c.rows, c.columns}, c.to);
                  bring(c, x, list, step, limit, tile);
                  Fragment s({rows, c.rows}, f32, 0);
                  gemm(left, tile.T(), s);
                  if (c.factors) {
                    Shared own({c.rows}, f32);
                    parallel(own, [&](Index i) {
                      Expr row = select(step * c.rows + i < limit, step * c.rows + i, -1);
                      own(i) = factor(row, 1);
                    });
                    parallel(s, [&](Index i, Index j) { s(i, j) *= own(j); });
                  }
                  if (c.both)
                    bring(c, y, list, step, limit, values);
                  else
                    copy(y.at(step * c.rows, 0), values);
                  gemm(s.to(c.to), values, sum);
                });
      copy(sum, out.at(b * rows, 0));
    });
  });
}

inline const WidenedCase all_widened[] = {
    {.name = "copy", .tiles = 1},
    {.name = "both_operands", .tiles = 2, .both = true},
    {.name = "loop_over_elements", .tiles = 2, .brought = Brought::loop, .both = true},
    {.name = "limited_rows", .tiles = 2, .brought = Brought::limited, .both = true},
    {.name = "pages", .tiles = 2, .brought = Brought::parts, .both = true},
    {.name = "pages_that_end", .tiles = 2, .brought = Brought::short_parts, .both = true},
    {.name = "f16_from_e5m2",
     .tiles = 2,
     .brought = Brought::limited,
     .from = e5m2,
     .to = f16,
     .columns = 64,
     .both = true},
    {.name = "of_32_columns",
     .tiles = 2,
     .brought = Brought::short_parts,
     .to = f16,
     .columns = 32,
     .both = true},
    {.name = "of_96_columns", .tiles = 1, .brought = Brought::limited, .columns = 96, .rows = 80},
    {.name = "of_256_columns", .tiles = 1, .brought = Brought::limited, .columns = 256, .rows = 48},
    {.name = "one_warp_group",
     .tiles = 2,
     .brought = Brought::limited,
     .rows = 128,
     .threads = 128,
     .both = true},
    {.name = "factors", .tiles = 2, .brought = Brought::limited, .both = true, .factors = true},
    {.name = "uneven_blocks", .tiles = 2, .both = true, .factors = true, .uneven = true},
    {.name = "rows_that_are_looked_up", .tiles = 1, .brought = Brought::by_rows},
    {.name = "rows_or_none",
     .tiles = 2,
     .brought = Brought::or_none,
     .rows = 128,
     .threads = 128,
     .both = true,
     .factors = true,
     .uneven = true},
    {.name = "rows_of_e5m2",
     .tiles = 2,
     .brought = Brought::or_none,
     .from = e5m2,
     .to = f16,
     .columns = 64,
     .both = true},
    {.name = "rows_without_room", .tiles = 0, .brought = Brought::by_rows, .columns = 256, .both = true},
    {.name = "columns_that_tensors_lack", .tiles = 2, .both = true, .missing = 32},
    {.name = "pages_that_lack_columns",
     .tiles = 2,
     .brought = Brought::short_parts,
     .rows = 128,
     .threads = 128,
     .both = true,
     .factors = true,
     .missing = 48},
    {.name = "rows_that_lack_columns",
     .tiles = 2,
     .brought = Brought::or_none,
     .rows = 128,
     .threads = 128,
     .both = true,
     .uneven = true,
     .missing = 48},
    {.name = "scaled_elements", .tiles = 0, .brought = Brought::scaled},
    {.name = "without_the_engine", .tiles = 0, .engine = false},
    {.name = "of_the_same_width", .tiles = 0, .from = bf16},
    {.name = "without_room", .tiles = 0, .columns = 256, .both = true},
    {.name = "instead_of_a_second_block", .tiles = 0, .threads = 128, .both = true},
};

}  // namespace tegula::passes::testing
