#include "tegula/ops/cumsum.hpp"

#include <algorithm>

#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct CumsumInstance {
  DType type = f32;
  int rows = 1, columns = 4096;                                                  // of a tile
  bool segmented = false, reverse = false, exclusive = false, is_whole = false;  // a tile has whole rows
  auto fields() const {
    return std::tuple(type, joined("t", rows, columns), labelled("segmented", segmented),
                      labelled("reverse", reverse), labelled("exclusive", exclusive),
                      labelled("whole", is_whole));
  }
  // Tiles have few elements, so several blocks share a processor, and some load while others add. Segments
  // take twice the registers of a sum.
  int threads() const { return rows * columns < 4096 ? 128 : segmented ? 512 : 256; }
};

CumsumInstance cumsum_plan(const Bound<Cumsum>& c) {
  int columns = 64;
  while (columns < c.dim("n") && columns < 4096) columns *= 2;
  return {c.type("x"),  4096 / columns,       columns, c.has("cu_seqlens"), c->reverse,
          c->exclusive, c.dim("n") <= columns};
}

// Tiles of a row come one after the other; what one has summed up is added to the element at which the next
// begins.
struct CumsumProgram {
  const CumsumInstance& c;
  Dim rows{"rows"}, n{"n"};
  Tensor x = input("x", {rows, n}, c.type), out = output("out", {rows, n}, c.type);
  Tensor starts = x;  // true where a segment begins, seen from the side on which sums begin

  void mark_starts() {
    Expr segments = scalar("segments", i32);
    Tensor fences = input("cu_seqlens", {segments + 1}, i32);
    starts = workspace("starts", {n}, boolean, {.zero = true});
    grid(ceildiv(segments, 256), [&](Index block) {
      parallel(256, [&](Index i) {
        Expr at = block * 256 + i, begin = fences(at), end = fences(at + 1);
        when(at < segments && begin < end && begin >= 0 && end <= n,
             [&] { starts(c.reverse ? Expr(end - 1) : begin) = true; });
      });
    });
  }
  Fragment scanned(const Fragment& given, const Fragment& begins) const {
    const ScanOptions options{.exclusive = c.exclusive, .reverse = c.reverse};
    return c.segmented ? scan_sum(given, begins, options) : scan_sum(given, options);
  }
  // `carry` is null where a tile has whole rows.
  void tile(const Expr& row, const Expr& column, Shared* carry) const {
    const int first = c.reverse ? c.columns - 1 : 0, last = c.columns - 1 - first;
    Fragment given = load(x.at(row, column), {c.rows, c.columns}, f32), begins({c.rows, c.columns}, boolean);
    if (c.segmented) parallel(begins, [&](Index i, Index j) { begins(i, j) = starts(column + j); });
    const auto is_begin = [&](Index i, Index j) { return c.segmented ? Expr(begins(i, j)) : Expr(false); };
    if (carry)
      parallel(given, [&](Index i, Index j) {
        Expr before = (*carry)(i);
        given(i, j) += select(j == first && !is_begin(i, j), before, 0.f);
      });
    Fragment sums = scanned(given, begins);
    if (carry)
      parallel(sums, [&](Index i, Index j) {
        Expr before = (*carry)(i);
        if (c.exclusive) sums(i, j) = select(j == first && !is_begin(i, j), before, sums(i, j));
      });
    copy(sums, out.at(row, column));
    if (!carry) return;
    parallel(sums, [&](Index i, Index j) {
      Expr own = given(i, j), before = sums(i, j);
      Expr total = c.exclusive ? select(j == first || is_begin(i, j), 0.f, before) + own : before;
      when(j == last, [&] { (*carry)(i) = total; });
    });
  }
  void block(const Expr& row) const {
    if (c.is_whole) return tile(row, 0, nullptr);
    Shared carry({c.rows}, f32);
    clear(carry);
    Expr tiles = ceildiv(n, c.columns);
    serial(tiles, [&](Index step) {
      tile(row, (c.reverse ? Expr(tiles - 1 - step) : Expr(step)) * c.columns, &carry);
    });
  }
};

Kernel cumsum_program(const CumsumInstance& c) {
  return kernel(instance_name("cumsum", c), [&] {
    CumsumProgram p{c};
    if (c.segmented) p.mark_starts();
    grid(ceildiv(p.rows, c.rows), {.threads = c.threads()}, [&](Index block) { p.block(block * c.rows); });
  });
}

void cumsum_formula(const Bound<Cumsum>& c, Exact& exact) {
  const std::int64_t n = c.dim("n");
  const double* x = exact.data("x");
  double* out = exact.data("out");
  std::vector<bool> starts(static_cast<std::size_t>(n) + 1);
  if (c.has("cu_seqlens")) {
    const tegula::Tensor& fences = exact["cu_seqlens"];
    for (std::int64_t s = 0; s + 1 < fences.nelements(); ++s) {
      const auto *at = fences.data_as<std::int32_t>() + s, *end = at + 1;
      if (*at < *end) starts[static_cast<std::size_t>(c->reverse ? *end - 1 : *at)] = true;
    }
  }
  for (std::int64_t row = 0; row < c.dim("rows"); ++row, x += n, out += n) {
    double sum = 0;
    for (std::int64_t step = 0; step < n; ++step) {
      const std::int64_t at = c->reverse ? n - 1 - step : step;
      const double before = starts[static_cast<std::size_t>(at)] ? 0 : sum;
      sum = before + x[at];
      out[at] = c->exclusive ? before : sum;
    }
  }
}

}  // namespace

const OperatorSchema& cumsum_schema() {
  using Op = Cumsum;
  static const OperatorSchema table =
      Schema<Op>("cumsum", "running sums of rows, or of segments of rows")
          .in(&Op::x, "x", "... n", floats, "rows")
          .in(&Op::cu_seqlens, "cu_seqlens", "segments+1", index,
              "first element of each segment of a row, and n at the end")
          .packs("n")
          .option(&Op::reverse, "reverse", "sums from right to left")
          .option(&Op::exclusive, "exclusive", "leaves out the element itself")
          .out(&Op::out, "out", "... n", same_as("x"), "sum of x[j] over j <= i of the segment, in f32")
          .source("Blelloch 1990, Prefix Sums and Their Applications")
          .composed_gradient("cumsum")
          .flops("2*rows*n")
          .examples({{"ragged", "...=37 n=100"},
                     {"segmented_bf16", "...=2,2 n=5000 bf16 cu_seqlens segments=40 reverse"},
                     {"exclusive_f16", "...=3 n=300 f16 cu_seqlens segments=7 exclusive"},
                     {"5120_bf16", "...=2 n=5120 bf16"}})
          .measured({{"16384x4096_bf16", "...=16384 n=4096 bf16"},
                     {"4096x16384_f32", "...=4096 n=16384"},
                     {"segmented_16384x4096_f32", "...=16384 n=4096 cu_seqlens segments=64"}})
          .run(cumsum_plan, cumsum_program, cumsum_formula);
  return table;
}

}  // namespace tegula::ops
