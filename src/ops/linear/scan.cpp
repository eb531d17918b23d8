#include "ops/linear/scan.hpp"

#include <algorithm>

#include "ops/linear/scan_pieces.hpp"
#include "ops/pieces/plan.hpp"

namespace tegula::ops {

using namespace lang;
using lang::Tensor;

ScanKernel wide(ScanKernel c, bool on_gpu) {
  // Each block of a CPU copies what all columns are multiplied by.
  constexpr int most_of_cpu = 128;
  const int most = !on_gpu ? most_of_cpu : c.type.bits() == 16 ? 64 : c.d <= 128 ? 32 : 16;
  c.block = std::min(most, (c.d_v + 15) / 16 * 16);
  return c;
}

// Fewer columns, as long as a GPU has processors left. A CPU has few.
ScanKernel narrow(ScanKernel c, std::int64_t heads, bool on_gpu) {
  constexpr int least = 16;
  c = wide(c, on_gpu);
  if (!on_gpu) return c;
  const auto blocks = [&](int columns) { return heads * ((c.columns() + columns - 1) / columns); };
  // A second wave takes as long as the first.
  while (c.block >= 2 * least && c.block % (2 * least) == 0 &&
         blocks(c.block) < gpu_table.scan.filling_blocks && blocks(c.block / 2) <= c.blocks_at_once())
    c.block /= 2;
  c.deep = blocks(c.block) <= gpu_processors;
  return c;
}

int ScanKernel::stages(int elements) const {
  // What a step has besides, such as rounded states, takes the remaining shared memory.
  constexpr std::int64_t least = 2, most = 4, bytes = 160 << 10;
  return deep ? static_cast<int>(std::clamp(bytes * 8 / (elements * type.bits()), least, most)) : 2;
}

std::int64_t ScanKernel::blocks_at_once() const {
  return (threads() > 0 && features() <= features_of_two ? 2 : 1) * gpu_processors;
}

int ScanKernel::threads() const {
  constexpr int most_of_state = 192 * 64;
  if (type.bits() != 16 || rows() > chunk_tokens_of_scan) return 0;
  const bool lasts =
      features() <= features_of_two || (!of_tile && !by_feature && features() * block <= most_of_state);
  return lasts ? 128 : 0;
}

lang::GridOptions ScanKernel::options() const {
  return {.threads = threads(), .blocks_per_processor = deep && would_spill() ? 1 : 0};
}

Expr decayed(const Expr& score, const Expr& gi, const Expr& gj, const Expr& is_seen) {
  return select(is_seen, score * exp2(min(gi - gj, 0)), 0);
}

void GateTile::fill(const Expr& gate, bool keep) {
  assert_that(gate <= 0, "g_gamma are logarithms of decays: at most 0");
  Shared& g = *tile_;
  Var own = gate * log2e;
  parallel(g, [&](Index i) { g(i) = f32(reverse_ ? g.extent(0) - i : i + 1) * own; });
  if (!keep) return;
  Fragment& decays = decays_.emplace(std::initializer_list<int>{g.extent(0), g.extent(0)}, f32);
  parallel(decays, [&](Index i, Index j) {
    Expr is_seen = reverse_ ? j >= i : i >= j, distance = reverse_ ? j - i : i - j;
    decays(i, j) = select(is_seen, exp2(f32(distance) * own), 0);
  });
}

void GateTile::grow(Fragment& x) const {
  if (!tile_) return;
  const Shared& g = *tile_;
  parallel(x, [&](Index i, Index j) { x(i, j) *= exp2(g(i)); });
}

void GateTile::fade(Fragment& x, const Expr& last) const {
  if (!tile_) return;
  const Shared& g = *tile_;
  Expr total = g(last);
  parallel(x, [&](Index i, Index j) { x(i, j) *= exp2(min(total - g(i), 0)); });
}

const Shared& GateTile::faded(const Shared& values, const Expr& last, std::optional<Shared>& own) const {
  if (!tile_) return values;
  Shared& result = own.emplace(Shared({values.extent(0), values.extent(1)}, values.type()));
  const Shared& g = *tile_;
  Expr total = g(last);
  // From registers, so that it has one slot: what is made of tiles that come ahead has as many as they have.
  Fragment x({values.extent(0), values.extent(1)}, f32);
  parallel(x, [&](Index i, Index j) {
    Expr share = exp2(min(total - g(i), 0));
    x(i, j) = f32(values(i, j)) * (weights_ ? (*weights_)(i)*share : share);
  });
  copy(x, result);
  return result;
}

void GateTile::age(Fragment& state, const Expr& last) const {
  if (!tile_) return;
  Expr factor = exp2((*tile_)(last));
  parallel(state, [&](Index i, Index j) { state(i, j) *= factor; });
}

void GateTile::mask(Fragment& scores, const Expr& factor) const {
  if (decays_) {
    const Fragment& decays = *decays_;
    return parallel(scores, [&](Index i, Index j) { scores(i, j) *= decays(i, j) * factor; });
  }
  parallel(scores, [&](Index i, Index j) {
    Expr score = weights_ ? scores(i, j) * (*weights_)(j)*factor : scores(i, j) * factor,
         is_seen = reverse_ ? j >= i : i >= j;
    scores(i, j) = tile_ ? decayed(score, (*tile_)(i), (*tile_)(j), is_seen) : select(is_seen, score, 0);
  });
}

void GateTile::mask_of_keys(Fragment& scores, const Expr& factor) const {
  parallel(scores, [&](Index j, Index i) {
    Expr score = scores(j, i) * factor;
    scores(j, i) = tile_ ? decayed(score, (*tile_)(i), (*tile_)(j), i >= j) : select(i >= j, score, 0);
  });
}

void fade_features(Fragment& state, const Shared& decays) {
  parallel(state, [&](Index i, Index j) { state(i, j) *= decays(i); });
}

void add_ones(const ScanKernel& c, Shared& values, const Expr& column) {
  if (!c.ones) return;
  parallel(values,
           [&](Index i, Index j) { values(i, j) = select(column + j == c.d_v - 1, 1, f32(values(i, j))); });
}

namespace {

// One chunk: what it takes from the state and from itself, and what it adds to the state.
struct ScanChunk {
  const ScanInputs& in;
  Shared q, k, v, rounded;
  std::optional<GateTile> of_tokens;
  GateTile& gates;

  ScanChunk(const ScanInputs& inputs, std::optional<GateTile>& even)
      : in(inputs),
        q({in.c.rows(), in.c.features()}, in.c.type),
        k({in.c.rows(), in.c.features()}, in.c.type),
        v({in.c.rows(), in.c.block}, in.c.type),
        rounded({in.c.features(), in.c.block}, in.c.type),
        gates(even ? *even : of_tokens.emplace(in.c)) {}

  Fragment outputs(const Fragment& state, const Expr& scale) {
    const ScanKernel& c = in.c;
    Fragment scores({c.rows(), c.rows()}, f32, 0), o({c.rows(), c.block}, f32, 0);
    copy(state, rounded);
    gemm(q, k.T(), scores);
    gemm(q, rounded, o);
    gates.mask(scores, 1);
    gates.grow(o);
    gemm(scores.to(c.type), v, o);
    parallel(o, [&](Index i, Index j) { o(i, j) *= scale; });
    return o;
  }
  // A share of the values themselves, and a gate.
  void finish(Fragment& o, const std::optional<Expr>& share, const Shared* z) const {
    if (share) parallel(o, [&](Index i, Index j) { o(i, j) += *share * f32(v(i, j)); });
    if (z == nullptr) return;
    parallel(o, [&](Index i, Index j) {
      Expr gate = f32((*z)(i, j));
      o(i, j) *= gate / (1 + exp(-gate));
    });
  }
  // Where they fit, results go through the place of the rounded state, so that threads store whole sectors;
  // with weights the further meeting of threads costs more than that gains.
  void store(const Fragment& o, const Window& to) {
    const ScanKernel& c = in.c;
    if (c.result != c.type || c.features() < c.rows() || c.weighted) return copy(o, to);
    Shared staged = rounded.slice(range(0, c.rows()));
    copy(o, staged);
    copy(staged, to);
  }
  void pass(Fragment& state, const Expr& last) {
    gates.age(state, last);
    std::optional<Shared> room;
    gemm(k.T(), gates.faded(v, last, room), state);
  }
};

// What a scan reads and writes; tensors that it does not have are others of it.
struct ScanArguments {
  Tensor q, k, v, sums, weights, shares, z, start;
  Expr scale;
  Tensor out, end;

  explicit ScanArguments(ScanInputs& in)
      : q(in.keys("q")),
        k(in.keys("k")),
        v(in.values("v")),
        sums(in.c.gated ? in.gates() : q),
        weights(in.c.weighted ? in.vectors("weights") : q),
        shares(in.c.skip ? input("D", {in.heads}, f32) : q),
        z(in.c.gate ? in.values("z") : q),
        start(in.c.first ? input("initial_state", in.ends(), f32) : q),
        scale(scalar("scale", f32)),
        out(output("out", in.columns(), in.c.result)),
        end(in.c.last ? output("final_state", in.ends(), f32) : out) {
    in.s.declare();
  }
};

}  // namespace

Kernel scan_kernel(const ScanKernel& c) {
  return kernel(instance_name("scan", c), [&] {
    ScanInputs in(c);
    Sequences& s = in.s;
    const ScanArguments of(in);
    grid(in.blocks(), in.heads, in.parts(), c.options(), [&](Index x, Index h, Index z) {
      const auto part = in.part(z);
      const Expr &n = part.n, &chunks = part.chunks;
      Expr column = x * c.block, key_head = in.key_head(h);
      Fragment state({c.features(), c.block}, f32, 0);
      if (c.first) copy(in.state(of.start, part, h).at(0, column), state);
      std::optional<Var> share;
      if (c.skip) share.emplace(of.shares(h));
      std::optional<GateTile> even;
      if (c.even) even.emplace(c).fill(of.sums(h), c.blocks_at_once() > gpu_processors);
      pipelined(chunks, {.stages = 2}, [&](Index step) {
        Expr chunk = c.reverse ? chunks - 1 - step : part.first + step, row = chunk * c.rows(),
             last = c.reverse ? Expr(0) : in.last_row(n, row);
        ScanChunk own(in, even);
        copy(s.head(of.q, n, key_head).at(row), own.q);
        copy(s.head(of.k, n, key_head).at(row), own.k);
        copy(s.head(of.v, n, h).at(row, column), own.v);
        if (c.gated && !c.even) own.gates.load(in.vector(of.sums, n, chunk, h));
        add_ones(c, own.v, column);
        if (c.weighted) own.gates.load_weights(in.vector(of.weights, n, chunk, h));
        std::optional<Shared> gate;
        if (c.gate) {
          gate.emplace(std::initializer_list<int>{c.rows(), c.block}, c.type);
          copy(s.head(of.z, n, h).at(row, column), *gate);
        }
        Fragment o = own.outputs(state, of.scale);
        own.finish(o, share ? std::optional<Expr>(*share) : std::nullopt, gate ? &*gate : nullptr);
        own.store(o, s.head(of.out, n, h).at(row, column));
        own.pass(state, last);
      });
      if (c.last) copy(state, in.state(of.end, part, h).at(0, column));
    });
  });
}

namespace {

// The pass over the chunks of a head, for columns of its states.
class StatesPass {
 public:
  explicit StatesPass(const ScanKernel& kernel)
      : c(kernel),
        in(c),
        k(in.keys("k")),
        v(in.values("v")),
        w(c.by_feature ? input("w", in.s.shape({in.heads, c.d}), c.type) : k),
        sums(c.gated ? in.gates() : k),
        weights(c.weighted ? in.vectors("weights") : k),
        decays(c.by_feature ? in.decays() : k),
        start(c.first ? input("initial_state", in.ends(), f32) : k),
        states(c.alone ? k : output("states", in.states(), c.type)),
        v_new(c.by_feature && !c.alone ? output("v_new", in.columns(), c.type) : states),
        end(c.last ? output("final_state", in.ends(), f32) : states),
        fades(c.alone && c.gated ? output("fades", in.fades(), f32) : states),
        maps(declare_maps()) {
    in.s.declare();
  }

  void run() const {
    grid(in.blocks(), in.heads, in.parts(), {.threads = c.alone && !c.by_feature ? c.threads() : 0},
         [&](Index x, Index h, Index z) {
           const auto part = in.part(z);
           Expr column = x * c.block;
           Fragment state({c.features(), c.block}, f32, 0);
           std::optional<Var> gates;
           if (c.alone && c.gated) gates.emplace(0.0f);
           if (c.first) copy(in.state(start, part, h).at(0, column), state);
           if (c.map)
             parallel(state,
                      [&](Index i, Index j) { state(i, j) = select(column + j - c.d_v == i, 1.0f, 0.0f); });
           std::optional<GateTile> even;
           if (c.even) even.emplace(c).fill(sums(h), false);
           const int elements = c.rows() * (c.features() * (c.by_feature ? 2 : 1) + c.block);
           pipelined(part.chunks, {.stages = c.stages(elements)}, [&](Index step) {
             Expr chunk = part.first + step;
             of_chunk({part.n, h, chunk, chunk * c.rows(), column}, state, even, gates ? &*gates : nullptr);
           });
           if (c.last) copy(state, in.state(end, part, h).at(0, column));
           store_map(state, part, h, column - c.d_v);
           if (gates) when(x == 0, [&] { leave_fade(part, h, exp2(*gates)); });
         });
  }

 private:
  struct Chunk {
    Expr n, h, chunk, row, column;
  };

  void leave_fade(const ScanInputs::Part& part, const Expr& h, const Expr& fade) const {
    if (c.divided)
      fades(part.n, part.segment, h) = fade;
    else
      fades(part.n, h) = fade;
  }

  void of_chunk(const Chunk& own, Fragment& state, std::optional<GateTile>& even, Var* all_gates) const {
    const Sequences& s = in.s;
    const auto& [n, h, chunk, row, column] = own;
    Shared ks({c.rows(), c.features()}, c.type), vs({c.rows(), c.block}, c.type);
    std::optional<Shared> rounded;
    if (!c.alone || c.by_feature) rounded.emplace(std::initializer_list<int>{c.features(), c.block}, c.type);
    std::optional<GateTile> of_tokens;
    GateTile& gates = even ? *even : of_tokens.emplace(c);
    copy(s.head(k, n, in.key_head(h)).at(row), ks);
    copy(s.head(v, n, h).at(row, column), vs);
    if (c.gated && !c.even) gates.load(in.vector(sums, n, chunk, h));
    if (c.weighted) gates.load_weights(in.vector(weights, n, chunk, h));
    if (c.by_feature) {
      Shared faded({c.features()}, f32);
      copy(s.chunk(decays, n, chunk, h).at(0), faded);
      copy(state, *rounded);
      return write_difference(own, state, {ks, vs, *rounded, faded});
    }
    add_ones(c, vs, column);
    if (!c.alone) {
      copy(state, *rounded);
      copy(*rounded, s.chunk(states, n, chunk, h).at(0, column));
    }
    if (all_gates != nullptr) *all_gates += gates.at(in.last_row(n, row));
    gates.age(state, in.last_row(n, row));
    std::optional<Shared> own_room;
    gemm(ks.T(), gates.faded(vs, in.last_row(n, row), own_room), state);
  }

  struct Tiles {
    const Shared &k, &v, &rounded, &decays;
  };
  // What is not read by a product follows it, so that it runs beside the product.
  void write_difference(const Chunk& own, Fragment& state, const Tiles& tiles) const {
    const Sequences& s = in.s;
    const auto& [n, h, chunk, row, column] = own;
    Shared ws({c.rows(), c.features()}, c.type), gained({c.rows(), c.block}, c.type);
    copy(s.head(w, n, h).at(row), ws);
    Fragment left({c.rows(), c.block}, f32, 0), added({c.rows(), c.block}, f32);
    gemm(ws, tiles.rounded, left);
    if (!c.alone) copy(tiles.rounded, s.chunk(states, n, chunk, h).at(0, column));
    fade_features(state, tiles.decays);
    parallel(left, [&](Index i, Index j) {
      left(i, j) = f32(tiles.v(i, j)) - left(i, j);
      added(i, j) = left(i, j);
    });
    copy(added, gained);
    gemm(tiles.k.T(), gained, state);
    if (!c.alone) copy(left, s.head(v_new, n, h).at(row, column));
  }

  // What a term leaves, rounded, is the next one.
  void store_map(Fragment& state, const ScanInputs::Part& part, const Expr& h, const Expr& first) const {
    for (const Tensor& map : maps) {
      Fragment term = state.to(map.type());
      copy(term, in.state(map, part, h).at(0, first));
      parallel(state, [&](Index i, Index j) { state(i, j) -= f32(term(i, j)); });
    }
  }
  std::vector<Tensor> declare_maps() const {
    std::vector<Tensor> result;
    if (!c.map) return result;
    for (const char* name : names_of_maps(c.type))
      result.push_back(output(name, in.maps(), type_of_maps(c.type)));
    return result;
  }

  const ScanKernel& c;
  ScanInputs in;
  Tensor k, v, w, sums, weights, decays, start, states, v_new, end, fades;
  std::vector<Tensor> maps;
};

}  // namespace

Kernel scan_states_kernel(const ScanKernel& c) {
  return kernel(instance_name("scan_states", c), [&] { StatesPass(c).run(); });
}

}  // namespace tegula::ops
