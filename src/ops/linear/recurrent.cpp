#include "ops/linear/recurrent_pieces.hpp"
#include "ops/linear/unit_rows.hpp"

namespace tegula::ops {

bool goes_by_token(const BoundCall& call, const ChunkCosts& chunks) {
  constexpr std::int64_t most = 8;
  constexpr double token = 63;  // nanoseconds of a GPU, of a head
  const std::int64_t tokens = call.dim("longest");
  if (tokens <= 1 || tokens > most || !call.on_gpu()) return tokens <= most;
  const auto heads = static_cast<double>(sequences_of(call) * call.dim("heads"));
  return heads * static_cast<double>(tokens) * token <= heads * chunks.head + 1000 * chunks.call;
}

using namespace lang;
using lang::Tensor;

RecurrentInputs::RecurrentInputs(const RecurrentKernel& kernel)
    : c(kernel),
      q(input("q", s.shape({key_heads, c.d}), c.type)),
      k(input("k", s.shape({key_heads, c.d}), c.type)),
      v(input("v", s.shape({heads, c.d_v - (c.ones ? 1 : 0)}), c.type)),
      g(c.g ? input("g", c.by_feature ? s.shape({heads, c.d}) : s.shape({heads}), *c.g) : q),
      g_gamma(c.g_gamma ? input("g_gamma", {heads}, *c.g_gamma) : q),
      beta(c.beta ? input("beta", s.shape({heads}), *c.beta) : q),
      start(c.first ? input("initial_state", states(), f32) : q),
      scale(scalar("scale", f32)) {}

RecurrentToken::RecurrentToken(const RecurrentInputs& inputs, const Expr& n, const Expr& h, const Expr& t,
                               const Expr& column)
    : q(load(inputs.of_key_head(inputs.q, n, h).slice(t).at(0), {inputs.features()}, f32)),
      k(load(inputs.of_key_head(inputs.k, n, h).slice(t).at(0), {inputs.features()}, f32)),
      v(values(inputs, n, h, t, column)),
      in_(inputs),
      n_(n),
      h_(h),
      t_(t) {
  const RecurrentKernel& c = in_.c;
  if (c.by_feature) gates_.emplace(load(in_.s.head(in_.g, n, h).slice(t).at(0), {in_.features()}, f32));
  if (c.beta) share_.emplace(f32(in_.s.head(in_.beta, n, h)(t)));
}

Fragment RecurrentToken::values(const RecurrentInputs& in, const Expr& n, const Expr& h, const Expr& t,
                                const Expr& column) {
  const RecurrentKernel& c = in.c;
  Fragment v = load(in.s.head(in.v, n, h).slice(t).at(column), {c.block}, f32);
  if (c.ones) parallel(v, [&](Index j) { v(j) = select(column + j == c.d_v - 1, 1, v(j)); });
  return v;
}

void RecurrentToken::prepare() {
  std::vector<Fragment> squares, found;
  if (in_.c.unit)
    for (const Fragment* x : {&q, &k}) squares.push_back(map(*x, [&](Index i) { return (*x)(i) * (*x)(i); }));
  for (const Fragment& x : squares) found.push_back(reduce_sum(x));
  // One maximum finds gates on either side of what they may be.
  if (gates_)
    found.push_back(reduce_max(
        map(*gates_, [&](Index i) { return select((*gates_)(i) < least_gate, 1, (*gates_)(i)); })));
  if (in_.c.unit) {
    const Var of_q = rsqrt(found[0].scalar() + least_norm), of_k = rsqrt(found[1].scalar() + least_norm);
    parallel(q, [&](Index i) { q(i) *= of_q, k(i) *= of_k; });
  }
  if (!gates_) return;
  assert_that(found.back().scalar() <= 0, "g are logarithms of decays: -5 to 0");
  parallel(*gates_, [&](Index i) { (*gates_)(i) = exp((*gates_)(i)); });
}

Expr RecurrentToken::decay() const {
  const RecurrentKernel& c = in_.c;
  if (gates_ || !in_.fades()) return Expr(1.0f);
  Expr own_g = c.g ? Expr(f32(in_.s.head(in_.g, n_, h_)(t_))) : Expr(f32(0));
  Expr gate = c.g_gamma ? own_g + f32(in_.g_gamma(h_)) : own_g, result = exp(gate);
  assert_that(gate <= 0, "g and g_gamma are logarithms of decays: at most 0");
  return result;
}

void RecurrentToken::fade(Fragment& state, const Expr& decay) const {
  if (gates_)
    parallel(state, [&](Index i, Index j) { state(i, j) *= (*gates_)(i); });
  else if (in_.fades())
    parallel(state, [&](Index i, Index j) { state(i, j) *= decay; });
}

void RecurrentToken::find(const Fragment& state) {
  if (!share_) return;
  Fragment seen = columns_with(state, k);
  parallel(v, [&](Index j) { v(j) = *share_ * (v(j) - seen(j)); });
}

void RecurrentToken::write(Fragment& state) const {
  parallel(state, [&](Index i, Index j) { state(i, j) += k(i) * v(j); });
}

Fragment columns_with(const Fragment& state, const Fragment& x) {
  return reduce_sum(map(state, [&](Index i, Index j) { return state(i, j) * x(i); }), 0);
}

namespace {

class Recurrence {
 public:
  explicit Recurrence(const RecurrentKernel& kernel)
      : in(kernel),
        out(output("out", in.s.shape({in.heads, c.d_v}), c.result)),
        end(c.last ? output("final_state", in.states(), f32) : out) {
    in.s.declare();
  }

  void run() const {
    grid(ceildiv(c.d_v, c.block), in.heads, in.s.count(), [&](Index x, Index h, Index n) {
      Expr column = x * c.block;
      Fragment state({in.features(), c.block}, f32, 0);
      if (c.first) copy(in.start.slice(n, h).at(0, column), state);
      serial(in.s.length(n), [&](Index t) { step(state, n, h, t, column); });
      if (c.last) copy(state, end.slice(n, h).at(0, column));
    });
  }

 private:
  void step(Fragment& state, const Expr& n, const Expr& h, const Expr& t, const Expr& column) const {
    RecurrentToken own(in, n, h, t, column);
    own.prepare();
    own.fade(state, own.decay());
    own.find(state);
    own.write(state);
    Fragment o = columns_with(state, own.q);
    parallel(o, [&](Index j) { o(j) *= in.scale; });
    copy(o, in.s.head(out, n, h).slice(t).at(column));
  }

  RecurrentInputs in;
  const RecurrentKernel& c = in.c;
  Tensor out, end;
};

}  // namespace

Kernel recurrent_kernel(const RecurrentKernel& c) {
  return kernel(instance_name("recurrent", c), [&] { Recurrence(c).run(); });
}

}  // namespace tegula::ops
