#include "ops/gated_delta/factors.hpp"

#include "ops/linear/scan_pieces.hpp"

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
    Slot top, bottom, product;
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

ScanKernel scan_of(const DeltaKernel& c) {
  ScanKernel scan;
  scan.type = c.type, scan.d = c.d, scan.d_v = c.d_v, scan.block = c.block;
  scan.gated = c.gated, scan.packed = c.packed;
  return scan;
}

}  // namespace

void invert_lower(Shared& x) {
  constexpr int least = 16;
  const int rows = x.extent(0);
  Shared blocks({rows, least}, f32), products({rows / 2, rows / 2}, f32);
  parallel(rows, least, [&](Index i, Index j) { blocks(i, j) = x(i, i / least * least + j); });
  invert_diagonal(blocks, x, least);
  for (int block = least; block < rows; block *= 2) merge_blocks(x, products, block);
}

Kernel delta_factors_kernel(const DeltaKernel& c) {
  return kernel(instance_name("delta_factors", c), [&] {
    const ScanKernel scan = scan_of(c);
    ScanInputs in(scan);
    Sequences& s = in.s;
    const int rows = scan.rows();
    Tensor k = in.keys("k"), v = in.values("v"), beta = input("beta", in.of_heads(), c.beta);
    Tensor sums = c.gated ? input("sums", in.of_heads(), f32) : k;
    Tensor w = output("w", s.shape({in.heads, c.d}), c.type), u = output("u", in.columns(), c.type);
    Tensor inverse = c.keep ? output("inverse", s.shape({in.heads, rows}), c.type) : w;
    s.declare();
    grid(s.most_chunks(), in.heads, s.count(), [&](Index chunk, Index h, Index n) {
      Expr row = chunk * rows;
      s.leave_unless(n, row);
      // One step, so that the next block's tiles come under this block's work.
      pipelined(1, {.stages = 1}, [&](Index) {
        Shared ks({rows, scan.features()}, c.type), betas({rows}, f32);
        Shared whole({rows, rows}, f32);
        GateTile gates(scan);
        copy(s.head(k, n, in.key_head(h)).at(row), ks);
        copy(s.head(beta, n, h).at(row), betas);
        if (c.gated) gates.load(s.head(sums, n, h).at(row));
        std::vector<Shared> vs;
        for (int first = 0; first < c.d_v; first += c.block) {
          vs.emplace_back(std::initializer_list<int>{rows, c.block}, c.type);
          copy(s.head(v, n, h).at(row, first), vs.back());
        }
        Fragment a({rows, rows}, f32, 0), own_w({rows, scan.features()}, f32, 0);
        gemm(ks, ks.T(), a);
        gates.mask(a, 1);
        parallel(a, [&](Index i, Index j) { whole(i, j) = select(i > j, a(i, j) * betas(i), 0); });
        invert_lower(whole);
        if (c.keep) {
          Fragment kept({rows, rows}, c.type);
          copy(whole, kept);
          copy(kept, s.head(inverse, n, h).at(row));
        }
        // Factors of rows of keys and values are those of the inverse's columns.
        Fragment of_keys({rows, rows}, f32), of_values({rows, rows}, f32);
        parallel(of_values, [&](Index i, Index j) { of_values(i, j) = whole(i, j) * betas(j); });
        parallel(of_keys, [&](Index i, Index j) {
          of_keys(i, j) = c.gated ? of_values(i, j) * exp(gates.at(j)) : Expr(of_values(i, j));
        });
        gemm(of_keys.to(c.type), ks, own_w);
        copy(own_w, s.head(w, n, h).at(row));
        Fragment by_values = of_values.to(c.type);
        for (std::size_t i = 0; i < vs.size(); ++i) {
          Fragment own_u({rows, c.block}, f32, 0);
          gemm(by_values, vs[i], own_u);
          copy(own_u, s.head(u, n, h).at(row, static_cast<int>(i) * c.block));
        }
      });
    });
  });
}

namespace {

// The gradients of a chunk through w, u and the inverse, for one head or summed over those that share k.
class FactorGradients {
 public:
  explicit FactorGradients(const DeltaKernel& kernel)
      : c(kernel),
        scan(scan_of(c)),
        in(scan),
        rows(scan.rows()),
        k(in.keys("k")),
        v(in.values("v")),
        beta(input("beta", in.of_heads(), c.beta)),
        inverse(input("inverse", in.s.shape({in.heads, rows}), c.type)),
        dw(input("dw", in.s.shape({in.heads, c.d}), c.type)),
        du(input("du", in.columns(), c.type)),
        dk_before(input("dk_before", in.s.shape({in.key_heads, c.d}), f32)),
        sums(c.gated ? input("sums", in.of_heads(), f32) : k),
        dk(output("dk", in.s.shape({in.key_heads, c.d}), c.result)),
        dv(output("dv", in.columns(), c.type)),
        dbeta(output("dbeta", in.of_heads(), c.beta)),
        dsums(c.gated ? inout("dsums", in.of_heads(), f32) : dv) {
    in.s.declare();
  }

  void run() const {
    const Sequences& s = in.s;
    grid(s.most_chunks(), in.key_heads, s.count(), [&](Index chunk, Index key_head, Index n) {
      Expr row = chunk * rows, group = Expr(in.heads) / in.key_heads;
      s.leave_unless(n, row);
      Shared ks({rows, scan.features()}, c.type);
      copy(s.head(k, n, key_head).at(row), ks);
      Fragment sum = load(s.head(dk_before, n, key_head).at(row), {rows, scan.features()});
      serial(group, [&](Index member) { of_head(ks, sum, n, key_head * group + member, row); });
      copy(sum, s.head(dk, n, key_head).at(row));
    });
  }

 private:
  // What gradients of vectors are summed in.
  struct Vectors {
    Fragment dbeta, dg;
    explicit Vectors(int rows) : dbeta({rows}, f32, 0), dg({rows}, f32, 0) {}
  };
  struct Head {
    Shared inverse, betas;
    GateTile gates;
    Head(const ScanKernel& scan, DType type)
        : inverse({scan.rows(), scan.rows()}, type), betas({scan.rows()}, f32), gates(scan) {}
    Expr factor(const Expr& row) const {
      return gates ? Expr(betas(row)) * exp(gates.at(row)) : Expr(betas(row));
    }
  };

  void of_head(const Shared& ks, Fragment& sum, const Expr& n, const Expr& h, const Expr& row) const {
    const Sequences& s = in.s;
    Head own(scan, c.type);
    copy(s.head(inverse, n, h).at(row), own.inverse);
    copy(s.head(beta, n, h).at(row), own.betas);
    if (c.gated) own.gates.load(s.head(sums, n, h).at(row));
    Vectors vectors(rows);
    Fragment da({rows, rows}, f32, 0);
    through_w(own, ks, da, sum, vectors, s.head(dw, n, h).at(row));
    through_u(own, da, vectors, n, h, row);
    through_inverse(own, ks, da, sum, vectors);
    copy(vectors.dbeta, s.head(dbeta, n, h).at(row));
    if (!c.gated) return;
    Fragment before = load(s.head(dsums, n, h).at(row), {rows});
    parallel(before, [&](Index i) { before(i) += vectors.dg(i); });
    copy(before, s.head(dsums, n, h).at(row));
  }

  // w = A (β e^g k).
  void through_w(const Head& own, const Shared& ks, Fragment& da, Fragment& sum, Vectors& vectors,
                 const Window& given) const {
    Shared dws({rows, scan.features()}, c.type), scaled({rows, scan.features()}, c.type);
    copy(given, dws);
    parallel(scaled, [&](Index i, Index j) { scaled(i, j) = f32(ks(i, j)) * own.factor(i); });
    Fragment of_keys({rows, scan.features()}, f32, 0);
    gemm(dws, scaled.T(), da);
    gemm(own.inverse.T(), dws, of_keys);
    Fragment along =
        reduce_sum(map(of_keys, [&](Index i, Index j) { return of_keys(i, j) * f32(ks(i, j)); }));
    parallel(along, [&](Index i) {
      Expr decay = c.gated ? exp(own.gates.at(i)) : Expr(f32(1));
      vectors.dbeta(i) += along(i) * decay;
      vectors.dg(i) += along(i) * decay * own.betas(i);
    });
    parallel(sum, [&](Index i, Index j) { sum(i, j) += of_keys(i, j) * own.factor(i); });
  }
  // u = A (β v).
  void through_u(const Head& own, Fragment& da, Vectors& vectors, const Expr& n, const Expr& h,
                 const Expr& row) const {
    const Sequences& s = in.s;
    serial(in.blocks(), [&](Index x) {
      Shared vs({rows, c.block}, c.type), dus({rows, c.block}, c.type), scaled({rows, c.block}, c.type);
      copy(s.head(v, n, h).at(row, x * c.block), vs);
      copy(s.head(du, n, h).at(row, x * c.block), dus);
      parallel(scaled, [&](Index i, Index j) { scaled(i, j) = f32(vs(i, j)) * own.betas(i); });
      Fragment of_values({rows, c.block}, f32, 0);
      gemm(dus, scaled.T(), da);
      gemm(own.inverse.T(), dus, of_values);
      reduce_sum(map(of_values, [&](Index i, Index j) { return of_values(i, j) * f32(vs(i, j)); }),
                 vectors.dbeta);
      parallel(of_values, [&](Index i, Index j) { of_values(i, j) *= own.betas(i); });
      copy(of_values, s.head(dv, n, h).at(row, x * c.block));
    });
  }
  // The gradient of L is −Aᵀ (dA) Aᵀ below the diagonal.
  void through_inverse(const Head& own, const Shared& ks, Fragment& da, Fragment& sum,
                       Vectors& vectors) const {
    Shared right({rows, rows}, c.type), dls({rows, rows}, c.type), scaled({rows, scan.features()}, c.type);
    Fragment first({rows, rows}, f32, 0), dl({rows, rows}, f32, 0), products({rows, rows}, f32, 0);
    parallel(da, [&](Index i, Index j) { da(i, j) = select(i > j, da(i, j), 0); });
    gemm(da.to(c.type), own.inverse.T(), first);
    copy(first, right);
    gemm(own.inverse.T(), right, dl);
    own.gates.mask(dl, -1);
    parallel(dl, [&](Index i, Index j) { dl(i, j) = select(i > j, dl(i, j), 0); });
    copy(dl, dls);
    parallel(scaled, [&](Index i, Index j) { scaled(i, j) = f32(ks(i, j)) * own.betas(i); });
    Fragment of_scaled({rows, scan.features()}, f32, 0);
    gemm(scaled, ks.T(), products);
    gemm(dls, ks, of_scaled);
    gemm(dls.T(), scaled, sum);
    parallel(products, [&](Index i, Index j) { products(i, j) *= dl(i, j); });
    Fragment columns = reduce_sum(products, 0);
    reduce_sum(products, vectors.dg);
    parallel(columns, [&](Index i) { vectors.dg(i) -= columns(i); });
    parallel(sum, [&](Index i, Index j) {
      sum(i, j) += of_scaled(i, j) * own.betas(i);
      of_scaled(i, j) *= f32(ks(i, j));
    });
    reduce_sum(of_scaled, vectors.dbeta);
  }

  const DeltaKernel& c;
  ScanKernel scan;
  ScanInputs in;
  int rows;
  Tensor k, v, beta, inverse, dw, du, dk_before, sums, dk, dv, dbeta, dsums;
};

}  // namespace

Kernel delta_factor_gradients_kernel(const DeltaKernel& c) {
  return kernel(instance_name("delta_factor_gradients", c), [&] { FactorGradients(c).run(); });
}

}  // namespace tegula::ops
