// C = A · Bᵀ with work divided otherwise than a tile for a block: the inner dimension among several blocks,
// equal numbers of steps for every block (stream-K), and blocks that take one tile after another.
#include "tests/programs/gemm/products.hpp"
#include "tests/programs/list.hpp"

namespace programs {
namespace {

struct Operands {
  Dim M{"M"}, N{"N"}, K{"K"};
  Tensor A, B;

  Operands() : A(input("A", {M, K}, bf16)), B(input("B", {N, K}, bf16)) {}
  Tensor result(DType type, const OutputOptions& options = {}) const {
    return output("C", {M, N}, type, options);
  }
  Expr columns(const GemmTile& t) const { return ceildiv(N, t.n); }
  Expr rows(const GemmTile& t) const { return ceildiv(M, t.m); }
};

Range steps_of(const Expr& steps, const Expr& partial, const Expr& partials) {
  return range(partial * steps / partials, (partial + 1) * steps / partials);
}

// Parts are added by atomics to a cleared result, or in order, which gives equal bits in every run.
Kernel split_k_added(int splits, const GemmTile& t, bool in_order) {
  return kernel(in_order ? "gemm_split_k_in_order" : "gemm_split_k_atomic", [&] {
    Operands o;
    Tensor C = o.result(f32, {.zero = !in_order});
    grid(o.columns(t), o.rows(t), splits, {.order = Order::grouped(8)}, [&](Index x, Index y, Index z) {
      Fragment acc({t.m, t.n}, f32, 0);
      multiply(acc, o.A, o.B, y * t.m, x * t.n, steps_of(ceildiv(o.K, t.k), z, splits), t);
      if (in_order)
        accumulate(C.at(y * t.m, x * t.n), acc, {.order = z, .consecutive = true, .overwrite = true});
      else
        atomic_add(C.at(y * t.m, x * t.n), acc);
    });
  });
}

Kernel split_k_by_workspace(int splits, const GemmTile& t) {
  return kernel("gemm_split_k_workspace", [&] {
    Operands o;
    Tensor C = o.result(bf16), partials = workspace("parts", {splits, o.M, o.N}, f32);
    grid(o.columns(t), o.rows(t), splits, [&](Index x, Index y, Index z) {
      Fragment acc({t.m, t.n}, f32, 0);
      multiply(acc, o.A, o.B, y * t.m, x * t.n, steps_of(ceildiv(o.K, t.k), z, splits), t);
      copy(acc, partials.slice(z).at(y * t.m, x * t.n));
    });
    grid(ceildiv(o.N, 128), ceildiv(o.M, 16), [&](Index x, Index y) {
      Fragment sum({16, 128}, f32, 0);
      serial(splits, [&](Index z) {
        Fragment partial = load(partials.slice(z).at(y * 16, x * 128), {16, 128});
        parallel(sum, [&](Index i, Index j) { sum(i, j) += partial(i, j); });
      });
      copy(sum, C.at(y * 16, x * 128));
    });
  });
}

// The steps of all tiles, one after another, in equal shares for `workers` blocks.
struct Shares {
  GemmTile t;
  Operands o;
  Tensor C;
  Expr workers, columns, tiles, steps, total;

  Shares(const GemmTile& tile, DType type, const OutputOptions& options = {})
      : t(tile),
        C(o.result(type, options)),
        workers(scalar("workers", i32)),
        columns(o.columns(t)),
        tiles(columns * o.rows(t)),
        steps(ceildiv(o.K, t.k)),
        total(tiles * steps) {
    require(workers > 0 && workers <= total, "every worker has at least one step");
  }
  Expr begin(const Expr& worker) const { return worker * total / workers; }
  Expr worker_of(const Expr& step) const { return ((step + 1) * workers - 1) / total; }
  Expr row(const Expr& tile) const { return tile / columns * t.m; }
  Expr column(const Expr& tile) const { return tile % columns * t.n; }

  // The product of a worker's steps of a tile, which is complete or a partial sum: 0 of a tile that others
  // began, 1 of others.
  void multiply_range(const Expr& tile, const Expr& k0, const Expr& k1, const Tensor& partials) const {
    Fragment acc({t.m, t.n}, f32, 0);
    multiply(acc, o.A, o.B, row(tile), column(tile), range(k0, k1), t);
    when(k0 == 0 && k1 == steps, [&] { copy(acc, C.at(row(tile), column(tile))); }).otherwise([&] {
      copy(acc, partials.slice(select(k0 == 0, 1, 0)));
    });
  }
  void add_up(const Tensor& partial) const {
    grid(tiles, t.m / 16, [&](Index tile, Index step) {
      Expr first = worker_of(tile * steps), last = worker_of((tile + 1) * steps - 1);
      exit_if(first == last);
      Fragment acc({16, t.n}, f32, 0);
      serial(range(first, last + 1), [&](Index worker) {
        Fragment p = load(partial.slice(worker, select(worker == first, 1, 0)).at(step * 16), {16, t.n});
        parallel(acc, [&](Index i, Index j) { acc(i, j) += p(i, j); });
      });
      copy(acc, C.at(row(tile) + step * 16, column(tile)));
    });
  }
};

// A worker takes its tiles in a counted loop, or step by step while it has some.
Kernel stream_k(const GemmTile& t, bool counted) {
  return kernel(counted ? "gemm_stream_k" : "gemm_stream_k_while", [&] {
    Shares s(t, bf16);
    Tensor partial = workspace("part", {s.workers, 2, t.m, t.n}, f32);
    grid(s.workers, [&](Index worker) {
      Expr first = s.begin(worker), last = s.begin(worker + 1);
      if (counted) {
        serial(range(first / s.steps, ceildiv(last, s.steps)), [&](Index tile) {
          Expr k0 = max(first - tile * s.steps, 0), k1 = min(last - tile * s.steps, s.steps);
          s.multiply_range(tile, k0, k1, partial.slice(worker));
        });
        return;
      }
      Var step = first;
      loop_while([&] { return step < last; },
                 [&] {
                   Expr tile = step / s.steps, k0 = step % s.steps, k1 = min(s.steps, k0 + last - step);
                   s.multiply_range(tile, k0, k1, partial.slice(worker));
                   step += k1 - k0;
                 });
    });
    s.add_up(partial);
  });
}

Kernel stream_k_atomic(const GemmTile& t) {
  return kernel("gemm_stream_k_atomic", [&] {
    Shares s(t, f32, {.zero = true});
    grid(s.workers, [&](Index worker) {
      Expr first = s.begin(worker), last = s.begin(worker + 1);
      serial(range(first / s.steps, ceildiv(last, s.steps)), [&](Index tile) {
        Expr k0 = max(first - tile * s.steps, 0), k1 = min(last - tile * s.steps, s.steps);
        Fragment acc({t.m, t.n}, f32, 0);
        multiply(acc, s.o.A, s.o.B, s.row(tile), s.column(tile), range(k0, k1), t);
        atomic_add(s.C.at(s.row(tile), s.column(tile)), acc);
      });
    });
  });
}

Kernel persistent_by_hint(const GemmTile& t) {
  return kernel("gemm_persistent_hint", [&] {
    Operands o;
    Tensor C = o.result(bf16);
    grid(o.columns(t), o.rows(t), {.persistent = true, .order = Order::grouped(8)}, [&](Index x, Index y) {
      Fragment acc({t.m, t.n}, f32, 0);
      multiply(acc, o.A, o.B, y * t.m, x * t.n, steps_of(o.K, t), t);
      copy(acc, C.at(y * t.m, x * t.n));
    });
  });
}
// The program's own waves, in strips of 8 columns of tiles.
Kernel persistent_by_loop(const GemmTile& t) {
  return kernel("gemm_persistent_loop", [&] {
    Operands o;
    Tensor C = o.result(bf16);
    Expr rows = o.rows(t), columns = o.columns(t), tiles = rows * columns, blocks = min(processors(), tiles);
    grid(blocks, [&](Index block) {
      serial(ceildiv(tiles - block, blocks), [&](Index wave) {
        Expr tile = wave * blocks + block, strip = tile / (8 * rows), in = tile % (8 * rows);
        Expr of_strip = min(columns - strip * 8, 8), m0 = in / of_strip * t.m, n0 = (strip * 8 + in % of_strip) * t.n;
        Fragment acc({t.m, t.n}, f32, 0);
        multiply(acc, o.A, o.B, m0, n0, steps_of(o.K, t), t);
        copy(acc, C.at(m0, n0));
      });
    });
  });
}

const GemmTile square{128, 128, 64};

Prepared product_call(const Kernel& kernel, DType out, std::optional<int> workers = {}) {
  const Data a = normal({100, 200}, bf16, 1), b = normal({72, 200}, bf16, 2);
  std::vector<Value> values{a, b, Wanted{product_of(Numbers(a), Numbers(b)), out, out == f32 ? 1e-5 : 4e-3}};
  if (workers) values.emplace_back(*workers);
  return {kernel, values};
}

}  // namespace

Program gemm_split_k() {
  return {"gemm",
          "gemm_split_k",
          "a product whose inner dimension several blocks divide",
          {{"atomic", [] { return product_call(split_k_added(3, small_tile, false), f32); }},
           {"in_order", [] { return product_call(split_k_added(3, small_tile, true), f32); }},
           {"workspace", [] { return product_call(split_k_by_workspace(3, small_tile), bf16); }}},
          {{"four splits by atomics, 128 x 128 x 64", [] { return split_k_added(4, square, false); }},
           {"four splits in order, 128 x 128 x 64", [] { return split_k_added(4, square, true); }},
           {"four splits by a workspace, 128 x 256 x 64", [] { return split_k_by_workspace(4, large_tile); }}}};
}
Program gemm_stream_k() {
  return {"gemm",
          "gemm_stream_k",
          "a product whose steps are divided evenly among blocks, whatever tile they belong to",
          {{"counted", [] { return product_call(stream_k(small_tile, true), bf16, 7); }},
           {"while", [] { return product_call(stream_k(small_tile, false), bf16, 4); }},
           {"atomic", [] { return product_call(stream_k_atomic(small_tile), f32, 7); }}},
          {{"counted loop, 128 x 256 x 64", [] { return stream_k(large_tile, true); }},
           {"while, 128 x 256 x 64", [] { return stream_k(large_tile, false); }},
           {"atomics, 128 x 128 x 64", [] { return stream_k_atomic(square); }}}};
}
Program gemm_persistent() {
  return {"gemm",
          "gemm_persistent",
          "a product whose blocks take one tile after another",
          {{"hint", [] { return product_call(persistent_by_hint(small_tile), bf16); }},
           {"loop", [] { return product_call(persistent_by_loop(small_tile), bf16); }}},
          {{"by the hint, 128 x 256 x 64", [] { return persistent_by_hint(large_tile); }},
           {"by a loop, 128 x 256 x 64", [] { return persistent_by_loop(large_tile); }}}};
}

}  // namespace programs
