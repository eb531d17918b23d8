// Gradients of kda of what each chunk has alone. As u = (I + β L)⁻¹ r, the gradient of β L is −(dr) uᵀ below
// the diagonal: no product has the inverse but dr = Aᵀ du.
#include "ops/gated_delta/kda_chunk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// dr and what follows from it without features.
class ValueGradients {
 public:
  explicit ValueGradients(const KdaKernel& kernel)
      : c(kernel),
        in(c),
        v(input("v", in.columns(), c.type)),
        beta(input("beta", in.of_heads(), c.beta)),
        dout(input("dout", in.columns(), c.type)),
        written(input("written", in.columns(), c.type)),
        du(input("du", in.columns(), c.type)),
        inverse(input("inverse", in.of_rows(), c.type)),
        scale(scalar("scale", f32)),
        dv(output("dv", in.columns(), c.type)),
        dright(output("dright", in.columns(), c.type)),
        dscores(output("dscores", in.of_rows(), c.type)),
        dlower(output("dlower", in.of_rows(), c.type)),
        sums(output("sums", in.of_sums(), f32)) {
    in.s.declare_chunks();
  }

  void run() const {
    const Sequences& s = in.s;
    grid(in.heads, s.chunks(c.rows()), s.parts(), [&](Index h, Index y, Index z) {
      const Sequences::Place place = s.place(y, z, c.rows());
      const Expr &n = place.n, &chunk = place.chunk;
      Expr row = chunk * c.rows();
      s.leave_unless(n, row);
      Fragment scores({c.rows(), c.rows()}, f32, 0), lower({c.rows(), c.rows()}, f32, 0),
          dbeta({c.rows()}, f32, 0);
      pipelined(in.blocks(), {.stages = 1}, [&](Index x) {
        Shared a({c.rows(), c.rows()}, c.type), betas({c.rows()}, f32);
        copy(s.head(inverse, n, h).at(row), a);
        copy(s.head(beta, n, h).at(row), betas);
        add_columns(Block{n, h, row, x * c.block}, a, betas, scores, lower, dbeta);
      });
      parallel(scores, [&](Index i, Index j) {
        scores(i, j) = select(i >= j, scores(i, j) * scale, 0);
        lower(i, j) = select(i > j, -lower(i, j), 0);
      });
      copy(scores, s.head(dscores, n, h).at(row));
      copy(lower, s.head(dlower, n, h).at(row));
      copy(dbeta, s.head(sums, n, h).slice(all, c.steps()).at(row));
    });
  }

 private:
  struct Block {
    Expr n, h, row, column;
  };

  void add_columns(const Block& own, const Shared& a, const Shared& betas, Fragment& scores, Fragment& lower,
                   Fragment& dbeta) const {
    const auto window = [&](const Tensor& t) { return in.s.head(t, own.n, own.h).at(own.row, own.column); };
    const auto tile = [&] { return Shared({c.rows(), c.block}, c.type); };
    Shared vs = tile(), douts = tile(), us = tile(), dus = tile(), rights = tile();
    copy(window(dout), douts);
    copy(window(written), us);
    copy(window(du), dus);
    copy(window(v), vs);
    Fragment dr({c.rows(), c.block}, f32, 0);
    gemm(a.T(), dus, dr);
    gemm(douts, us.T(), scores);
    copy(dr, rights);
    copy(dr, window(dright));
    gemm(rights, us.T(), lower);
    reduce_sum(map(dr, [&](Index i, Index j) { return dr(i, j) * f32(vs(i, j)); }), dbeta);
    parallel(dr, [&](Index i, Index j) { dr(i, j) *= betas(i); });
    copy(dr, window(dv));
  }

  const KdaKernel& c;
  KdaInputs in;
  Tensor v, beta, dout, written, du, inverse;
  Expr scale;
  Tensor dv, dright, dscores, dlower, sums;
};

// Gradients of some features of q, k and gates in a chunk.
class FeatureGradients {
 public:
  explicit FeatureGradients(const KdaKernel& kernel)
      : c(kernel),
        in(c),
        q(input("q", in.keys(), c.type)),
        k(input("k", in.keys(), c.type)),
        g(input("g", in.of_features(), f32)),
        beta(input("beta", in.of_heads(), c.beta)),
        dout(input("dout", in.columns(), c.type)),
        written(input("written", in.columns(), c.type)),
        dright(input("dright", in.columns(), c.type)),
        states(input("states", in.states(), c.type)),
        dstates(input("dstates", in.states(), c.type)),
        dscores(input("dscores", in.of_rows(), c.type)),
        dlower(input("dlower", in.of_rows(), c.type)),
        scale(scalar("scale", f32)),
        dq(output("dq", in.keys(), c.result)),
        dk(output("dk", in.keys(), c.result)),
        dg(output("dg", in.of_features(), f32)),
        sums(output("sums", in.of_sums(), f32)) {
    in.s.declare_chunks();
  }

  void run() const {
    const Sequences& s = in.s;
    GridOptions options;
    // One warp group has room for its sums and another block beside it.
    if (c.type.bits() == 16) options.threads = 128, options.blocks_per_processor = 2;
    grid(in.key_heads, s.chunks(c.rows()) * c.steps(), s.parts(), options,
         [&](Index key_head, Index x, Index y) {
           const Sequences::Place place = s.place(x / c.steps(), y, c.rows());
           const Expr &n = place.n, &chunk = place.chunk;
           Expr step = x % c.steps(), row = chunk * c.rows();
           Expr group = Expr(in.heads) / Operand(in.key_heads);
           s.leave_unless(n, row);
           Fragment all_dq({c.rows(), c.step()}, f32, 0), all_dk({c.rows(), c.step()}, f32, 0);
           const auto of_head = [&](const Expr& h) {
             const ChunkStep own{n, key_head, h, chunk, row, step, step * c.step()};
             Sums products(c);
             add_columns(own, products);
             pipelined(1, {.stages = 1}, [&](Index) { finish(own, products, all_dq, all_dk); });
           };
           if (c.grouped)
             serial(group, [&](Index member) { of_head(key_head * group + member); });
           else
             of_head(key_head);
           copy(all_dq, s.head(dq, n, key_head).at(row, step * c.step()));
           copy(all_dk, s.head(dk, n, key_head).at(row, step * c.step()));
         });
  }

 private:
  struct ChunkStep {
    Expr n, key_head, h, chunk, row, step, first;
  };
  // Sums over columns of values: products with the state and its gradient.
  struct Sums {
    Fragment of_q, of_seen, of_kept, both;
    explicit Sums(const KdaKernel& c)
        : of_q({c.rows(), c.step()}, f32, 0),
          of_seen({c.rows(), c.step()}, f32, 0),
          of_kept({c.rows(), c.step()}, f32, 0),
          both({c.step()}, f32, 0) {}
  };

  void add_columns(const ChunkStep& own, Sums& products) const {
    const Sequences& s = in.s;
    pipelined(in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      const auto tile = [&](int rows) { return Shared({rows, c.block}, c.type); };
      Shared douts = tile(c.rows()), us = tile(c.rows()), rights = tile(c.rows());
      Shared state = tile(c.step()), dstate = tile(c.step());
      copy(s.head(dout, own.n, own.h).at(own.row, column), douts);
      copy(s.head(written, own.n, own.h).at(own.row, column), us);
      copy(s.head(dright, own.n, own.h).at(own.row, column), rights);
      copy(s.chunk(states, own.n, own.chunk, own.h).at(own.first, column), state);
      copy(s.chunk(dstates, own.n, own.chunk, own.h).at(own.first, column), dstate);
      gemm(douts, state.T(), products.of_q);
      gemm(rights, state.T(), products.of_seen);
      gemm(us, dstate.T(), products.of_kept);
      reduce_sum(map(state, [&](Index i, Index j) { return f32(state(i, j)) * f32(dstate(i, j)); }),
                 products.both);
    });
  }

  // x kᵀ and k kᵀ with their decays: through the factors that have e^G, and through those that have e^−G.
  struct Sides {
    Fragment left_q, left_k, right;
    explicit Sides(const KdaKernel& c)
        : left_q({c.rows(), c.step()}, f32, 0),
          left_k({c.rows(), c.step()}, f32, 0),
          right({c.rows(), c.step()}, f32, 0) {}
  };

  void finish(const ChunkStep& own, Sums& products, Fragment& all_dq, Fragment& all_dk) const {
    const Sequences& s = in.s;
    KdaFeatures x(c);
    Shared betas({c.rows()}, f32);
    copy(s.head(q, own.n, own.key_head).at(own.row, own.first), x.q);
    copy(s.head(k, own.n, own.key_head).at(own.row, own.first), x.k);
    copy(s.head(g, own.n, own.h).at(own.row, own.first), x.gates);
    copy(s.head(beta, own.n, own.h).at(own.row), betas);
    x.form();
    Sides sides(c);
    through_subchunks(own, x, betas, sides);
    parallel(sides.left_q, [&](Index t, Index i) {
      Expr since = x.since_first(t, i);
      sides.left_q(t, i) = sides.left_q(t, i) * x.near(t, i) + products.of_q(t, i) * since * scale;
      sides.left_k(t, i) = sides.left_k(t, i) * x.near(t, i) - products.of_seen(t, i) * since;
      products.of_kept(t, i) *= x.until_last(t, i);
      sides.right(t, i) = sides.right(t, i) * x.away(t, i) + products.of_kept(t, i);
      all_dq(t, i) += sides.left_q(t, i);
      all_dk(t, i) += sides.left_k(t, i) * betas(t) + sides.right(t, i);
    });
    write_dg(own, x, betas, products, sides);
    copy(reduce_sum(map(sides.left_k, [&](Index t, Index i) { return sides.left_k(t, i) * f32(x.k(t, i)); })),
         s.head(sums, own.n, own.h).slice(all, own.step).at(own.row));
  }

  // Tokens of one subchunk at a time, on either side of the scores.
  void through_subchunks(const ChunkStep& own, const KdaFeatures& x, const Shared& betas,
                         Sides& sides) const {
    const Sequences& s = in.s;
    Shared scores({c.rows(), c.rows()}, c.wide()), lower({c.rows(), c.rows()}, c.wide());
    copy(s.head(dscores, own.n, own.h).at(own.row), scores);
    copy(s.head(dlower, own.n, own.h).at(own.row), lower);
    const auto tile = [&] { return Shared({c.rows(), c.step()}, c.wide()); };
    Shared near_q = tile(), near_k = tile(), away_k = tile();
    parallel(x.near, [&](Index t, Index i) {
      Expr key = f32(x.k(t, i));
      near_q(t, i) = f32(x.q(t, i)) * x.near(t, i);
      near_k(t, i) = key * x.near(t, i) * betas(t);
      away_k(t, i) = key * x.away(t, i);
    });
    for (int subchunk = 0; subchunk < c.subchunks(); ++subchunk) {
      const Subscript tokens = range(subchunk * c.subchunk_rows, (subchunk + 1) * c.subchunk_rows);
      const auto sum = [&] { return Fragment({c.rows(), c.step()}, f32, 0); };
      Fragment left_q = sum(), left_k = sum(), right = sum();
      gemm(scores.slice(all, tokens), away_k.slice(tokens), left_q);
      gemm(lower.slice(all, tokens), away_k.slice(tokens), left_k);
      gemm(scores.slice(tokens).T(), near_q.slice(tokens), right);
      gemm(lower.slice(tokens).T(), near_k.slice(tokens), right);
      parallel(right, [&](Index t, Index i) {
        Expr from = x.factors(t / c.subchunk_rows * c.subchunks() + subchunk, i);
        sides.left_q(t, i) += left_q(t, i) * from;
        sides.left_k(t, i) += left_k(t, i) * from;
        sides.right(t, i) += right(t, i) * x.towards(subchunk, t, i);
      });
    }
  }

  // Gates are in all sums from their token on, so their gradients are summed from the chunk's last token
  // back.
  void write_dg(const ChunkStep& own, const KdaFeatures& x, const Shared& betas, Sums& products,
                const Sides& sides) const {
    Fragment of_sums({c.rows(), c.step()}, f32);
    parallel(of_sums, [&](Index t, Index i) {
      Expr key = f32(x.k(t, i));
      of_sums(t, i) =
          f32(x.q(t, i)) * sides.left_q(t, i) + key * (sides.left_k(t, i) * betas(t) - sides.right(t, i));
      products.of_kept(t, i) *= key;
    });
    parallel(products.both, [&](Index i) {
      Expr total =
          x.factors(c.subchunks() * c.subchunks(), i) * x.factors((c.subchunks() + 1) * c.subchunks(), i);
      products.both(i) *= total;
    });
    reduce_sum(products.of_kept, products.both, 0);
    Fragment from_last = scan_sum(of_sums, {.dim = 0, .reverse = true});
    parallel(from_last, [&](Index t, Index i) { from_last(t, i) += products.both(i); });
    copy(from_last, in.s.head(dg, own.n, own.h).at(own.row, own.first));
  }

  const KdaKernel& c;
  KdaInputs in;
  Tensor q, k, g, beta, dout, written, dright, states, dstates, dscores, dlower;
  Expr scale;
  Tensor dq, dk, dg, sums;
};

}  // namespace

Kernel kda_value_gradients_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda_value_gradients", c), [&] { ValueGradients(c).run(); });
}

Kernel kda_feature_gradients_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda_feature_gradients", c), [&] { FeatureGradients(c).run(); });
}

Kernel kda_share_gradients_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda_share_gradients", c), [&] {
    Dim batch("batch"), tokens("tokens"), heads("heads");
    const int partials = c.steps() + 1, rows = 128;
    Tensor sums = input("sums", {batch, tokens, heads, partials}, f32);
    Tensor dbeta = output("dbeta", {batch, tokens, heads}, c.beta);
    grid(ceildiv(tokens, rows), heads, batch, [&](Index x, Index h, Index n) {
      Fragment own = load(sums.slice(n, all, h).at(x * rows), {rows, partials});
      copy(reduce_sum(own), dbeta.slice(n, all, h).at(x * rows));
    });
  });
}

}  // namespace tegula::ops
