// Gradients of scans of sequences that fit one tile and have no states: products of the tile alone.
#include "ops/linear/scan_pieces.hpp"
#include "ops/linear/scan_short.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

void launch_short_gradients(const BoundCall& call, Launch& launch, const ScanKernel& scan,
                            const ShortGradientTensors& t) {
  note_tile_of_short(call, scan.rows(), launch);
  launch(wide(scan, true), scan_short_gradients_kernel,
         {{"q", t.q},
          {"k", t.k},
          {"v", t.v},
          {"dout", t.dout},
          {"sums", t.sums},
          {"scale", t.scale},
          {"dq", t.dq},
          {"dk", t.dk},
          {"dv", t.dv},
          {"dsums", t.dsums}});
}

using namespace lang;
using lang::Tensor;

namespace {

class ShortGradients {
 public:
  explicit ShortGradients(const ScanKernel& kernel) : c(kernel) { in.s.declare(); }

  // A block has the heads that share q and k one after another.
  void run() const {
    grid(in.key_heads, in.s.count(), [&](Index key_head, Index n) {
      const Sequences& s = in.s;
      s.hold_promise(n);
      Shared qs({c.rows(), c.features()}, c.type), ks({c.rows(), c.features()}, c.type);
      copy(s.head(q, n, key_head).at(0), qs);
      copy(s.head(k, n, key_head).at(0), ks);
      Fragment dqs({c.rows(), c.features()}, f32, 0), dks({c.rows(), c.features()}, f32, 0);
      Expr group = Expr(in.heads) / in.key_heads;
      if (c.grouped)
        serial(group, [&](Index member) { add_head({n, key_head * group + member, qs, ks}, dqs, dks); });
      else
        add_head({n, key_head, qs, ks}, dqs, dks);
      copy(dqs, s.head(dq, n, key_head).at(0));
      copy(dks, s.head(dk, n, key_head).at(0));
    });
  }

 private:
  struct Head {
    Expr n, h;
    const Shared &q, &k;
  };

  void add_head(const Head& own, Fragment& dqs, Fragment& dks) const {
    GateTile gates(c);
    if (c.gated) gates.load(in.vector(sums, own.n, 0, own.h));
    Fragment scores({c.rows(), c.rows()}, f32, 0), ds({c.rows(), c.rows()}, f32, 0);
    Shared seen({c.rows(), c.rows()}, c.type), rounded({c.rows(), c.rows()}, c.type);
    gemm(own.q, own.k.T(), scores);
    gates.mask(scores, scale);
    copy(scores, seen);
    add_columns(own, seen, ds);
    if (c.gated) {
      parallel(scores, [&](Index i, Index j) { scores(i, j) *= ds(i, j); });
      Fragment dg = reduce_sum(scores), columns = reduce_sum(scores, 0);
      parallel(dg, [&](Index i) { dg(i) -= columns(i); });
      copy(dg, in.s.head(dsums, own.n, own.h).at(0));
    }
    gates.mask(ds, scale);
    copy(ds, rounded);
    gemm(rounded, own.k, dqs);
    gemm(rounded.T(), own.q, dks);
  }

  // Some columns of values at a time.
  void add_columns(const Head& own, const Shared& seen, Fragment& ds) const {
    const Sequences& s = in.s;
    pipelined(in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      Shared vs({c.rows(), c.block}, c.type), douts({c.rows(), c.block}, c.type);
      copy(s.head(v, own.n, own.h).at(0, column), vs);
      copy(s.head(dout, own.n, own.h).at(0, column), douts);
      add_ones(c, vs, column);
      Fragment dvs({c.rows(), c.block}, f32, 0);
      gemm(douts, vs.T(), ds);
      gemm(seen.T(), douts, dvs);
      copy(dvs, s.head(dv, own.n, own.h).at(0, column));
    });
  }

  const ScanKernel& c;
  ScanInputs in{c};
  Tensor q = in.keys("q"), k = in.keys("k"), v = in.values("v"), dout = input("dout", in.columns(), c.type);
  Tensor sums = c.gated ? in.vectors("sums") : q;
  Expr scale = scalar("scale", f32);
  Tensor dq = output("dq", in.s.shape({in.key_heads, c.d}), c.result);
  Tensor dk = output("dk", in.s.shape({in.key_heads, c.d}), c.result);
  Tensor dv = output("dv", in.s.shape({in.heads, c.d_v - (c.ones ? 1 : 0)}), c.type);
  Tensor dsums = c.gated ? output("dsums", in.of_heads(), f32) : dq;
};

}  // namespace

Kernel scan_short_gradients_kernel(const ScanKernel& c) {
  return kernel(instance_name("scan_short_gradients", c), [&] { ShortGradients(c).run(); });
}

}  // namespace tegula::ops
