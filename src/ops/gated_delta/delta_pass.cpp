#include "ops/gated_delta/delta_pass.hpp"

#include "ops/gated_delta/delta_chunk.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

int threads_of_pass(const DeltaPass& c) {
  return c.type.bits() == 16 && scan_of(c).features() <= 128 ? 128 : 0;
}

namespace {

class PassOverChunks {
 public:
  explicit PassOverChunks(const DeltaPass& kernel) : c(kernel) { in.s.declare(); }

  void run() const {
    grid(ceildiv(c.columns(), c.block), in.heads, in.parts(),
         {.threads = threads_of_pass(c), .blocks_per_processor = c.deep ? 1 : 0},
         [&](Index x, Index h, Index z) {
           const auto part = in.part(z);
           Expr column = x * c.block;
           Fragment state({c.block, scan.features()}, f32, 0);
           if (c.first) copy(in.state(start, part, h).at(column), state);
           if (c.segment)
             parallel(state,
                      [&](Index i, Index j) { state(i, j) = select(column + i - c.d_v == j, 1.0f, 0.0f); });
           pipelined(part.chunks, {.stages = 3}, [&](Index step) {
             Expr chunk = part.first + step;
             of_chunk({part.n, h, chunk, chunk * rows, column}, state);
           });
           if (c.last) copy(state, in.state(end, part, h).at(column));
           if (c.segment) store_map(state, part, h, column - c.d_v);
         });
  }

 private:
  struct Chunk {
    Expr n, h, chunk, row, column;
  };
  // What a step multiplies, all of which comes ahead.
  struct Tiles {
    Shared k, v, inverse, vectors;
    std::optional<Shared> q, scores;
  };

  Tiles load_tiles(const Chunk& at) const {
    const Sequences& s = in.s;
    Tiles t{Shared({rows, scan.features()}, c.type),
            Shared({rows, c.block}, c.type),
            Shared({rows, rows}, c.type),
            Shared({DeltaVector::count, rows}, f32),
            std::nullopt,
            std::nullopt};
    copy(s.head(k, at.n, in.key_head(at.h)).at(at.row), t.k);
    copy(s.head(v, at.n, at.h).at(at.row, at.column), t.v);
    copy(s.chunk(vectors, at.n, at.chunk, at.h).at(0), t.vectors);
    copy(s.chunk(inverse, at.n, at.chunk, at.h).at(0), t.inverse);
    if (!c.outputs) return t;
    t.q.emplace(std::initializer_list<int>{rows, scan.features()}, c.type);
    t.scores.emplace(std::initializer_list<int>{rows, rows}, c.type);
    copy(s.head(q, at.n, in.key_head(at.h)).at(at.row), *t.q);
    copy(s.chunk(scores, at.n, at.chunk, at.h).at(0), *t.scores);
    return t;
  }

  void of_chunk(const Chunk& at, Fragment& state) const {
    const Tiles t = load_tiles(at);
    Fragment before = state.to(c.type), values({c.block, rows}, c.type);
    Fragment seen({c.block, rows}, f32, 0), o({c.block, rows}, f32, 0), written({c.block, rows}, f32, 0);
    gemm(before, t.k.T(), seen);
    if (c.outputs) gemm(before, t.q->T(), o);
    // What no product reads follows one, so that it runs beside it.
    copy(t.v.T(), values);
    // It leaves by the copy engine while the next product runs.
    if (c.keep) copy(state, in.s.chunk(states, at.n, at.chunk, at.h).at(at.column));
    Expr all = t.vectors(DeltaVector::grown, rows - 1);
    parallel(state, [&](Index i, Index j) { state(i, j) *= all; });
    parallel(seen, [&](Index i, Index j) {
      seen(i, j) = (f32(values(i, j)) - seen(i, j) * t.vectors(DeltaVector::grown, j)) *
                   t.vectors(DeltaVector::share, j);
    });
    gemm(seen.to(c.type), t.inverse.T(), written);
    if (c.outputs) {
      parallel(o, [&](Index i, Index j) { o(i, j) *= t.vectors(DeltaVector::asked, j); });
      gemm(written.to(c.type), t.scores->T(), o);
    }
    if (c.keep) copy(written.T(), in.s.chunk(written_values, at.n, at.chunk, at.h).at(0, at.column));
    parallel(written, [&](Index i, Index j) { written(i, j) *= t.vectors(DeltaVector::faded, j); });
    gemm(written.to(c.type), t.k, state);
    if (c.outputs) copy(o.T(), in.s.head(out, at.n, at.h).at(at.row, at.column));
  }

  // What a term leaves, rounded, is the next one.
  void store_map(Fragment& state, const ScanInputs::Part& part, const Expr& h, const Expr& first) const {
    for (const Tensor& map : maps) {
      Fragment term = state.to(map.type());
      copy(term, in.state(map, part, h).at(first));
      parallel(state, [&](Index i, Index j) { state(i, j) -= f32(term(i, j)); });
    }
  }
  std::vector<Tensor> declare_maps() const {
    std::vector<Tensor> result;
    if (!c.segment) return result;
    for (const char* name : names_of_maps(c.type))
      result.push_back(output(name, of_parts(in, c.d, c.d), type_of_maps(c.type)));
    return result;
  }

  Extents ends() const { return of_parts(in, c.d_v, c.d); }

  const DeltaPass& c;
  ScanKernel scan = scan_of_pass(c);
  ScanInputs in{scan};
  int rows = scan.rows();
  Tensor k = in.keys("k"), v = in.values("v");
  Tensor vectors = input("vectors", of_vectors(in), f32);
  Tensor inverse = input("inverse", of_rows(in, rows), c.type);
  Tensor q = c.outputs ? in.keys("q") : k;
  Tensor scores = c.outputs ? input("scores", of_rows(in, rows), c.type) : k;
  Tensor start = c.first ? input("initial_state", ends(), f32) : k;
  Tensor out = c.outputs ? output("out", in.columns(), c.type) : k;
  Tensor states = c.keep ? output("states", of_states(in), c.type) : k;
  Tensor written_values = c.keep ? output("written", of_rows(in, c.d_v), c.type) : k;
  Tensor end = c.last ? output("final_state", ends(), f32) : k;
  std::vector<Tensor> maps = declare_maps();
};

}  // namespace

Kernel delta_pass_kernel(const DeltaPass& c) {
  return kernel(instance_name("delta_pass", c), [&] { PassOverChunks(c).run(); });
}

}  // namespace tegula::ops
