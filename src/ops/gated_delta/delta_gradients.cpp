#include "ops/gated_delta/delta_gradients.hpp"

#include "ops/gated_delta/delta_chunk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// dw = Pᵀ dout + e^(g_last − g) k · dstate; y = Aᵀ dw; dstate ← e^g_last dstate + scale (e^g q)ᵀ dout − (e^g
// k)ᵀ β y.
class PassGradients {
 public:
  explicit PassGradients(const DeltaPass& kernel) : c(kernel) { in.s.declare(); }

  void run() const {
    grid(in.blocks(), in.heads, in.parts(), {.threads = threads_of_pass(c)}, [&](Index x, Index h, Index z) {
      const auto part = in.part(z);
      Expr column = x * c.block;
      Fragment dstate({c.block, scan.features()}, f32, 0);
      if (c.last) copy(in.state(dend, part, h).at(column), dstate);
      pipelined(part.chunks, {.stages = 3}, [&](Index step) {
        Expr chunk = part.first + part.chunks - 1 - step;
        of_chunk({part.n, h, chunk, chunk * rows, column}, dstate);
      });
      if (c.first) copy(dstate, in.state(dstart, part, h).at(column));
    });
  }

 private:
  struct Chunk {
    Expr n, h, chunk, row, column;
  };

  void of_chunk(const Chunk& at, Fragment& dstate) const {
    const Sequences& s = in.s;
    Shared qs({rows, scan.features()}, c.type), ks({rows, scan.features()}, c.type),
        douts({rows, c.block}, c.type);
    Shared inverses({rows, rows}, c.type), seen({rows, rows}, c.type), own({DeltaVector::count, rows}, f32);
    copy(s.head(dout, at.n, at.h).at(at.row, at.column), douts);
    copy(s.chunk(scores, at.n, at.chunk, at.h).at(0), seen);
    copy(s.head(k, at.n, in.key_head(at.h)).at(at.row), ks);
    copy(s.chunk(vectors, at.n, at.chunk, at.h).at(0), own);
    copy(s.head(q, at.n, in.key_head(at.h)).at(at.row), qs);
    copy(s.chunk(inverse, at.n, at.chunk, at.h).at(0), inverses);
    Fragment before = dstate.to(c.type);
    Fragment dw({c.block, rows}, f32, 0), from_state({c.block, rows}, f32, 0), y({c.block, rows}, f32, 0);
    gemm(before, ks.T(), from_state);
    gemm(douts.T(), seen, dw);
    // What no product reads follows one, so that it runs beside it.
    if (c.keep) copy(dstate, s.chunk(dstates, at.n, at.chunk, at.h).at(at.column));
    Expr all = own(DeltaVector::grown, rows - 1);
    parallel(dstate, [&](Index i, Index j) { dstate(i, j) *= all; });
    parallel(dw, [&](Index i, Index j) { dw(i, j) += from_state(i, j) * own(DeltaVector::faded, j); });
    gemm(dw.to(c.type), inverses, y);
    Fragment given({c.block, rows}, c.type), asking({c.block, rows}, f32);
    copy(douts.T(), given);
    parallel(asking, [&](Index i, Index j) { asking(i, j) = f32(given(i, j)) * own(DeltaVector::asked, j); });
    gemm(asking.to(c.type), qs, dstate);
    if (c.keep) copy(y.T(), s.chunk(solved, at.n, at.chunk, at.h).at(0, at.column));
    parallel(y,
             [&](Index i, Index j) { y(i, j) *= -own(DeltaVector::share, j) * own(DeltaVector::grown, j); });
    gemm(y.to(c.type), ks, dstate);
  }

  Extents ends() const { return of_parts(in, c.d_v, c.d); }

  const DeltaPass& c;
  ScanKernel scan = scan_of_pass(c);
  ScanInputs in{scan};
  int rows = scan.rows();
  Tensor q = in.keys("q"), k = in.keys("k"), dout = input("dout", in.columns(), c.type);
  Tensor inverse = input("inverse", of_rows(in, rows), c.type);
  Tensor scores = input("scores", of_rows(in, rows), c.type);
  Tensor vectors = input("vectors", of_vectors(in), f32);
  Tensor dend = c.last ? input("dfinal_state", ends(), f32) : k;
  Tensor solved = c.keep ? output("solved", of_rows(in, c.d_v), c.type) : k;
  Tensor dstates = c.keep ? output("dstates", of_states(in), c.type) : k;
  Tensor dstart = c.first ? output("dinitial_state", ends(), f32) : k;
};

}  // namespace

Kernel delta_pass_gradients_kernel(const DeltaPass& c) {
  return kernel(instance_name("delta_pass_gradients", c), [&] { PassGradients(c).run(); });
}

namespace {

// The gradients of a chunk, for one head or summed over those that share q and k.
class ChunkGradientsOfRule {
 public:
  explicit ChunkGradientsOfRule(const DeltaChunkGradients& kernel) : c(kernel) { in.s.declare_chunks(); }

  void run() const {
    const Sequences& s = in.s;
    // Sums of more features than that do not fit the registers of one warp group.
    constexpr int most_of_one_group = 128;
    const int threads = scan.features() > most_of_one_group ? 256 : 0;
    // Heads first: those of a token are neighbours in memory.
    grid(in.key_heads, s.chunks(), s.parts(), {.threads = threads}, [&](Index key_head, Index x, Index y) {
      const auto place = s.place(x, y);
      const Expr &n = place.n, &chunk = place.chunk;
      Expr row = chunk * rows, group = Expr(in.heads) / in.key_heads;
      s.leave_unless(n, row);
      SumsOfHeads heads(*this);
      const auto of_member = [&](const Expr& h) { of_head({n, h, key_head, chunk, row}, heads); };
      if (c.grouped)
        serial(group, [&](Index member) { of_member(key_head * group + member); });
      else
        of_member(key_head);
      copy(heads.dq, s.head(dq, n, key_head).at(row));
      copy(heads.dk, s.head(dk, n, key_head).at(row));
    });
  }

 private:
  static constexpr int parts = 2, neighbours = 8;
  struct Chunk {
    Expr n, h, key_head, chunk, row;
  };
  // Of the heads so far: dq and dk, parts of k · dk, and q · dq − k · dk.
  struct SumsOfHeads {
    Fragment dq, dk, keys, difference;
    explicit SumsOfHeads(const ChunkGradientsOfRule& of)
        : dq({of.rows, of.scan.features()}, f32, 0),
          dk({of.rows, of.scan.features()}, f32, 0),
          keys({of.rows, parts, neighbours}, f32, 0),
          difference({of.rows}, f32, 0) {}
  };
  // What a head's chunk needs after its columns. So it comes while these are multiplied, and columns of the
  // next head come while it is used.
  struct Head {
    Chunk at;
    Shared q, k, vectors;
    // The decays between two tokens.
    Expr between(const Expr& i, const Expr& j) const {
      return exp(min(vectors(DeltaVector::summed, i) - vectors(DeltaVector::summed, j), 0));
    }
  };
  // Sums over columns of values: y · statesᵀ, dout · wᵀ, y · wᵀ, y · v for each token, and states · dstates.
  struct Sums {
    Fragment of_y, dscores, dkeys, along, both;
    explicit Sums(const ScanKernel& scan)
        : of_y({scan.rows(), scan.features()}, f32, 0),
          dscores({scan.rows(), scan.rows()}, f32, 0),
          dkeys({scan.rows(), scan.rows()}, f32, 0),
          along({scan.rows()}, f32, 0),
          both({scan.block}, f32, 0) {}
  };

  void of_head(const Chunk& at, SumsOfHeads& heads) const {
    const Sequences& s = in.s;
    Sums sums(scan);
    add_columns(at, sums, heads);
    Head own{at, Shared({rows, scan.features()}, c.type), Shared({rows, scan.features()}, c.type),
             Shared({DeltaVector::count, rows}, f32)};
    copy(s.head(q, at.n, at.key_head).at(at.row), own.q);
    copy(s.head(k, at.n, at.key_head).at(at.row), own.k);
    copy(s.chunk(vectors, at.n, at.chunk, at.h).at(0), own.vectors);
    Fragment dgs({rows}, f32);
    if (c.gated) through_ends(own, sums, heads, dgs);
    through_found(own, sums, heads.dk);
    // One tile has both, so that shared memory is left for loads that run ahead.
    Shared rounded({rows, rows}, c.type);
    through_scores(own, sums, rounded, heads.dq, heads.dk);
    through_keys(own, sums, rounded, heads.dk);
    copy(sums.along, s.head(dbeta, at.n, at.h).at(at.row));
    if (!c.gated) return;
    // What keys ask is in the gradient of their shares, but for values, which through_ends has taken away.
    Fragment of_q = rows_with(heads.dq, own.q), of_k = rows_with(heads.dk, own.k);
    parallel(dgs, [&](Index i) {
      heads.difference(i) = of_q(i) - of_k(i);
      dgs(i) += 2 * sums.along(i) * own.vectors(DeltaVector::share, i) + heads.difference(i);
    });
    if (c.grouped) copy(shares_of(heads.dk, own.k), heads.keys);
    Fragment from_last = scan_sum(dgs, {.reverse = true});
    copy(from_last, s.head(dg, at.n, at.h).at(at.row));
  }

  void add_columns(const Chunk& at, Sums& sums, SumsOfHeads& heads) const {
    const Sequences& s = in.s;
    const auto& [n, h, key_head, chunk, row] = at;
    pipelined(in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      Shared douts({rows, c.block}, c.type), ys({rows, c.block}, c.type), ws({rows, c.block}, c.type);
      Shared vs({rows, c.block}, c.type), state({c.block, scan.features()}, c.type);
      Shared dstate({c.block, scan.features()}, c.type), own({DeltaVector::count, rows}, f32);
      copy(s.head(dout, n, h).at(row, column), douts);
      copy(s.chunk(written, n, chunk, h).at(0, column), ws);
      copy(s.chunk(solved, n, chunk, h).at(0, column), ys);
      copy(s.chunk(states, n, chunk, h).at(column), state);
      copy(s.chunk(dstates, n, chunk, h).at(column), dstate);
      copy(s.chunk(vectors, n, chunk, h).at(0), own);
      copy(s.head(v, n, h).at(row, column), vs);
      gemm(douts, ws.T(), sums.dscores);
      gemm(ys, ws.T(), sums.dkeys);
      gemm(ys, state, sums.of_y);
      Fragment asking({rows, c.block}, f32), adding({rows, c.block}, f32);
      parallel(asking,
               [&](Index i, Index j) { asking(i, j) = f32(douts(i, j)) * own(DeltaVector::asked, i); });
      gemm(asking.to(c.type), state, heads.dq);
      parallel(adding, [&](Index i, Index j) { adding(i, j) = f32(ws(i, j)) * own(DeltaVector::faded, i); });
      gemm(adding.to(c.type), dstate, heads.dk);
      reduce_sum(map(ys, [&](Index i, Index j) { return f32(ys(i, j)) * f32(vs(i, j)); }), sums.along);
      if (c.gated)
        reduce_sum(map(state, [&](Index i, Index j) { return f32(state(i, j)) * f32(dstate(i, j)); }),
                   sums.both);
      Fragment dvs({rows, c.block}, f32);
      parallel(dvs, [&](Index i, Index j) { dvs(i, j) = f32(ys(i, j)) * own(DeltaVector::share, i); });
      copy(dvs, s.head(dv, n, h).at(row, column));
    });
  }

  // With G the sum of gates up to a token, queries and keys that ask grow by e^G, keys that are written fall.
  // So the gradient of G is q · dq + k · dk of asking − k · dk of being written, and those of all later
  // chunks are that of a factor of the state after this one. A pair of tokens has the same rounded product on
  // both sides, which cancel in sums from the last.
  void through_ends(const Head& own, const Sums& sums, const SumsOfHeads& heads, Fragment& dgs) const {
    Fragment written = shares_of(heads.dk, own.k);
    if (c.grouped)
      parallel(written, [&](Index i, Index part, Index j) { written(i, part, j) -= heads.keys(i, part, j); });
    Expr end =
        reduce_sum(sums.both).scalar() * own.vectors(DeltaVector::grown, rows - 1) +
        reduce_sum(written.reshape({written.extent(0) * written.extent(1) * written.extent(2)})).scalar();
    parallel(dgs, [&](Index i) {
      dgs(i) = select(i == rows - 1, end, 0) - 2 * sums.along(i) * own.vectors(DeltaVector::share, i) -
               heads.difference(i);
    });
  }
  // Parts of x · y, each of a thread's own columns.
  Fragment shares_of(const Fragment& x, const Shared& y) const {
    const int columns = x.extent(1) / (parts * neighbours);
    return reduce_sum(map(x, [&](Index i, Index f) { return x(i, f) * f32(y(i, f)); })
                          .reshape({rows, parts, columns, neighbours}),
                      2);
  }
  // What is found of a key, e^g k · state, is taken away from the value.
  void through_found(const Head& own, Sums& sums, Fragment& dks) const {
    const Shared& own_vectors = own.vectors;
    parallel(sums.of_y, [&](Index i, Index f) { sums.of_y(i, f) *= -own_vectors(DeltaVector::grown, i); });
    Fragment found = rows_with(sums.of_y, own.k);
    parallel(found, [&](Index i) { sums.along(i) += found(i); });
    parallel(dks,
             [&](Index i, Index f) { dks(i, f) += sums.of_y(i, f) * own_vectors(DeltaVector::share, i); });
  }
  Fragment rows_with(const Fragment& x, const Shared& y) const {
    return reduce_sum(map(x, [&](Index i, Index f) { return x(i, f) * f32(y(i, f)); }));
  }

  void through_scores(const Head& own, Sums& sums, Shared& rounded, Fragment& dqs, Fragment& dks) const {
    Fragment& ds = sums.dscores;
    parallel(ds,
             [&](Index i, Index j) { ds(i, j) = select(i >= j, ds(i, j) * own.between(i, j) * scale, 0); });
    copy(ds, rounded);
    gemm(rounded, own.k, dqs);
    gemm(rounded.T(), own.q, dks);
  }

  // The gradient of L = β k kᵀ e^(g_i − g_j) below the diagonal.
  void through_keys(const Head& own, Sums& sums, Shared& rounded, Fragment& dks) const {
    Fragment &dl = sums.dkeys, products({rows, rows}, f32, 0);
    gemm(own.k, own.k.T(), products);
    parallel(dl, [&](Index i, Index j) { dl(i, j) = select(i > j, -dl(i, j) * own.between(i, j), 0); });
    reduce_sum(map(dl, [&](Index i, Index j) { return dl(i, j) * products(i, j); }), sums.along);
    parallel(dl, [&](Index i, Index j) { dl(i, j) *= own.vectors(DeltaVector::share, i); });
    copy(dl, rounded);
    gemm(rounded, own.k, dks);
    gemm(rounded.T(), own.k, dks);
  }

  const DeltaChunkGradients& c;
  ScanKernel scan = scan_of(c);
  ScanInputs in{scan};
  int rows = scan.rows();
  Tensor q = in.keys("q"), k = in.keys("k"), v = in.values("v"), dout = input("dout", in.columns(), c.type);
  Tensor written = input("written", of_rows(in, c.d_v), c.type),
         solved = input("solved", of_rows(in, c.d_v), c.type);
  Tensor states = input("states", of_states(in), c.type), dstates = input("dstates", of_states(in), c.type);
  Tensor vectors = input("vectors", of_vectors(in), f32);
  Expr scale = scalar("scale", f32);
  Tensor dq = output("dq", in.s.shape({in.key_heads, c.d}), c.result);
  Tensor dk = output("dk", in.s.shape({in.key_heads, c.d}), c.result);
  Tensor dv = output("dv", in.columns(), c.type), dbeta = output("dbeta", in.of_heads(), c.beta);
  Tensor dg = c.gated ? output("dg", in.of_heads(), f32) : dbeta;
};

}  // namespace

Kernel delta_chunk_gradients_kernel(const DeltaChunkGradients& c) {
  return kernel(instance_name("delta_chunk_gradients", c), [&] { ChunkGradientsOfRule(c).run(); });
}

}  // namespace tegula::ops
