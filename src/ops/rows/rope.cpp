#include "tegula/ops/rope.hpp"

#include <algorithm>
#include <cmath>

#include "ops/pieces/rope_pairing.hpp"
#include "ops/pieces/row_tiles.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

struct RopeInstance {
  DType type = f32;
  int pairs = 0, rest = 0;  // pairs of features that are turned, and features that are not
  int tokens = 1, heads = 1;
  bool has_positions = false;
  RopePairing pairing = RopePairing::halves;
  bool inverse = false;
  bool by_lanes = false;  // neighbours are lanes that exchange their numbers
  auto fields() const {
    return std::tuple(type, pairs, labelled("rest", rest), joined("t", tokens, heads),
                      labelled("positions", has_positions), pairing, labelled("inverse", inverse),
                      labelled("lanes", by_lanes));
  }
};

RopeInstance rope_plan(const Bound<Rope>& c) {
  const int pairs = c.small_dim("half"), rest = c.small_dim("d") - 2 * pairs;
  // On a CPU heads that follow each other in memory, as far as prefetches reach.
  const int most_heads = c.on_gpu() ? 8 : 32;
  const int heads = static_cast<int>(std::clamp<std::int64_t>(c.dim("heads"), 1, most_heads));
  const int tokens = rows_of_tile(std::clamp(4096 / std::max(heads * pairs, 1), 1, 16), heads * pairs);
  const bool by_lanes = c->pairing == RopePairing::neighbours && !c.on_gpu();
  return {c.type("x"), pairs, rest, tokens, heads, c.has("positions"), c->pairing, c->inverse, by_lanes};
}

struct RopeProgram {
  const RopeInstance& c;
  Dim batch{"batch"}, tokens{"tokens"}, heads{"heads"}, length{"length"};
  int d = 2 * c.pairs + c.rest;
  Tensor x = input("x", {batch, tokens, heads, d}, c.type);
  Tensor cosine = input("cosine", {length, c.pairs}, f32), sine = input("sine", {length, c.pairs}, f32);
  Tensor positions = c.has_positions ? input("positions", {batch, tokens}, i32) : x;
  Tensor out = output("out", {batch, tokens, heads, d}, c.type);

  // Rows of a table for the tokens from `first` on.
  template <class Tile>
  Tile angles(const Tensor& table, const Expr& b, const Expr& first) const {
    Tile rows({c.tokens, c.pairs}, f32);
    if (c.has_positions)
      gather(
          table, [&](Index i) { return i32(positions(b, first + i)); }, rows);
    else
      copy(table.at(first), rows);
    return rows;
  }
  void check(const Expr& b, const Expr& first) const {
    if (!c.has_positions) return;
    parallel(c.tokens, [&](Index i) {
      Expr position = positions(b, first + i);
      assert_that(position >= 0 && position < length, "a position is outside of cosine and sine");
    });
  }
  void halves(const Tensor& from, const Tensor& to, const Expr& first, const Expr& head, const Fragment& cos,
              const Fragment& sin) const {
    Fragment low = load(from.at(first, head), {c.tokens, c.heads, c.pairs}, f32);
    Fragment high = load(from.at(first, head, c.pairs), {c.tokens, c.heads, c.pairs}, f32);
    parallel(low, [&](Index i, Index h, Index j) {
      Expr a = low(i, h, j), b = high(i, h, j), across = c.inverse ? Expr(-sin(i, j)) : Expr(sin(i, j));
      low(i, h, j) = a * cos(i, j) - b * across;
      high(i, h, j) = b * cos(i, j) + a * across;
    });
    copy(low, to.at(first, head));
    copy(high, to.at(first, head, c.pairs));
  }
  void neighbours(const Tensor& from, const Tensor& to, const Expr& first, const Expr& head,
                  const Fragment& cos, const Fragment& sin) const {
    Fragment values = load(from.at(first, head), {c.tokens, c.heads, 2 * c.pairs}, f32);
    Fragment pairs = values.reshape({c.tokens, c.heads, c.pairs, 2});
    parallel(c.tokens, c.heads, c.pairs, [&](Index i, Index h, Index j) {
      Expr a = pairs(i, h, j, 0), b = pairs(i, h, j, 1);
      Expr across = c.inverse ? Expr(-sin(i, j)) : Expr(sin(i, j));
      pairs(i, h, j, 0) = a * cos(i, j) - b * across;
      pairs(i, h, j, 1) = b * cos(i, j) + a * across;
    });
    copy(values, to.at(first, head));
  }
  // Each feature takes what its neighbour has.
  void exchanged(const Tensor& from, const Tensor& to, const Expr& first, const Expr& head, const Shared& cos,
                 const Shared& sin) const {
    Shared values({c.tokens, c.heads, 2 * c.pairs}, f32);
    copy(from.at(first, head), values);
    Fragment turned({c.tokens, c.heads, 2 * c.pairs}, f32);
    parallel(turned, [&](Index i, Index h, Index j) {
      Expr across = sin(i, j / 2) * select((j & 1) == (c.inverse ? 1 : 0), -1.f, 1.f);
      turned(i, h, j) = values(i, h, j) * cos(i, j / 2) + values(i, h, j ^ 1) * across;
    });
    copy(turned, to.at(first, head));
  }
  void turn(const Tensor& from, const Tensor& to, const Expr& head, const Expr& first, const Expr& b) const {
    if (c.by_lanes)
      return exchanged(from, to, first, head, angles<Shared>(cosine, b, first),
                       angles<Shared>(sine, b, first));
    Fragment cos = angles<Fragment>(cosine, b, first), sin = angles<Fragment>(sine, b, first);
    if (c.pairing == RopePairing::halves)
      halves(from, to, first, head, cos, sin);
    else
      neighbours(from, to, first, head, cos, sin);
  }
  void block(const Expr& head, const Expr& first, const Expr& b) const {
    check(b, first);
    const auto features = range(0, 2 * c.pairs);
    turn(x.slice(b, all, all, features), out.slice(b, all, all, features), head, first, b);
    if (c.rest == 0) return;
    Fragment rest = load(x.slice(b).at(first, head, 2 * c.pairs), {c.tokens, c.heads, c.rest});
    copy(rest, out.slice(b).at(first, head, 2 * c.pairs));
  }
};

Kernel rope_program(const RopeInstance& c) {
  return kernel(instance_name("rope", c), [&] {
    const RopeProgram p{c};
    grid(ceildiv(p.heads, c.heads), ceildiv(p.tokens, c.tokens), p.batch,
         [&](Index head, Index token, Index b) { p.block(head * c.heads, token * c.tokens, b); });
  });
}

void rope_formula(const Bound<Rope>& c, Exact& exact) {
  const std::int64_t pairs = c.dim("half"), tokens = c.dim("tokens");
  const auto x = exact.array("x"), cosine = exact.array("cosine"), sine = exact.array("sine"),
             out = exact.array("out");
  const auto* positions = c.has("positions") ? exact["positions"].data_as<std::int32_t>() : nullptr;
  const bool halves = c->pairing == RopePairing::halves;
  const auto turned = [&](auto b, auto t, auto h, auto i) {
    if (i >= 2 * pairs) return x(b, t, h, i);
    const std::int64_t j = halves ? i % pairs : i / 2, second = halves ? i / pairs : i % 2;
    const std::int64_t other = halves ? (i + pairs) % (2 * pairs) : i ^ 1;
    const std::int64_t position = positions ? positions[b * tokens + t] : t;
    const double across = (second == 1) == c->inverse ? -sine(position, j) : sine(position, j);
    return x(b, t, h, i) * cosine(position, j) + x(b, t, h, other) * across;
  };
  out.each(turned);
}

}  // namespace

const OperatorSchema& rope_schema() {
  using Op = Rope;
  static const OperatorSchema table =
      Schema<Op>("rope", "rotary position embedding: rotates pairs of features by an angle per position")
          .in(&Op::x, "x", "[batch] tokens heads d", floats, "queries or keys")
          .in(&Op::cosine, "cosine", "length half", is(f32), "cosines of the angles of every position")
          .in(&Op::sine, "sine", "length half", is(f32), "sines of the same angles")
          .in(&Op::positions, "positions", "[batch] tokens", index,
              "positions of the tokens; 0, 1, 2, ... if omitted")
          .converts()
          .range("0", "length")
          .option(&Op::pairing, "pairing",
                  "features that are rotated together: j and j + half, or 2j and 2j + 1")
          .option(&Op::inverse, "inverse", "rotates back, which is also the gradient")
          .out(&Op::out, "out", "[batch] tokens heads d", same_as("x"),
               "the first 2*half features rotated, the others unchanged")
          .require("cosine", "2*half <= d", "at most {d}/2 pairs, half the features",
                   "give the angles of fewer pairs")
          .require("cosine", "1 <= half", "1 pair or more", "leave the call out")
          .require("cosine", "positions ? 1 <= length : tokens <= length", "angles of all {tokens} tokens",
                   "give longer tables")
          .source("Su et al. 2021, RoFormer")
          .composed_gradient("rope")
          .flops("6*batch*tokens*heads*half")
          .examples({{"ragged", "batch=2 tokens=13 heads=3 d=24 length=20 half=12 positions"},
                     {"partial_bf16", "tokens=19 heads=9 d=100 length=19 half=20 bf16 pairing=neighbours"},
                     {"inverse_f16", "batch=1 tokens=7 heads=2 d=64 length=9 half=32 f16 inverse"}})
          .measured({{"4x8192x32x128_bf16", "batch=4 tokens=8192 heads=32 d=128 length=8192 half=64 bf16"},
                     {"4x8192x32x128_neighbours_bf16",
                      "batch=4 tokens=8192 heads=32 d=128 length=8192 half=64 bf16 pairing=neighbours"}})
          .run(rope_plan, rope_program, rope_formula);
  return table;
}

}  // namespace tegula::ops
