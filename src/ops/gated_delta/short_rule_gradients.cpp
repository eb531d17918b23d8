// Gradients of short sequences without states. With P the scores, A = (I + L)⁻¹, C = P A and S = dout · vᵀ,
// all as large as a tile: dv = β Cᵀ dout, dP = S (A β)ᵀ and dL = −Cᵀ S (A β)ᵀ, of what both matrices have.
#include "ops/gated_delta/delta_chunk.hpp"
#include "ops/gated_delta/short_rule.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

class ShortRuleGradients {
 public:
  explicit ShortRuleGradients(const ShortRuleKernel& kernel)
      : tokens(kernel.scan, kernel.beta), threads(*kernel.threads) {
    s.declare();
  }

  // A block has the heads that share q and k one after another.
  void run() const {
    grid(tokens.in.key_heads, s.count(), {.threads = threads}, [&](Index key_head, Index n) {
      s.hold_promise(n);
      Shared qs = tokens.tile(), ks = tokens.tile();
      copy(s.head(tokens.q, n, key_head).at(0), qs);
      copy(s.head(tokens.k, n, key_head).at(0), ks);
      Sums sums(*this);
      Expr group = Expr(tokens.in.heads) / tokens.in.key_heads;
      if (c.grouped)
        serial(group, [&](Index member) { add_head({n, key_head * group + member, qs, ks}, sums); });
      else
        add_head({n, key_head, qs, ks}, sums);
      copy(sums.dq, s.head(dq, n, key_head).at(0));
      copy(sums.dk, s.head(dk, n, key_head).at(0));
    });
  }

 private:
  struct Head {
    Expr n, h;
    const Shared &q, &k;
  };
  struct Sums {
    Fragment dq, dk;
    explicit Sums(const ShortRuleGradients& of)
        : dq({of.rows, of.c.features()}, f32, 0), dk({of.rows, of.c.features()}, f32, 0) {}
  };
  // What tokens of a head are to each other: scores, and L without shares.
  struct Products {
    Fragment scores, keys;
  };

  Fragment square() const { return Fragment({rows, rows}, f32, 0); }
  Shared rounded(const Fragment& x) const {
    Shared result({rows, rows}, c.type);
    copy(x, result);
    return result;
  }

  void add_head(const Head& own, Sums& sums) const {
    Shared vectors({DeltaVector::summed + 1, rows}, f32);
    tokens.form_sums({own.n, own.h, 0, 0}, vectors);
    const Products products = form_products(own, vectors);
    Shared lower = tile_to_invert(rows);
    parallel(products.keys,
             [&](Index i, Index j) { lower(i, j) = products.keys(i, j) * vectors(DeltaVector::share, i); });
    invert_lower(lower);
    Shared inverse({rows, rows}, c.type), shares({rows, rows}, c.type);
    parallel(rows, rows, [&](Index i, Index j) {
      inverse(i, j) = lower(i, j);
      shares(i, j) = lower(i, j) * vectors(DeltaVector::share, j);
    });
    Fragment both = square(), pairs = square();
    gemm(rounded(products.scores), inverse, both);
    const Shared asked = rounded(both);
    add_columns(own, asked, vectors, pairs);
    through_tokens(own, products, {vectors, asked, shares, rounded(pairs)}, sums);
  }

  Products form_products(const Head& own, const Shared& vectors) const {
    Products result{tokens.form_scores(own.q, own.k, vectors), square()};
    Fragment& keys = result.keys;
    gemm(own.k, own.k.T(), keys);
    parallel(keys, [&](Index i, Index j) {
      keys(i, j) = select(i > j, keys(i, j) * RuleTokens::between(vectors, i, j), 0);
    });
    return result;
  }

  // Some columns of values at a time.
  void add_columns(const Head& own, const Shared& asked, const Shared& vectors, Fragment& pairs) const {
    pipelined(tokens.in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      Shared vs({rows, c.block}, c.type), douts({rows, c.block}, c.type);
      copy(s.head(v, own.n, own.h).at(0, column), vs);
      copy(s.head(dout, own.n, own.h).at(0, column), douts);
      Fragment dvs({rows, c.block}, f32, 0);
      gemm(douts, vs.T(), pairs);
      gemm(asked.T(), douts, dvs);
      parallel(dvs, [&](Index i, Index j) { dvs(i, j) *= vectors(DeltaVector::share, i); });
      copy(dvs, s.head(dv, own.n, own.h).at(0, column));
    });
  }

  struct Tiles {
    const Shared &vectors, &asked, &shares;
    const Shared pairs;
  };
  void through_tokens(const Head& own, const Products& products, const Tiles& t, Sums& sums) const {
    Fragment dscores = square(), solved = square(), dlower = square();
    gemm(t.pairs, t.shares.T(), dscores);
    gemm(t.asked.T(), t.pairs, solved);
    gemm(rounded(solved), t.shares.T(), dlower);
    parallel(dlower, [&](Index i, Index j) { dlower(i, j) = select(i > j, -dlower(i, j), 0); });
    parallel(solved, [&](Index i, Index j) {
      solved(i, j) = select(i == j, solved(i, j), 0) + dlower(i, j) * products.keys(i, j);
    });
    copy(reduce_sum(solved), s.head(dbeta, own.n, own.h).at(0));
    if (c.gated) write_gates(own, products, t.vectors, dscores, dlower);
    parallel(dscores, [&](Index i, Index j) {
      Expr between = RuleTokens::between(t.vectors, i, j);
      dscores(i, j) = select(i >= j, dscores(i, j) * between * tokens.scale, 0);
      dlower(i, j) *= between * t.vectors(DeltaVector::share, i);
    });
    const Shared of_scores = rounded(dscores), of_keys = rounded(dlower);
    gemm(of_scores, own.k, sums.dq);
    gemm(of_scores.T(), own.q, sums.dk);
    gemm(of_keys, own.k, sums.dk);
    gemm(of_keys.T(), own.k, sums.dk);
  }

  // Gates are in all sums from their token on, and pairs fade by what is between them.
  void write_gates(const Head& own, const Products& products, const Shared& vectors, const Fragment& dscores,
                   const Fragment& dlower) const {
    Fragment of_pairs({rows, rows}, f32);
    parallel(of_pairs, [&](Index i, Index j) {
      of_pairs(i, j) = dscores(i, j) * products.scores(i, j) +
                       dlower(i, j) * products.keys(i, j) * vectors(DeltaVector::share, i);
    });
    Fragment dgs = reduce_sum(of_pairs), columns = reduce_sum(of_pairs, 0);
    parallel(dgs, [&](Index i) { dgs(i) -= columns(i); });
    copy(scan_sum(dgs, {.reverse = true}), s.head(dg, own.n, own.h).at(0));
  }

  RuleTokens tokens;
  int threads;
  const ScanKernel& c = tokens.scan;
  Sequences& s = tokens.in.s;
  int rows = tokens.rows;
  Tensor v = tokens.in.values("v"), dout = input("dout", tokens.in.columns(), c.type);
  Tensor dq = output("dq", s.shape({tokens.in.key_heads, c.d}), c.result);
  Tensor dk = output("dk", s.shape({tokens.in.key_heads, c.d}), c.result);
  Tensor dv = output("dv", tokens.in.columns(), c.type);
  Tensor dbeta = output("dbeta", tokens.in.of_heads(), tokens.beta.type());
  Tensor dg = c.gated ? output("dg", tokens.in.of_heads(), f32) : dbeta;
};

}  // namespace

Kernel short_rule_gradients_kernel(const ShortRuleKernel& c) {
  return kernel(instance_name("short_rule_gradients", c), [&] { ShortRuleGradients(c).run(); });
}

}  // namespace tegula::ops
