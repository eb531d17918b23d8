#include "ops/gated_delta/kda_kernel.hpp"

#include "ops/gated_delta/kda_chunk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

void KdaFeatures::form() {
  sum_gates();
  form_factors();
  parallel(near, [&](Index t, Index i) {
    Expr gate = sums(t, i) - sums(t / c.subchunk_rows * c.subchunk_rows + (c.subchunk_rows - 1), i) * 0.5f;
    near(t, i) = exp(gate);
    away(t, i) = exp(-gate);
  });
}

void KdaFeatures::sum_gates() {
  parallel(c.subchunks(), c.step(), [&](Index subchunk, Index i) {
    Var sum = 0.0f;
    serial(c.subchunk_rows, [&](Index t) {
      Expr gate = gates(subchunk * c.subchunk_rows + t, i);
      assert_that(gate <= 0 && gate >= least_gate, "g are logarithms of decays: -5 to 0");
      sum += gate;
      sums(subchunk * c.subchunk_rows + t, i) = sum;
    });
  });
}

void KdaFeatures::form_factors() {
  Shared middles({c.subchunks() + 1, c.step()}, f32);
  parallel(c.step(), [&](Index i) {
    Var before = 0.0f;
    for (int subchunk = 0; subchunk < c.subchunks(); ++subchunk) {
      Expr total = sums(subchunk * c.subchunk_rows + (c.subchunk_rows - 1), i);
      middles(subchunk, i) = before + total * 0.5f;
      before += total;
    }
    middles(c.subchunks(), i) = before;
  });
  parallel(c.subchunks(), c.step(), [&](Index from, Index i) {
    Expr middle = middles(from, i);
    for (int subchunk = 0; subchunk < c.subchunks(); ++subchunk)
      factors(subchunk * c.subchunks() + from, i) =
          select(from <= subchunk, exp(min(middles(subchunk, i) - middle, 0)), 0);
    factors(c.subchunks() * c.subchunks() + from, i) = exp(middle);
    factors((c.subchunks() + 1) * c.subchunks() + from, i) = exp(middles(c.subchunks(), i) - middle);
  });
}

Shared KdaFeatures::times_near(const Shared& x) const {
  Shared result({c.rows(), c.step()}, c.wide());
  parallel(near, [&](Index t, Index i) { result(t, i) = f32(x(t, i)) * near(t, i); });
  return result;
}

void KdaFeatures::keys_towards(int subchunk, Shared& result) const {
  parallel(away,
           [&](Index t, Index i) { result(t, i) = f32(k(t, i)) * away(t, i) * towards(subchunk, t, i); });
}

KdaProducts::KdaProducts(const KdaKernel& kernel) : c(kernel) {
  for (std::vector<Fragment>* all : {&keys, &queries})
    for (int subchunk = 0; subchunk < c.subchunks(); ++subchunk)
      all->emplace_back(std::initializer_list<int>{c.rows(), c.subchunk_rows}, f32, 0);
}

void KdaProducts::add(const KdaFeatures& x) {
  Shared near_k = x.times_near(x.k), near_q = x.times_near(x.q), away({c.rows(), c.step()}, c.wide());
  for (int subchunk = 0; subchunk < c.subchunks(); ++subchunk) {
    const Subscript tokens = range(subchunk * c.subchunk_rows, (subchunk + 1) * c.subchunk_rows);
    x.keys_towards(subchunk, away);
    gemm(away, near_k.slice(tokens).T(), keys[subchunk]);
    gemm(away, near_q.slice(tokens).T(), queries[subchunk]);
  }
}

void KdaProducts::finish(const Shared& betas, const Expr& scale, Shared& whole, Shared& seen) const {
  for (int subchunk = 0; subchunk < c.subchunks(); ++subchunk) {
    const Fragment &of_keys = keys[subchunk], &of_queries = queries[subchunk];
    const int from = subchunk * c.subchunk_rows;
    parallel(of_keys, [&](Index j, Index i) {
      whole(from + i, j) = select(from + i > j, of_keys(j, i) * betas(from + i), 0);
      seen(from + i, j) = select(from + i >= j, of_queries(j, i) * scale, 0);
    });
  }
}

namespace {

// The factors of a chunk of a head.
class Factors {
 public:
  explicit Factors(const KdaKernel& kernel)
      : c(kernel),
        in(c),
        q(input("q", in.keys(), c.type)),
        k(input("k", in.keys(), c.type)),
        v(input("v", in.columns(), c.type)),
        g(input("g", in.of_features(), f32)),
        beta(input("beta", in.of_heads(), c.beta)),
        scale(scalar("scale", f32)),
        w(output("w", in.of_features(), c.type)),
        u(output("u", in.columns(), c.type)),
        decays(output("decays", {in.s.batch, in.chunks, in.heads, c.d}, f32)),
        faded_q(output("faded_q", in.of_features(), c.type)),
        kept(output("kept", in.of_features(), c.type)),
        scores(output("scores", in.of_rows(), c.type)),
        inverse(c.keep ? output("inverse", in.of_rows(), c.type) : w) {
    in.s.declare_chunks();
  }

  void run() const {
    const Sequences& s = in.s;
    grid(s.chunks(c.rows()), in.heads, s.parts(), {.blocks_per_processor = 2},
         [&](Index y, Index h, Index z) {
           const auto [n, chunk] = s.place(y, z, c.rows());
           const Chunk own{n, h, chunk, chunk * c.rows()};
           s.leave_unless(n, own.row);
           Shared faded_k({c.rows(), c.steps() * c.step()}, c.type);
           KdaProducts products(c);
           pipelined(c.steps(), {.stages = 1},
                     [&](Index x) { add_features(own, x * c.step(), faded_k, products); });
           Fragment rounded({c.rows(), c.rows()}, c.type);
           // One step, so that the next block's tiles come under this block's work.
           pipelined(1, {.stages = 1}, [&](Index) { invert(own, products, rounded); });
           write_w(own, faded_k, rounded);
           pipelined(in.blocks(), {.stages = 1}, [&](Index x) { write_u(own, x * c.block, rounded); });
         });
  }

 private:
  struct Chunk {
    Expr n, h, chunk, row;
  };
  void add_features(const Chunk& own, const Expr& first, Shared& faded_k, KdaProducts& products) const {
    const Sequences& s = in.s;
    KdaFeatures x(c);
    copy(s.head(q, own.n, in.key_head(own.h)).at(own.row, first), x.q);
    copy(s.head(k, own.n, in.key_head(own.h)).at(own.row, first), x.k);
    copy(s.head(g, own.n, own.h).at(own.row, first), x.gates);
    x.form();
    write_faded(own, first, x, faded_k);
    products.add(x);
  }

  void write_faded(const Chunk& own, const Expr& first, const KdaFeatures& x, Shared& faded_k) const {
    const Sequences& s = in.s;
    Fragment of_q({c.rows(), c.step()}, f32), of_k({c.rows(), c.step()}, f32);
    parallel(of_q, [&](Index t, Index i) {
      Expr since = x.since_first(t, i), key = f32(x.k(t, i));
      of_q(t, i) = f32(x.q(t, i)) * since * scale;
      of_k(t, i) = key * x.until_last(t, i);
      faded_k(t, first + i) = key * since;
    });
    copy(of_q, s.head(faded_q, own.n, own.h).at(own.row, first));
    copy(of_k, s.head(kept, own.n, own.h).at(own.row, first));
    Fragment last({c.step()}, f32);
    parallel(last, [&](Index i) {
      Expr left =
          x.factors(c.subchunks() * c.subchunks(), i) * x.factors((c.subchunks() + 1) * c.subchunks(), i);
      last(i) = left;
    });
    copy(last, s.chunk(decays, own.n, own.chunk, own.h, c.rows()).at(first));
  }

  // A, with the shares of the values and keys that it multiplies; and the scores.
  void invert(const Chunk& own, const KdaProducts& products, Fragment& rounded) const {
    const Sequences& s = in.s;
    Shared betas({c.rows()}, f32), seen({c.rows(), c.rows()}, c.type);
    copy(s.head(beta, own.n, own.h).at(own.row), betas);
    Shared whole({c.rows(), c.rows()}, f32);
    products.finish(betas, scale, whole, seen);
    copy(seen, s.head(scores, own.n, own.h).at(own.row));
    invert_lower(whole);
    if (c.keep) {
      Fragment kept_inverse({c.rows(), c.rows()}, c.type);
      copy(whole, kept_inverse);
      copy(kept_inverse, s.head(inverse, own.n, own.h).at(own.row));
    }
    parallel(rounded, [&](Index i, Index j) { rounded(i, j) = whole(i, j) * betas(j); });
  }

  void write_w(const Chunk& own, const Shared& faded_k, const Fragment& rounded) const {
    Fragment own_w({c.rows(), c.steps() * c.step()}, f32, 0);
    gemm(rounded, faded_k, own_w);
    copy(own_w, in.s.head(w, own.n, own.h).at(own.row));
  }

  void write_u(const Chunk& own, const Expr& first, const Fragment& rounded) const {
    Shared values({c.rows(), c.block}, c.type);
    copy(in.s.head(v, own.n, own.h).at(own.row, first), values);
    Fragment own_u({c.rows(), c.block}, f32, 0);
    gemm(rounded, values, own_u);
    copy(own_u, in.s.head(u, own.n, own.h).at(own.row, first));
  }

  const KdaKernel& c;
  KdaInputs in;
  Tensor q, k, v, g, beta;
  Expr scale;
  Tensor w, u, decays, faded_q, kept, scores, inverse;
};

}  // namespace

Kernel kda_factors_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda_factors", c), [&] { Factors(c).run(); });
}

Kernel kda_outputs_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda_outputs", c), [&] {
    KdaInputs in(c);
    Sequences& s = in.s;
    Tensor q = input("faded_q", in.of_features(), c.type), scores = input("scores", in.of_rows(), c.type);
    Tensor v = input("v", in.columns(), c.type), states = input("states", in.states(), c.type);
    Tensor out = output("out", in.columns(), c.type);
    s.declare_chunks();
    grid(s.chunks(c.rows()) * in.blocks(), in.heads, s.parts(), [&](Index x, Index h, Index y) {
      const Sequences::Place place = s.place(x / in.blocks(), y, c.rows());
      const Expr &n = place.n, &chunk = place.chunk;
      Expr column = x % in.blocks() * c.block, row = chunk * c.rows();
      s.leave_unless(n, row);
      pipelined(1, {.stages = 1}, [&](Index) {
        Shared qs({c.rows(), c.features()}, c.type), seen({c.rows(), c.rows()}, c.type);
        Shared vs({c.rows(), c.block}, c.type), state({c.features(), c.block}, c.type);
        copy(s.head(q, n, h).at(row), qs);
        copy(s.chunk(states, n, chunk, h, c.rows()).at(0, column), state);
        copy(s.head(scores, n, h).at(row), seen);
        copy(s.head(v, n, h).at(row, column), vs);
        Fragment o({c.rows(), c.block}, f32, 0);
        gemm(qs, state, o);
        gemm(seen, vs, o);
        copy(o, s.head(out, n, h).at(row, column));
      });
    });
  });
}

}  // namespace tegula::ops
