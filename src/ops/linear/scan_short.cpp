#include "ops/linear/scan_short.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "ops/linear/scan_pieces.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

std::optional<int> tile_of_short(const BoundCall& call, const ScanKernel& scan) {
  if (!call.on_gpu() || scan.type.bits() != 16 || scan.first || scan.last || scan.reverse) return {};
  for (const int rows : {16, 32, 64, 128})
    if (call.dim("longest") <= rows && !(scan.packed && rows > chunk_tokens_of_scan)) return rows;
  return {};
}

ScanKernel with_all_columns(ScanKernel scan) {
  constexpr int most = 128;
  scan.block = std::min(most, (scan.d_v + 15) / 16 * 16);
  return scan;
}

std::optional<int> tile_of_sums(const ScanKernel& scan) {
  return scan.packed ? std::optional<int>() : scan.of_tile;
}

void note_tile_of_short(const BoundCall& call, int rows, Launch& launch) {
  const std::int64_t tokens = call.dim("longest");
  if (tokens >= rows) return;
  launch.note(
      [&] { return fmt::format("plan: sequences of {} tokens have a tile of {} rows each", tokens, rows); });
}

std::optional<int> tile_of_short_gradients(const BoundCall& call, const ScanKernel& scan) {
  const std::optional<int> rows = tile_of_short(call, scan);
  return rows.value_or(chunk_tokens_of_scan + 1) <= chunk_tokens_of_scan ? rows : std::nullopt;
}

using namespace lang;
using lang::Tensor;

namespace {

// The pass over a tile: its tensors by the names of scan_kernel.
class ShortScan {
 public:
  explicit ShortScan(const ScanKernel& kernel)
      : c(kernel),
        q(in.keys("q")),
        k(in.keys("k")),
        v(in.values("v")),
        sums(c.gated ? in.gates() : q),
        weights(c.weighted ? in.vectors("weights") : q),
        shares(c.skip ? input("D", {in.heads}, f32) : q),
        z(c.gate ? in.values("z") : q),
        scale(scalar("scale", f32)),
        out(output("out", in.columns(), c.result)) {
    in.s.declare();
  }

  void run() const {
    grid(in.blocks(), in.heads, in.s.count(), {.threads = c.threads()}, [&](Index x, Index h, Index n) {
      in.s.hold_promise(n);
      std::optional<GateTile> even;
      if (c.even) even.emplace(c).fill(sums(h), false);
      // One step, so that the next block's tiles come under this block's work.
      pipelined(1, {.stages = 1}, [&](Index) { of_sequence(n, h, x * c.block, even); });
    });
  }

 private:
  void of_sequence(const Expr& n, const Expr& h, const Expr& column, std::optional<GateTile>& even) const {
    const Sequences& s = in.s;
    std::optional<GateTile> of_tokens;
    GateTile& gates = even ? *even : of_tokens.emplace(c);
    Shared qs({c.rows(), c.features()}, c.type), ks({c.rows(), c.features()}, c.type);
    Shared vs({c.rows(), c.block}, c.type);
    copy(s.head(q, n, in.key_head(h)).at(0), qs);
    copy(s.head(k, n, in.key_head(h)).at(0), ks);
    copy(s.head(v, n, h).at(0, column), vs);
    if (c.gated && !c.even) gates.load(in.vector(sums, n, 0, h));
    if (c.weighted) gates.load_weights(in.vector(weights, n, 0, h));
    add_ones(c, vs, column);
    Fragment scores({c.rows(), c.rows()}, f32, 0), o({c.rows(), c.block}, f32, 0);
    gemm(qs, ks.T(), scores);
    gates.mask(scores, scale);
    gemm(scores.to(c.type), vs, o);
    if (c.skip) {
      Expr share = shares(h);
      parallel(o, [&](Index i, Index j) { o(i, j) += share * f32(vs(i, j)); });
    }
    if (c.gate) {
      Fragment gate = load(s.head(z, n, h).at(0, column), {c.rows(), c.block}, f32);
      parallel(o, [&](Index i, Index j) { o(i, j) *= gate(i, j) / (1 + exp(-gate(i, j))); });
    }
    copy(o, s.head(out, n, h).at(0, column));
  }

  const ScanKernel& c;
  ScanInputs in{c};
  Tensor q, k, v, sums, weights, shares, z;
  Expr scale;
  Tensor out;
};

}  // namespace

Kernel scan_short_kernel(const ScanKernel& c) {
  return kernel(instance_name("scan_short", c), [&] { ShortScan(c).run(); });
}

}  // namespace tegula::ops
