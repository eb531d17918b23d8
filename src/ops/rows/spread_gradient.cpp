// The gradient of RMS norm of long rows that the CTAs of a cluster keep in their shared memory, so that they
// are read once. A block stays, with the sums of its features in registers, while its next rows are on their
// way.
#include "ops/rows/norm.hpp"
#include "tegula/ops/layer_norm.hpp"
#include "tegula/ops/rms_norm.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// dx is that of norm.cpp's gradient. A row comes in pieces of which every thread has 16 bytes.
template <class Op>
struct SpreadNormGradient {
  const NormInstance<Op>& c;
  int piece = *c.spread * ctas_of_held_row * piece_of_row(c), pieces = c.dim / piece;
  Dim rows{"rows"};
  Tensor dout = input("dout", {rows, c.dim}, c.type), x = input("x", {rows, c.dim}, c.type);
  Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
  Tensor dx = output("dx", {rows, c.dim}, c.type);
  Tensor dweight = c.weight ? output("dweight", {c.dim}, f32) : dx;
  Expr eps = scalar("eps", f32);
  // A cluster of 8 CTAs needs processors that are neighbours: some are left over.
  Expr blocks = min(rows, max(processors() / ctas_of_held_row - 1, 1));
  Tensor partials = c.weight ? workspace("parts", {blocks, c.dim}, f32) : dx;

  // Of the block: what it sums up, and the factors of its features.
  struct Held {
    std::vector<Fragment> sums, weights;
  };
  Held held() const {
    Held own;
    for (int p = 0; c.weight && p < pieces; ++p) {
      own.sums.push_back(Fragment({piece}, f32, 0));
      own.weights.push_back(load(weight.at(p * piece), {piece}));
    }
    return own;
  }

  // A row in shared memory.
  struct Row {
    const SpreadNormGradient& n;
    const Held& block;
    std::vector<Shared> values, given;

    Row(const SpreadNormGradient& gradient, const Held& held, const Expr& row) : n(gradient), block(held) {
      for (int p = 0; p < n.pieces; ++p) {
        values.emplace_back(Shared({n.piece}, n.c.type));
        copy(n.x.slice(row).at(p * n.piece), values.back());
        given.emplace_back(Shared({n.piece}, n.c.type));
        copy(n.dout.slice(row).at(p * n.piece), given.back());
      }
    }
    Expr value(std::size_t p, const Expr& j) const { return f32(values[p](j)); }
    Expr gradient(std::size_t p, const Expr& j) const { return f32(given[p](j)); }
    Expr weighted(std::size_t p, const Expr& j) const {
      Expr g = gradient(p, j);
      return n.c.weight ? Expr(g * f32(block.weights[p](j))) : g;
    }
    // What belongs to each element, added up over the pieces.
    template <class Of>
    Fragment columns(const Of& of) const {
      Fragment sum({n.piece}, f32, 0);
      for (std::size_t p = 0; p < values.size(); ++p) parallel(sum, [&](Index j) { sum(j) += of(p, j); });
      return sum;
    }
  };

  void step(const Expr& number, Held& own) const {
    const Row row(*this, own, number);
    const Fragment squares =
        row.columns([&](std::size_t p, Index j) { return row.value(p, j) * row.value(p, j); });
    const Fragment products =
        row.columns([&](std::size_t p, Index j) { return row.weighted(p, j) * row.value(p, j); });
    // One after the other, so that the parts of both meet at once.
    const Fragment all_squares = reduce_sum(squares), all_products = reduce_sum(products);
    const float share = 1.f / static_cast<float>(c.dim);
    const Var r = rsqrt(all_squares.scalar() * share + eps), along = all_products.scalar() * share * r * r;
    for (std::size_t p = 0; p < row.values.size(); ++p) {
      if (c.weight)
        parallel(own.sums[p], [&](Index j) { own.sums[p](j) += row.gradient(p, j) * row.value(p, j) * r; });
      Fragment result({piece}, f32);
      parallel(result, [&](Index j) { result(j) = r * (row.weighted(p, j) - row.value(p, j) * along); });
      copy(result, dx.slice(number).at(static_cast<int>(p) * piece));
    }
  }

  void write() const {
    grid(blocks, options_of_held_rows(c.spread), [&](Index block) {
      Held own = held();
      pipelined(ceildiv(rows - block, blocks), {.stages = 3},
                [&](Index number) { step(block + number * blocks, own); });
      for (std::size_t p = 0; p < own.sums.size(); ++p)
        copy(own.sums[p], partials.slice(block).at(static_cast<int>(p) * piece));
    });
    if (c.weight) add_partials({{partials, dweight}}, few_partials);
  }
};

}  // namespace

template <class Op>
Kernel spread_norm_gradient_program(const NormInstance<Op>& c) {
  return kernel(norm_name(c, "_backward"), [&] { SpreadNormGradient<Op>{c}.write(); });
}

template Kernel spread_norm_gradient_program(const NormInstance<RmsNorm>& c);
template Kernel spread_norm_gradient_program(const NormInstance<AddRmsNorm>& c);
template Kernel spread_norm_gradient_program(const NormInstance<LayerNorm>& c);
template Kernel spread_norm_gradient_program(const NormInstance<AddLayerNorm>& c);

}  // namespace tegula::ops
