// Norms of long rows, and their gradients, by clusters that stay: their CTAs keep a row in shared memory, so
// that it is read once, with the next ones on their way, and in registers what belongs to features, which is
// read or added up once for all rows.
#include "ops/rows/norm.hpp"
#include "tegula/ops/layer_norm.hpp"
#include "tegula/ops/rms_norm.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// A row comes in pieces of which every thread has `own` elements.
template <class Op>
struct SpreadNorm {
  const NormInstance<Op>& c;
  int own = piece_of_row(c), piece = *c.spread * ctas_of_held_row * own, pieces = (c.dim + piece - 1) / piece;
  float share = 1.f / static_cast<float>(c.dim);
  Dim rows{"rows"};
  Expr eps = scalar("eps", f32);
  // A cluster of 8 CTAs needs processors that are neighbours: some are left over.
  Expr clusters = max(processors() / ctas_of_held_row - 1, 1) * (threads_of_shared_row / *c.spread);
  Expr blocks = min(rows, clusters);

  // Factors of features, or what is added to them. Those of two pieces share registers where they can: the
  // upper halves of f32 are all that bf16 has.
  struct Features {
    std::vector<Fragment> of = {};
    bool in_pairs = false;
    std::vector<Shared> tiles = {};  // in place of registers
    Expr at(std::size_t p, const Expr& j) const {
      if (!tiles.empty()) return f32(tiles[p](j));
      if (!in_pairs) return f32(of[p](j));
      const Expr both = of[p / 2](j);
      return bitcast(p % 2 == 0 ? both << 16u : both & 0xffff0000u, f32);
    }
  };
  Features features(const Tensor& tensor, const std::optional<DType>& type) const {
    Features result;
    if (!type) return result;
    result.in_pairs = *type == bf16 && pieces % 2 == 0;
    const auto part = [&](int p) { return load(tensor.at(p * piece), {piece}, f32); };
    for (int p = 0; p < pieces; p += result.in_pairs ? 2 : 1) {
      if (!result.in_pairs) {
        result.of.push_back(load(tensor.at(p * piece), {piece}));
        continue;
      }
      Fragment low = part(p), high = part(p + 1);
      result.of.push_back(map(
          low, [&](Index j) { return bitcast(low(j), u32) >> 16u | bitcast(high(j), u32); }, u32));
    }
    return result;
  }

  // Near the mean of a row, so that squares around it lose little: of three elements the one in the middle,
  // which a single one that is far away is not.
  Expr base_of(const Tensor& x, const Expr& row) const {
    if (!is_centred<Op>) return f32(0);
    const Expr a = f32(x(row, 0)), b = f32(x(row, c.dim / 2)), last = f32(x(row, c.dim - 1));
    return max(min(a, b), min(max(a, b), last));
  }
  // The variance, of values whose mean is this.
  Expr variance(const Expr& squares, const Expr& mean) const {
    const Expr result = squares - mean * mean;
    return is_centred<Op> ? select(result < 0, 0, result) : squares;
  }

  // What belongs to each element, added up over the elements of a thread.
  template <class Of>
  Fragment sums(const Of& of) const {
    Fragment sum({piece / own}, f32, 0), shape({piece}, f32);
    for (int p = 0; p < pieces; ++p)
      reduce_sum(
          map(shape, [&](Index j) { return of(static_cast<std::size_t>(p), j); }).reshape({piece / own, own}),
          sum);
    return sum;
  }

  std::vector<Shared> pieces_of(const Tensor& row) const {
    std::vector<Shared> result;
    for (int p = 0; p < pieces; ++p) {
      result.emplace_back(Shared({piece}, row.type()));
      copy(row.at(p * piece), result.back());
    }
    return result;
  }
  std::vector<Shared> row_of(const Tensor& tensor, const Expr& row) const {
    return pieces_of(tensor.slice(row));
  }
  Expr value(const std::vector<Shared>& row, std::size_t p, const Expr& j, const Expr& base) const {
    Expr x = f32(row[p](j));
    if (!is_centred<Op>) return x;
    // Beyond the end of a row, sums have nothing to add.
    const int first = static_cast<int>(p) * piece;
    return first + piece <= c.dim ? Expr(x - base) : select(first + j < c.dim, x - base, 0.f);
  }

  // body(number of a row, its base)
  template <class Body>
  void each_row(const Tensor& x, const Expr& block, int stages, const Body& body) const {
    pipelined(ceildiv(rows - block, blocks), {.stages = stages}, [&](Index step) {
      const Expr row = block + step * blocks;
      const Var base = base_of(x, row);
      body(row, base);
    });
  }
  // As many rows as shared memory has room for, of so many tensors.
  int stages(int tensors) const {
    constexpr int most = 6, bytes = 200 << 10;
    const int row = c.dim / ctas_of_held_row * c.type.bytes() * tensors;
    return std::min(most, bytes / (row * (threads_of_shared_row / *c.spread)));
  }
};

template <class Op>
void spread_rows_of(const NormInstance<Op>& c) {
  const SpreadNorm<Op> n{c};
  Tensor x = input("x", {n.rows, c.dim}, c.type), out = output("out", {n.rows, c.dim}, c.type);
  Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
  Tensor bias = c.bias ? input("bias", {c.dim}, *c.bias) : x;
  grid(n.blocks, options_of_held_rows(c.spread), [&](Index block) {
    const auto weights = n.features(weight, c.weight), added = n.features(bias, c.bias);
    n.each_row(x, block, n.stages(1), [&](const Expr& number, const Expr& base) {
      const std::vector<Shared> row = n.row_of(x, number);
      const auto value = [&](std::size_t p, const Expr& j) { return n.value(row, p, j, base); };
      const Fragment squares = n.sums([&](std::size_t p, Index j) { return value(p, j) * value(p, j); });
      std::optional<Fragment> values;
      if (is_centred<Op>) values.emplace(n.sums(value));
      // One after the other, so that the parts of both meet at once.
      std::vector<Fragment> all;
      all.push_back(reduce_sum(squares));
      if (is_centred<Op>) all.push_back(reduce_sum(*values));
      const Var mean = is_centred<Op> ? all[1].scalar() * n.share : Expr(f32(0));
      const Var r = rsqrt(n.variance(all[0].scalar() * n.share, mean) + n.eps);
      for (std::size_t p = 0; p < row.size(); ++p) {
        Fragment result({n.piece}, f32);
        parallel(result, [&](Index j) {
          const Expr normal = (value(p, j) - mean) * r;
          const Expr scaled = c.weight ? Expr(normal * weights.at(p, j)) : normal;
          result(j) = c.bias ? Expr(scaled + added.at(p, j)) : scaled;
        });
        copy(result, out.slice(number).at(static_cast<int>(p) * n.piece));
      }
    });
  });
}

// dx is that of norm.cpp's gradient.
template <class Op>
struct SpreadNormGradient {
  const NormInstance<Op>& c;
  SpreadNorm<Op> n{c};
  Tensor dout = input("dout", {n.rows, c.dim}, c.type), x = input("x", {n.rows, c.dim}, c.type);
  Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
  Tensor dx = output("dx", {n.rows, c.dim}, c.type);
  Tensor dweight = c.weight ? output("dweight", {c.dim}, f32) : dx;
  Tensor dbias = c.bias ? output("dbias", {c.dim}, f32) : dx;
  Tensor partials = c.weight ? workspace("parts", {n.blocks, c.dim}, f32) : dx;
  Tensor bias_partials = c.bias ? workspace("bias_parts", {n.blocks, c.dim}, f32) : dx;

  // Of the block: what it sums up, and the factors of its features.
  struct Held {
    std::vector<Fragment> sums, bias_sums;
    typename SpreadNorm<Op>::Features weights;
  };
  // Where a thread adds up two numbers of each of more features, its registers hold no weights besides: they
  // come with every row, out of the cache. Fewer features leave room, and need no slots.
  bool weights_come() const {
    constexpr int most_beside_weights = 24;
    return c.weight && c.bias && n.pieces * n.own > most_beside_weights;
  }
  Held held() const {
    Held block;
    if (!weights_come()) block.weights = n.features(weight, c.weight);
    for (int p = 0; p < n.pieces; ++p) {
      if (c.weight) block.sums.push_back(Fragment({n.piece}, f32, 0));
      if (c.bias) block.bias_sums.push_back(Fragment({n.piece}, f32, 0));
    }
    return block;
  }

  // A row in shared memory.
  struct Row {
    const SpreadNormGradient& of;
    const Held& block;
    const Expr& base;
    std::vector<Shared> values, given;
    Expr value(std::size_t p, const Expr& j) const { return of.n.value(values, p, j, base); }
    Expr gradient(std::size_t p, const Expr& j) const { return f32(given[p](j)); }
    Expr weighted(std::size_t p, const Expr& j) const {
      Expr g = gradient(p, j);
      return of.c.weight ? Expr(g * block.weights.at(p, j)) : g;
    }
  };

  // Means of a row: of values less their base, of their squares, of weighted gradients, and of the products
  // of both.
  struct Means {
    Expr value, squares, given, products;
  };
  Means means_of(const Row& row) const {
    const auto value = [&](std::size_t p, Index j) { return row.value(p, j); };
    const auto weighted = [&](std::size_t p, Index j) { return row.weighted(p, j); };
    std::vector<Fragment> parts, all;
    parts.push_back(n.sums([&](std::size_t p, Index j) { return value(p, j) * value(p, j); }));
    parts.push_back(n.sums([&](std::size_t p, Index j) { return weighted(p, j) * value(p, j); }));
    if (is_centred<Op>) parts.push_back(n.sums(value)), parts.push_back(n.sums(weighted));
    // One after the other, so that the parts of all meet at once.
    for (const Fragment& part : parts) all.push_back(reduce_sum(part));
    const auto mean = [&](std::size_t i) { return all[i].scalar() * n.share; };
    if (!is_centred<Op>) return {f32(0), mean(0), f32(0), mean(1)};
    return {mean(2), mean(0), mean(3), mean(1)};
  }

  void step(const Expr& number, const Expr& base, Held& own) const {
    const Row row{*this, own, base, n.row_of(x, number), n.row_of(dout, number)};
    if (weights_come()) own.weights.tiles = n.pieces_of(weight);
    const Means m = means_of(row);
    const Var mean = m.value, before = m.given;
    const Var r = rsqrt(n.variance(m.squares, mean) + n.eps);
    const Var along = (m.products - mean * before) * r * r;
    for (std::size_t p = 0; p < row.values.size(); ++p) {
      if (c.weight)
        parallel(own.sums[p],
                 [&](Index j) { own.sums[p](j) += row.gradient(p, j) * (row.value(p, j) - mean) * r; });
      if (c.bias) parallel(own.bias_sums[p], [&](Index j) { own.bias_sums[p](j) += row.gradient(p, j); });
      Fragment result({n.piece}, f32);
      parallel(result, [&](Index j) {
        result(j) = r * (row.weighted(p, j) - before - (row.value(p, j) - mean) * along);
      });
      copy(result, dx.slice(number).at(static_cast<int>(p) * n.piece));
    }
  }

  void write() const {
    grid(n.blocks, options_of_held_rows(c.spread), [&](Index block) {
      Held own = held();
      n.each_row(x, block, n.stages(weights_come() ? 3 : 2),
                 [&](const Expr& number, const Expr& base) { step(number, base, own); });
      for (int p = 0; p < n.pieces; ++p) {
        const auto at = static_cast<std::size_t>(p);
        if (c.weight) copy(own.sums[at], partials.slice(block).at(p * n.piece));
        if (c.bias) copy(own.bias_sums[at], bias_partials.slice(block).at(p * n.piece));
      }
    });
    add_partials_of_parameters(c, {partials, dweight}, {bias_partials, dbias}, few_partials);
  }
};

}  // namespace

template <class Op>
Kernel spread_norm_program(const NormInstance<Op>& c) {
  return kernel(norm_name(c, ""), [&] { spread_rows_of(c); });
}
template <class Op>
Kernel spread_norm_gradient_program(const NormInstance<Op>& c) {
  return kernel(norm_name(c, "_backward"), [&] { SpreadNormGradient<Op>{c}.write(); });
}

TEGULA_PROGRAMS_OF_NORMS(spread_norm_program)
TEGULA_PROGRAMS_OF_NORMS(spread_norm_gradient_program)

}  // namespace tegula::ops
