// Gradients of kda: of the states, from the last chunk to the first, and of what each chunk has alone. As u =
// (I + β L)⁻¹ r, the gradient of β L is −(dr) uᵀ below the diagonal: no product has the inverse but dr = Aᵀ
// du.
#include "ops/gated_delta/kda_chunk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// du of what a chunk writes, by its results and by the state behind it; then dr.
Fragment gradient_of_right(const KdaChunk& own, const Shared& dout, const Shared& dstate, const Expr& scale) {
  const KdaKernel& c = own.c;
  Shared away = own.away(), inverse = own.inverse(own.towards(own.k), away), kept = own.kept();
  Shared weights({c.rows, c.rows}, c.type), rounded({c.rows, c.block}, c.type);
  Fragment p = own.scores(own.towards(own.q), away);
  Fragment du({c.rows, c.block}, f32, 0), dright({c.rows, c.block}, f32, 0);
  parallel(p, [&](Index i, Index j) { weights(i, j) = select(i >= j, p(i, j) * scale, 0); });
  gemm(kept, dstate, du);
  gemm(weights.T(), dout, du);
  copy(du, rounded);
  gemm(inverse.T(), rounded, dright);
  return dright;
}

}  // namespace

Kernel kda_state_gradients_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda_state_gradients", c), [&] {
    KdaInputs in(c);
    Sequences& s = in.s;
    Tensor dout = input("dout", in.columns(), c.type);
    Tensor dend = c.last ? input("dfinal_state", in.ends(), f32) : dout;
    Expr scale = scalar("scale", f32);
    Tensor dstates = output("dstates", in.states(), c.type), dright = output("dright", in.columns(), c.type);
    Tensor dv = output("dv", in.columns(), c.type);
    Tensor dstart = c.first ? output("dinitial_state", in.ends(), f32) : dv;
    s.declare();
    grid(in.blocks(), in.heads, s.count(), [&](Index x, Index h, Index n) {
      Expr column = x * c.block, chunks = ceildiv(s.length(n), c.rows);
      Fragment dstate({c.features(), c.block}, f32, 0);
      if (c.last) copy(dend.slice(n, h).at(0, column), dstate);
      pipelined(chunks, {.stages = 2}, [&](Index step) {
        Expr chunk = chunks - 1 - step, row = chunk * c.rows;
        KdaChunk own(c);
        Shared douts({c.rows, c.block}, c.type), rounded({c.features(), c.block}, c.type);
        Shared minus({c.rows, c.block}, c.type);
        in.load(own, n, h, row);
        copy(s.head(dout, n, h).at(row, column), douts);
        own.sum_gates();
        copy(dstate, rounded);
        copy(rounded, in.chunk(dstates, n, chunk, h).at(0, column));
        Fragment given = gradient_of_right(own, douts, rounded, scale);
        copy(given, s.head(dright, n, h).at(row, column));
        parallel(given, [&](Index i, Index j) { given(i, j) *= own.betas(i); });
        copy(given, s.head(dv, n, h).at(row, column));
        parallel(given, [&](Index i, Index j) { minus(i, j) = -given(i, j); });
        parallel(dstate, [&](Index i, Index j) { dstate(i, j) *= exp(own.total(i)); });
        parallel(douts, [&](Index i, Index j) { douts(i, j) *= scale; });
        Shared faded_q = own.faded(own.q), faded_k = own.faded(own.k);
        gemm(faded_q.T(), douts, dstate);
        gemm(faded_k.T(), minus, dstate);
      });
      if (c.first) copy(dstate, dstart.slice(n, h).at(0, column));
    });
  });
}

namespace {

class ChunkOfKda {
 public:
  explicit ChunkOfKda(const KdaKernel& kernel)
      : c(kernel),
        in(c),
        v(input("v", in.columns(), c.type)),
        dout(input("dout", in.columns(), c.type)),
        states(input("states", in.states(), c.type)),
        written(input("written", in.columns(), c.type)),
        dstates(input("dstates", in.states(), c.type)),
        dright(input("dright", in.columns(), c.type)),
        scale(scalar("scale", f32)),
        dq(output("dq", in.keys(), c.result)),
        dk(output("dk", in.keys(), c.result)),
        dg(output("dg", in.of_features(), f32)),
        dbeta(output("dbeta", in.of_heads(), c.beta)) {
    in.s.declare();
  }

  void run() const {
    const Sequences& s = in.s;
    grid(s.most_chunks(c.rows), in.key_heads, s.count(), [&](Index chunk, Index key_head, Index n) {
      Expr row = chunk * c.rows, group = Expr(in.heads) / in.key_heads;
      s.leave_unless(n, row);
      Fragment all_dq({c.rows, c.features()}, f32, 0), all_dk({c.rows, c.features()}, f32, 0);
      const auto of_head = [&](const Expr& h) {
        KdaChunk own(c);
        in.load(own, n, h, row);
        own.sum_gates();
        Sums sums(c);
        add_columns(sums, n, h, chunk, row);
        finish(own, sums, n, h, row, all_dq, all_dk);
      };
      if (c.grouped)
        serial(group, [&](Index member) { of_head(key_head * group + member); });
      else
        of_head(key_head);
      copy(all_dq, s.head(dq, n, key_head).at(row));
      copy(all_dk, s.head(dk, n, key_head).at(row));
    });
  }

 private:
  // Sums over columns of values: dout uᵀ, dr uᵀ, products with the state and its gradient, and dr · v.
  struct Sums {
    Fragment scores, lower, of_q, of_seen, of_kept, both, dbeta;
    explicit Sums(const KdaKernel& c)
        : scores({c.rows, c.rows}, f32, 0),
          lower({c.rows, c.rows}, f32, 0),
          of_q({c.rows, c.features()}, f32, 0),
          of_seen({c.rows, c.features()}, f32, 0),
          of_kept({c.rows, c.features()}, f32, 0),
          both({c.features()}, f32, 0),
          dbeta({c.rows}, f32, 0) {}
  };

  void add_columns(Sums& sums, const Expr& n, const Expr& h, const Expr& chunk, const Expr& row) const {
    const Sequences& s = in.s;
    pipelined(in.blocks(), {.stages = 2}, [&](Index x) {
      Expr column = x * c.block;
      Shared vs({c.rows, c.block}, c.type), douts({c.rows, c.block}, c.type), us({c.rows, c.block}, c.type),
          drights({c.rows, c.block}, c.type);
      Shared state({c.features(), c.block}, c.type), dstate({c.features(), c.block}, c.type);
      copy(s.head(v, n, h).at(row, column), vs);
      copy(s.head(dout, n, h).at(row, column), douts);
      copy(s.head(written, n, h).at(row, column), us);
      copy(s.head(dright, n, h).at(row, column), drights);
      copy(in.chunk(states, n, chunk, h).at(0, column), state);
      copy(in.chunk(dstates, n, chunk, h).at(0, column), dstate);
      gemm(douts, us.T(), sums.scores);
      gemm(drights, us.T(), sums.lower);
      gemm(douts, state.T(), sums.of_q);
      gemm(drights, state.T(), sums.of_seen);
      gemm(us, dstate.T(), sums.of_kept);
      reduce_sum(map(state, [&](Index i, Index j) { return f32(state(i, j)) * f32(dstate(i, j)); }),
                 sums.both);
      reduce_sum(map(drights, [&](Index i, Index j) { return f32(drights(i, j)) * f32(vs(i, j)); }),
                 sums.dbeta);
    });
  }

  // x kᵀ and k kᵀ with their decays: through the factors that have e^G, and through those that have e^−G.
  void finish(const KdaChunk& own, Sums& sums, const Expr& n, const Expr& h, const Expr& row,
              Fragment& all_dq, Fragment& all_dk) const {
    const Sequences& s = in.s;
    Shared towards_q = own.towards(own.q), towards_k = own.towards(own.k), away = own.away();
    Shared dscores({c.rows, c.rows}, c.wide()), dlower({c.rows, c.rows}, c.wide()),
        dshared({c.rows, c.rows}, c.wide());
    parallel(sums.scores,
             [&](Index i, Index j) { dscores(i, j) = select(i >= j, sums.scores(i, j) * scale, 0); });
    parallel(sums.lower, [&](Index i, Index j) {
      Expr given = select(i > j, -sums.lower(i, j), 0);
      dlower(i, j) = given;
      dshared(i, j) = given * own.betas(i);
    });
    const auto sum = [&] { return Fragment({c.rows, c.features()}, f32, 0); };
    Fragment left_q = sum(), left_k = sum(), right = sum();
    gemm(dscores, away, left_q);
    gemm(dlower, away, left_k);
    gemm(dscores.T(), towards_q, right);
    gemm(dshared.T(), towards_k, right);
    parallel(left_q, [&](Index t, Index i) {
      Expr near = exp(own.from_middle(t, i)), far = exp(own.gates(t, i));
      left_q(t, i) = left_q(t, i) * near + sums.of_q(t, i) * far * scale;
      left_k(t, i) = left_k(t, i) * near - sums.of_seen(t, i) * far;
      sums.of_kept(t, i) *= exp(own.total(i) - own.gates(t, i));
      right(t, i) = right(t, i) * exp(-own.from_middle(t, i)) + sums.of_kept(t, i);
      all_dq(t, i) += left_q(t, i);
      all_dk(t, i) += left_k(t, i) * own.betas(t) + right(t, i);
    });
    write_dg(own, sums, left_q, left_k, right, s.head(dg, n, h).at(row));
    reduce_sum(map(left_k, [&](Index t, Index i) { return left_k(t, i) * f32(own.k(t, i)); }), sums.dbeta);
    copy(sums.dbeta, s.head(dbeta, n, h).at(row));
  }

  // Gates are in all sums from their token on, so their gradients are summed from the chunk's last token
  // back.
  void write_dg(const KdaChunk& own, Sums& sums, const Fragment& left_q, const Fragment& left_k,
                const Fragment& right, const Window& to) const {
    Shared of_sums({c.rows, c.features()}, f32), of_total({c.features()}, f32);
    parallel(sums.both, [&](Index i) { sums.both(i) *= exp(own.total(i)); });
    parallel(sums.of_kept, [&](Index t, Index i) {
      Expr key = f32(own.k(t, i));
      of_sums(t, i) = f32(own.q(t, i)) * left_q(t, i) + key * (left_k(t, i) * own.betas(t) - right(t, i));
      sums.of_kept(t, i) *= key;
    });
    reduce_sum(sums.of_kept, sums.both, 0);
    copy(sums.both, of_total);
    parallel(c.features(), [&](Index i) {
      Var sum = of_total(i);
      serial(c.rows, [&](Index step) {
        Expr t = c.rows - 1 - step;
        sum += of_sums(t, i);
        of_sums(t, i) = sum;
      });
    });
    copy(of_sums, to);
  }

  const KdaKernel& c;
  KdaInputs in;
  Tensor v, dout, states, written, dstates, dright;
  Expr scale;
  Tensor dq, dk, dg, dbeta;
};

}  // namespace

Kernel kda_gradients_kernel(const KdaKernel& c) {
  return kernel(instance_name("kda_gradients", c), [&] { ChunkOfKda(c).run(); });
}

}  // namespace tegula::ops
