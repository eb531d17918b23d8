#include "tegula/ops/cumsum.hpp"

#include <algorithm>

#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int run = 16;  // elements that a thread adds up

struct Instance {
  DType type = f32;
  int rows = 1, columns = 4096;  // of a tile
  bool segmented = false, reverse = false, exclusive = false;
  auto fields() const {
    return std::tuple(type, joined("t", rows, columns), labelled("segmented", segmented),
                      labelled("reverse", reverse), labelled("exclusive", exclusive));
  }
  int runs() const { return columns / run; }
};

Instance plan(const Bound<Cumsum>& c) {
  int columns = 64;
  while (columns < c.dim("n") && columns < 4096) columns *= 2;
  return {c.type("x"), 4096 / columns, columns, c.has("cu_seqlens"), c->reverse, c->exclusive};
}

// Elements are counted from the side on which sums begin: in runs, each summed by a thread, which are summed
// by doubling.
struct Program {
  const Instance& c;
  Dim rows{"rows"}, n{"n"};
  Tensor x = input("x", {rows, n}, c.type), out = output("out", {rows, n}, c.type);
  Tensor starts = x;  // 1 where a segment begins, seen from the side on which sums begin

  Expr column(const Expr& run_of, const Expr& place) const {
    Expr at = run_of * run + place;
    return c.reverse ? Expr(c.columns - 1 - at) : at;
  }
  Expr starts_at(const Expr& at) const { return c.segmented ? Expr(starts(at) != 0) : Expr(boolean(0)); }

  void mark_starts() {
    Expr segments = scalar("segments", i32);
    Tensor fences = input("cu_seqlens", {segments + 1}, i32);
    starts = workspace("starts", {n}, i32, {.zero = true});
    grid(ceildiv(segments, 256), [&](Index block) {
      parallel(256, [&](Index i) {
        Expr at = block * 256 + i, begin = fences(at), end = fences(at + 1);
        when(at < segments && begin < end && begin >= 0 && end <= n,
             [&] { atomic_max(starts(c.reverse ? Expr(end - 1) : begin), 1); });
      });
    });
  }

  // One step of a row: tile from column `first`, on what the steps before have left in `carry`.
  void tile(const Expr& row, const Expr& first, Shared& carry) const {
    // A column more, so that threads that walk along runs use different banks.
    Shared sums({c.rows, c.runs(), run + 1}, f32), open({c.runs(), run + 1}, boolean);
    Shared ends({2, c.rows, c.runs()}, f32), closed({2, c.runs()}, boolean);
    Fragment given = load(x.at(row, first), {c.rows, c.columns}, f32);
    parallel(given, [&](Index i, Index j) {
      Expr at = c.reverse ? Expr(c.columns - 1 - j) : Expr(j);
      sums(i, at / run, at % run) = given(i, j);
    });
    parallel(c.rows, c.runs(), [&](Index i, Index r) {
      Var sum = 0.f;
      for (int k = 0; k < run; ++k) {
        Expr value = sums(i, r, k), before = select(starts_at(first + column(r, k)), 0.f, sum);
        sum = before + value;
        sums(i, r, k) = c.exclusive ? before : Expr(sum);
      }
      ends(0, i, r) = sum;
    });
    parallel(c.runs(), [&](Index r) {
      Var none = true;
      for (int k = 0; k < run; ++k) {
        none = none && !starts_at(first + column(r, k));
        open(r, k) = none;
      }
      closed(0, r) = !none;
    });
    const int last = double_runs(ends, closed);
    add_runs(row, first, carry, last, sums, open, ends, closed);
    parallel(c.rows, [&](Index i) {
      Expr before = carry(i);
      carry(i) = ends(last, i, c.runs() - 1) + select(closed(last, c.runs() - 1), 0.f, before);
    });
  }
  // Sums of runs become sums of all runs up to each since a segment has begun. Which half of both has them.
  int double_runs(Shared& ends, Shared& closed) const {
    int from = 0;
    for (int distance = 1; distance < c.runs(); distance *= 2, from = 1 - from) {
      parallel(c.rows, c.runs(), [&](Index i, Index r) {
        Expr takes = r >= distance && !closed(from, r);
        ends(1 - from, i, r) = ends(from, i, r) + select(takes, ends(from, i, r - distance), 0.f);
      });
      parallel(c.runs(), [&](Index r) {
        closed(1 - from, r) = closed(from, r) || select(r >= distance, closed(from, r - distance), false);
      });
    }
    return from;
  }
  void add_runs(const Expr& row, const Expr& first, const Shared& carry, int last, const Shared& sums,
                const Shared& open, const Shared& ends, const Shared& closed) const {
    Fragment result({c.rows, c.columns}, f32);
    parallel(result, [&](Index i, Index j) {
      Expr at = c.reverse ? Expr(c.columns - 1 - j) : Expr(j), r = at / run;
      Expr runs_before = select(r > 0, ends(last, i, r - 1), 0.f);
      Expr is_closed = select(r > 0, closed(last, r - 1), false);
      Expr before = runs_before + select(is_closed, 0.f, carry(i));
      result(i, j) = sums(i, r, at % run) + select(open(r, at % run), before, 0.f);
    });
    copy(result, out.at(row, first));
  }
  void block(const Expr& row) const {
    Shared carry({c.rows}, f32);
    clear(carry);
    Expr tiles = ceildiv(n, c.columns);
    serial(tiles, [&](Index step) {
      tile(row, (c.reverse ? Expr(tiles - 1 - step) : Expr(step)) * c.columns, carry);
    });
  }
};

Kernel program(const Instance& c) {
  return kernel(instance_name("cumsum", c), [&] {
    Program p{c};
    if (c.segmented) p.mark_starts();
    grid(ceildiv(p.rows, c.rows), [&](Index block) { p.block(block * c.rows); });
  });
}

void formula(const Bound<Cumsum>& c, Exact& exact) {
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
          .in(&Op::cu_seqlens, "cu_seqlens", "segments+1", index, "where the segments of rows begin, and n")
          .packs("n")
          .option(&Op::reverse, "reverse", "sums from the right")
          .option(&Op::exclusive, "exclusive", "without the element itself")
          .out(&Op::out, "out", "... n", same_as("x"), "sum of x[j] over j <= i of the segment, in f32")
          .source("Blelloch 1990, Prefix Sums and Their Applications")
          .composed_gradient("cumsum")
          .flops("2*rows*n")
          .examples({{"ragged", "...=37 n=100"},
                     {"segmented_bf16", "...=2,2 n=5000 bf16 cu_seqlens segments=40 reverse"},
                     {"exclusive_f16", "...=3 n=300 f16 cu_seqlens segments=7 exclusive"}})
          .measured({{"16384x4096_bf16", "...=16384 n=4096 bf16"},
                     {"4096x16384_f32", "...=4096 n=16384"},
                     {"segmented_16384x4096_f32", "...=16384 n=4096 cu_seqlens segments=64"}})
          .run(plan, program, formula);
  return table;
}

}  // namespace tegula::ops
