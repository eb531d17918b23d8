// Gradients of one token by the recurrence: its state is read once, and that of the state written once.
#include <algorithm>

#include "ops/linear/recurrent_pieces.hpp"
#include "ops/linear/unit_rows.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// With S the state that has faded, r what is written, dS the gradient of the state after the token and of its
// result, dr = dSᵀ k: dq = scale (S + k rᵀ) dout, dv = β dr, dk = dS r − S dv, and that of S is dS − k dvᵀ.
// Without the delta rule S is not read by what is written: dk = dS r, and dS is that of S.
class RecurrenceGradients {
 public:
  explicit RecurrenceGradients(const RecurrentKernel& kernel) : in(kernel) {}

  void run() const {
    // A block has all heads that share q and k, and all their columns, so that no sum is divided.
    grid(in.key_heads, in.s.count(), {.threads = 128}, [&](Index key_head, Index n) {
      Fragment dqs = no_features(), dks = no_features();
      serial(Expr(in.heads) / in.key_heads, [&](Index member) {
        of_head(n, key_head * (Expr(in.heads) / in.key_heads) + member, dqs, dks);
      });
      store_keys(row(in.q, n, key_head), dqs, row(dq, n, key_head));
      store_keys(row(in.k, n, key_head), dks, row(dk, n, key_head));
    });
  }

 private:
  Fragment no_features() const { return Fragment({in.features()}, f32, 0); }
  // [batch, 1, heads, …] becomes […].
  Tensor row(const Tensor& t, const Expr& n, const Expr& h) const { return in.s.head(t, n, h).slice(0); }

  void of_head(const Expr& n, const Expr& h, Fragment& dqs, Fragment& dks) const {
    Fragment along({c.block}, f32, 0), dgs = no_features();
    RecurrentToken own(in, n, h, 0, 0);
    own.prepare();
    const Var decay = own.decay();
    pipelined(ceildiv(c.d_v, c.block), {.stages = stages()}, [&](Index x) {
      Expr column = x * c.block;
      const Columns at{n, h, column};
      Fragment state = state_of(in.start, c.first, at), dstate = state_of(dend, c.last, at);
      Fragment values = own.values(column), given = load(row(dout, n, h).at(column), {c.block}, f32);
      own.fade(state, decay);
      parallel(given, [&](Index j) { given(j) *= in.scale; });
      parallel(dstate, [&](Index i, Index j) { dstate(i, j) += own.q(i) * given(j); });
      Fragment dvs = of_values(own, values, state, dstate, along);
      copy(dvs, row(dv, n, h).at(column));
      of_keys(own, values, state, dstate, dvs, given, dqs, dks);
      if (!in.fades() && !c.first) return;
      if (c.beta) parallel(dstate, [&](Index i, Index j) { dstate(i, j) -= own.k(i) * dvs(j); });
      if (in.fades())
        reduce_sum(map(state, [&](Index i, Index j) { return state(i, j) * dstate(i, j); }), dgs);
      own.fade(dstate, decay);
      if (c.first) copy(dstate, dstart.slice(n, h).at(0, column));
    });
    if (c.beta) in.s.head(dbeta, n, h)(0) = reduce_sum(along).scalar();
    if (c.by_feature)
      copy(dgs, row(dg, n, h).at(0));
    else if (in.fades())
      in.s.head(dg, n, h)(0) = reduce_sum(dgs).scalar();
  }

  // Slots of states and their gradients that are on their way: with fewer the memory waits, with more a
  // processor has fewer blocks.
  int stages() const {
    constexpr int least = 2, most = 4, bytes = 64 << 10;
    const int tiles = std::max(1, (c.first ? 1 : 0) + (c.last ? 1 : 0)),
              of_slot = tiles * in.features() * c.block * static_cast<int>(sizeof(float));
    return std::clamp(bytes / of_slot, least, most);
  }
  struct Columns {
    Expr n, h, column;
  };
  // Columns of a state or its gradient, which come ahead; zeros where there is none.
  Fragment state_of(const Tensor& states, bool exists, const Columns& at) const {
    Fragment result({in.features(), c.block}, f32, 0);
    if (!exists) return result;
    Shared tile({in.features(), c.block}, f32);
    copy(states.slice(at.n, at.h).at(0, at.column), tile);
    copy(tile, result);
    return result;
  }

  // That of values; they become what is written, and `along` those of the share that is replaced.
  Fragment of_values(const RecurrentToken& own, Fragment& values, const Fragment& state,
                     const Fragment& dstate, Fragment& along) const {
    Fragment dvs = columns_with(dstate, own.k);
    if (!c.beta) return dvs;
    Fragment seen = columns_with(state, own.k);
    parallel(dvs, [&](Index j) {
      Expr kept = values(j) - seen(j);
      along(j) += dvs(j) * kept;
      values(j) = own.share() * kept;
      dvs(j) *= own.share();
    });
    return dvs;
  }

  void of_keys(const RecurrentToken& own, const Fragment& values, const Fragment& state,
               const Fragment& dstate, const Fragment& dvs, const Fragment& given, Fragment& dqs,
               Fragment& dks) const {
    reduce_sum(map(state, [&](Index i, Index j) { return (state(i, j) + own.k(i) * values(j)) * given(j); }),
               dqs);
    reduce_sum(map(state,
                   [&](Index i, Index j) {
                     Expr written = dstate(i, j) * values(j);
                     return c.beta ? written - state(i, j) * dvs(j) : written;
                   }),
               dks);
  }

  // Through the norm of q or k, if they are divided by it.
  void store_keys(const Tensor& of, const Fragment& gradient, const Tensor& to) const {
    if (!c.unit) return copy(gradient, to.at(0));
    Fragment x = load(of.at(0), {in.features()}, f32);
    const Var factor = rsqrt(reduce_sum(map(x, [&](Index i) { return x(i) * x(i); })).scalar() + least_norm);
    parallel(x, [&](Index i) { x(i) *= factor; });
    const Var along = reduce_sum(map(x, [&](Index i) { return gradient(i) * x(i); })).scalar();
    parallel(x, [&](Index i) { x(i) = factor * (gradient(i) - x(i) * along); });
    copy(x, to.at(0));
  }

  RecurrentInputs in;
  const RecurrentKernel& c = in.c;
  Tensor dout = input("dout", in.s.shape({in.heads, c.d_v}), c.type);
  Tensor dend = c.last ? input("dfinal_state", in.states(), f32) : dout;
  Tensor dq = output("dq", in.s.shape({in.key_heads, c.d}), c.type);
  Tensor dk = output("dk", in.s.shape({in.key_heads, c.d}), c.type);
  Tensor dv = output("dv", in.s.shape({in.heads, c.d_v - (c.ones ? 1 : 0)}), c.type);
  Tensor dbeta = c.beta ? output("dbeta", in.s.shape({in.heads}), *c.beta) : dq;
  Tensor dg = in.fades()
                  ? output("dg", c.by_feature ? in.s.shape({in.heads, c.d}) : in.s.shape({in.heads}), f32)
                  : dq;
  Tensor dstart = c.first ? output("dinitial_state", in.states(), f32) : dq;
};

}  // namespace

bool differentiates_by_token(const BoundCall& call) {
  return !call.has("cu_seqlens") && call.dim("tokens") == 1;
}

Kernel recurrent_gradients_kernel(const RecurrentKernel& c) {
  return kernel(instance_name("recurrent_gradients", c), [&] { RecurrenceGradients(c).run(); });
}

}  // namespace tegula::ops
