#include "ops/gated_delta/factors.hpp"

#include "ops/gated_delta/delta_chunk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

namespace {

// Blocks of the diagonal, one below the other, become their inverses in x: forward substitution of each
// column, whose elements stay in registers.
void invert_diagonal(const Shared& blocks, Shared& x, int block) {
  parallel(blocks.extent(0) / block, block, [&](Index b, Index j) {
    std::vector<Expr> column;
    for (int i = 0; i < block; ++i) {
      Var sum = select(j == i, 1.0f, 0.0f);
      for (int k = 0; k < i; ++k) sum -= blocks(b * block + i, k) * column[k];
      column.push_back(sum);
      x(b * block + i, b * block + j) = column[i];
    }
  });
}

// The diagonal of x holds inverses of blocks of this size, and then of twice the size: of a pair [P, 0; A, Q]
// the corner becomes −Q⁻¹ A P⁻¹. All pairs take each step together, for which their threads meet once.
void merge_blocks(Shared& x, Shared& products, int block) {
  struct Pair {
    Subscript top, bottom, product;
  };
  std::vector<Pair> pairs;
  for (int at = 0; at < x.extent(0); at += 2 * block)
    pairs.push_back(
        {range(at, at + block), range(at + block, at + 2 * block), range(at / 2, at / 2 + block)});
  for (const Pair& pair : pairs) {
    Fragment y({block, block}, f32, 0);
    gemm(x.slice(pair.bottom, pair.top), x.slice(pair.top, pair.top), y);
    copy(y, products.slice(pair.product, range(0, block)));
  }
  for (const Pair& pair : pairs) {
    Fragment z({block, block}, f32, 0);
    gemm(x.slice(pair.bottom, pair.bottom), products.slice(pair.product, range(0, block)), z);
    parallel(z, [&](Index i, Index j) { z(i, j) = -z(i, j); });
    copy(z, x.slice(pair.bottom, pair.top));
  }
}

}  // namespace

Shared tile_to_invert(int rows) {
  constexpr int between_rows = 8;
  return Shared({rows, rows + between_rows}, f32).slice(all, range(0, rows));
}

void invert_lower(Shared& x) {
  constexpr int least = 16;
  const int rows = x.extent(0);
  Shared blocks({rows, least}, f32), products({rows / 2, rows / 2}, f32);
  parallel(rows, least, [&](Index i, Index j) { blocks(i, j) = x(i, i / least * least + j); });
  invert_diagonal(blocks, x, least);
  for (int block = least; block < rows; block *= 2) merge_blocks(x, products, block);
}

RuleTokens::RuleTokens(const ScanKernel& kernel, DType type_of_beta)
    : scan(kernel),
      q(in.keys("q")),
      k(in.keys("k")),
      beta(input("beta", in.of_heads(), type_of_beta)),
      g(scan.gated ? input("g", in.of_heads(), f32) : k),
      scale(scalar("scale", f32)) {}

Shared RuleTokens::tile() const { return Shared({rows, scan.features()}, scan.type); }

void RuleTokens::load_keys(const Tensor& from, const Chunk& at, Shared& tile) const {
  copy(in.s.head(from, at.n, in.key_head(at.h)).at(at.row), tile);
}

void RuleTokens::form_sums(const Chunk& at, Shared& vectors) const {
  Fragment betas = load(in.s.head(beta, at.n, at.h).at(at.row), {rows});
  parallel(betas, [&](Index i) { vectors(DeltaVector::share, i) = f32(betas(i)); });
  if (!scan.gated) return parallel(rows, [&](Index i) { vectors(DeltaVector::summed, i) = 0; });
  Fragment gates = load(in.s.head(g, at.n, at.h).at(at.row), {rows});
  parallel(gates, [&](Index i) { assert_that(gates(i) <= 0, "g are logarithms of decays: at most 0"); });
  Fragment sums = scan_sum(gates);
  parallel(sums, [&](Index i) { vectors(DeltaVector::summed, i) = sums(i); });
}

Fragment RuleTokens::form_scores(const Shared& qs, const Shared& ks, const Shared& vectors) const {
  Fragment seen({rows, rows}, f32, 0);
  gemm(qs, ks.T(), seen);
  parallel(seen, [&](Index i, Index j) {
    seen(i, j) = select(i >= j, seen(i, j) * between(vectors, i, j) * scale, 0);
  });
  return seen;
}

Shared RuleTokens::form_lower(const Shared& ks, const Shared& vectors) const {
  Fragment a({rows, rows}, f32, 0);
  gemm(ks, ks.T(), a);
  Shared whole = tile_to_invert(rows);
  parallel(a, [&](Index i, Index j) {
    whole(i, j) = select(i > j, a(i, j) * between(vectors, i, j) * vectors(DeltaVector::share, i), 0);
  });
  return whole;
}

Expr RuleTokens::between(const Shared& vectors, const Expr& i, const Expr& j) {
  return exp(min(vectors(DeltaVector::summed, i) - vectors(DeltaVector::summed, j), 0));
}

namespace {

// A and the scores of a chunk, and its vectors.
class FactorsOfChunks {
 public:
  explicit FactorsOfChunks(const DeltaKernel& c) : tokens(c.scan(), c.beta) { s.declare_chunks(); }

  void run() const {
    // Several blocks share a processor and hide each other's waits: most of the inverse is one warp's work.
    grid(tokens.in.heads, s.chunks(), s.parts(), {.threads = 128}, [&](Index h, Index x, Index y) {
      const auto [n, chunk] = s.place(x, y);
      Expr row = chunk * rows;
      s.leave_unless(n, row);
      of_chunk({n, h, chunk, row});
    });
  }

 private:
  void of_chunk(const RuleTokens::Chunk& at) const {
    Shared ks = tokens.tile(), qs = tokens.tile(), vectors({DeltaVector::count, rows}, f32);
    tokens.load_keys(tokens.k, at, ks);
    tokens.load_keys(tokens.q, at, qs);
    form_vectors(at, vectors);
    copy(vectors, s.chunk(of_chunks, at.n, at.chunk, at.h).at(0));
    // One product after the other, and the inverse where q and k have been: so more blocks share a processor.
    const Fragment seen = tokens.form_scores(qs, ks, vectors);
    copy(seen, s.chunk(scores, at.n, at.chunk, at.h).at(0));
    Shared whole = tokens.form_lower(ks, vectors);
    invert_lower(whole);
    Fragment rounded({rows, rows}, tokens.scan.type);
    copy(whole, rounded);
    copy(rounded, s.chunk(inverse, at.n, at.chunk, at.h).at(0));
  }

  void form_vectors(const RuleTokens::Chunk& at, Shared& vectors) const {
    tokens.form_sums(at, vectors);
    parallel(rows, [&](Index i) {
      Expr sum = vectors(DeltaVector::summed, i);
      vectors(DeltaVector::grown, i) = exp(sum);
      vectors(DeltaVector::asked, i) = tokens.scale * exp(sum);
      vectors(DeltaVector::faded, i) = exp(min(vectors(DeltaVector::summed, rows - 1) - sum, 0));
    });
  }

  RuleTokens tokens;
  Sequences& s = tokens.in.s;
  int rows = tokens.rows;
  Tensor inverse = output("inverse", of_rows(tokens.in, rows), tokens.scan.type);
  Tensor scores = output("scores", of_rows(tokens.in, rows), tokens.scan.type);
  Tensor of_chunks = output("vectors", of_vectors(tokens.in), f32);
};

}  // namespace

Kernel delta_factors_kernel(const DeltaKernel& c) {
  return kernel(instance_name("delta_factors", c), [&] { FactorsOfChunks(c).run(); });
}

}  // namespace tegula::ops
