#include "ops/gated_delta/short_rule.hpp"

#include "ops/gated_delta/delta_chunk.hpp"
#include "ops/gated_delta/kda_chunk.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

std::optional<int> tile_of_short_rule(const BoundCall& call, const char* last) {
  ScanKernel scan;
  scan.type = call["q"].dtype, scan.packed = call.has("cu_seqlens");
  scan.first = call.has("initial_state"), scan.last = call.has(last);
  const std::optional<int> rows = tile_of_short(call, scan);
  return rows.value_or(chunk_tokens_of_scan) <= chunk_tokens_of_scan / 2 ? rows : std::nullopt;
}

int threads_of_short_rule(std::int64_t blocks) {
  // Microseconds of a block alone, and of each where a processor has many.
  struct Form {
    int threads;
    double alone, shared;
  };
  const double of_processor = static_cast<double>(blocks) / gpu_processors;
  const Candidates<Form, 2> forms{{128, 5.8, 1.93}, {64, 6.8, 1.06}};
  return best_of(forms, [&](const Form& f) { return std::max(f.alone, f.shared * of_processor); }).threads;
}

using namespace lang;
using lang::Tensor;

namespace {

// Where a sequence's results are: of a head, from a column of values on.
struct Columns {
  Expr n, h, first;
};

// out = scores · A · values. Of products of scores, A and shares there is one, as large as a tile: so values
// are multiplied once.
void write_results(const Sequences& s, const Columns& at, int block, const Shared& seen, Shared& lower,
                   const std::function<Expr(const Index&)>& share, const Shared& values, const Tensor& out) {
  const int rows = seen.extent(0);
  invert_lower(lower);
  Shared shares({rows, rows}, seen.type());
  parallel(rows, rows, [&](Index i, Index j) { shares(i, j) = lower(i, j) * share(j); });
  Fragment both({rows, rows}, f32, 0), o({rows, block}, f32, 0);
  gemm(seen, shares, both);
  gemm(both.to(seen.type()), values, o);
  copy(o, s.head(out, at.n, at.h).at(0, at.first));
}

class ShortRule {
 public:
  explicit ShortRule(const ShortRuleKernel& kernel)
      : tokens(kernel.scan, kernel.beta), threads(*kernel.threads) {
    s.declare();
  }

  void run() const {
    grid(tokens.in.blocks(), tokens.in.heads, s.count(), {.threads = threads},
         [&](Index x, Index h, Index n) {
           s.hold_promise(n);
           // One step, so that the next block's tiles come under this block's work.
           pipelined(1, {.stages = 1}, [&](Index) { of_sequence({n, h, x * c.block}); });
         });
  }

 private:
  void of_sequence(const Columns& at) const {
    const RuleTokens::Chunk whole{at.n, at.h, 0, 0};
    const int rows = tokens.rows;
    Shared ks = tokens.tile(), qs = tokens.tile();
    tokens.load_keys(tokens.k, whole, ks);
    tokens.load_keys(tokens.q, whole, qs);
    Shared values({rows, c.block}, c.type), vectors({DeltaVector::summed + 1, rows}, f32);
    copy(s.head(v, at.n, at.h).at(0, at.first), values);
    tokens.form_sums(whole, vectors);
    Shared seen({rows, rows}, c.type);
    copy(tokens.form_scores(qs, ks, vectors), seen);
    Shared lower = tokens.form_lower(ks, vectors);
    const auto share = [&](const Index& j) { return Expr(vectors(DeltaVector::share, j)); };
    write_results(s, at, c.block, seen, lower, share, values, out);
  }

  RuleTokens tokens;
  int threads;
  const ScanKernel& c = tokens.scan;
  Sequences& s = tokens.in.s;
  Tensor v = tokens.in.values("v"), out = output("out", tokens.in.columns(), c.type);
};

class ShortKda {
 public:
  explicit ShortKda(const KdaKernel& kernel) : c(kernel) { in.s.declare(); }

  void run() const {
    grid(in.blocks(), in.heads, in.s.count(), {.threads = *c.threads}, [&](Index x, Index h, Index n) {
      in.s.hold_promise(n);
      of_sequence({n, h, x * c.block});
    });
  }

 private:
  void of_sequence(const Columns& at) const {
    const Sequences& s = in.s;
    KdaProducts products(c);
    pipelined(c.steps(), {.stages = 1}, [&](Index step) {
      KdaFeatures x(c);
      Expr first = step * c.step();
      copy(s.head(q, at.n, in.key_head(at.h)).at(0, first), x.q);
      copy(s.head(k, at.n, in.key_head(at.h)).at(0, first), x.k);
      copy(s.head(g, at.n, at.h).at(0, first), x.gates);
      x.form();
      products.add(x);
    });
    // One step, so that the next block's tiles come under this block's work.
    pipelined(1, {.stages = 1}, [&](Index) {
      Shared values({c.rows(), c.block}, c.type), betas({c.rows()}, f32), seen({c.rows(), c.rows()}, c.type);
      copy(s.head(v, at.n, at.h).at(0, at.first), values);
      Fragment given = load(s.head(beta, at.n, at.h).at(0), {c.rows()}, f32);
      parallel(given, [&](Index i) { betas(i) = given(i); });
      Shared lower = tile_to_invert(c.rows());
      products.finish(betas, scale, lower, seen);
      const auto share = [&](const Index& j) { return Expr(betas(j)); };
      write_results(s, at, c.block, seen, lower, share, values, out);
    });
  }

  const KdaKernel& c;
  KdaInputs in{c};
  Tensor q = input("q", in.keys(), c.type), k = input("k", in.keys(), c.type);
  Tensor g = input("g", in.of_features(), f32), beta = input("beta", in.of_heads(), c.beta);
  Expr scale = scalar("scale", f32);
  Tensor v = input("v", in.columns(), c.type), out = output("out", in.columns(), c.type);
};

}  // namespace

Kernel short_rule_kernel(const ShortRuleKernel& c) {
  return kernel(instance_name("short_rule", c), [&] { ShortRule(c).run(); });
}

Kernel short_kda_kernel(const KdaKernel& c) {
  return kernel(instance_name("short_kda", c), [&] { ShortKda(c).run(); });
}

}  // namespace tegula::ops
