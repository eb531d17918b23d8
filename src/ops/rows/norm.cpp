#include "ops/rows/norm.hpp"

#include "ops/pieces/rows.hpp"
#include "tegula/ops/layer_norm.hpp"
#include "tegula/ops/rms_norm.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

// Resident blocks of the gradients' grid: one computes while the others wait for memory.
constexpr int norms_of_a_processor = 2;

// Each row less its mean.
void centre(Fragment& values) {
  Fragment sums = reduce_sum(values);
  const float share = 1.f / static_cast<float>(values.extent(1));
  parallel(values, [&](Index i, Index j) { values(i, j) -= sums(i) * share; });
}

}  // namespace

template <class Op>
Kernel norm_program(const NormInstance<Op>& c) {
  if (c.pieces) return long_norm_program(c);
  if (c.stays) return spread_norm_program(c);
  return kernel(norm_name(c, ""), [&] {
    Dim rows("rows");
    Tensor x = input("x", {rows, c.dim}, c.type), out = output("out", {rows, c.dim}, c.type);
    Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
    Tensor bias = c.bias ? input("bias", {c.dim}, *c.bias) : x;
    Tensor residual = adds_residual<Op> ? input("residual", {rows, c.dim}, c.type) : x;
    Tensor sum = adds_residual<Op> ? output("sum", {rows, c.dim}, c.type) : x;
    Expr eps = scalar("eps", f32);
    grid(ceildiv(rows, c.rows), options_of_held_rows(c.spread, c.threads), [&](Index block) {
      Fragment values = load(x.at(block * c.rows), {c.rows, c.dim}, f32);
      if (adds_residual<Op>) {
        // The sum is rounded as it is stored, so that its readers see what was normalised.
        Fragment added = load(residual.at(block * c.rows), {c.rows, c.dim}, f32);
        parallel(values, [&](Index i, Index j) { values(i, j) = c.type(values(i, j) + added(i, j)); });
        copy(values, sum.at(block * c.rows));
      }
      if (is_centred<Op>) centre(values);
      Fragment weights = c.weight ? load(weight.at(0), {c.dim}, f32) : Fragment({c.dim}, f32, 1),
               factors = root_mean_square_factors(values, eps);
      if (c.bias) {
        Fragment added = load(bias.at(0), {c.dim}, f32);
        parallel(values,
                 [&](Index i, Index j) { values(i, j) = values(i, j) * factors(i) * weights(j) + added(j); });
      } else {
        parallel(values, [&](Index i, Index j) { values(i, j) = values(i, j) * factors(i) * weights(j); });
      }
      copy(values, out.at(block * c.rows));
    });
  });
}

namespace {

// With g = dout · weight, n the normalised row and r the factor of a row: dx = r · (g − n · mean(g · n)),
// less the mean of g where rows are centred, and dweight is the sum of dout · n, of which every block has a
// part. Rows come to shared memory while others are worked on.
template <class Op>
struct NormGradient {
  const NormInstance<Op>& c;
  Dim rows{"rows"};
  Tensor dout = input("dout", {rows, c.dim}, c.type), x = input("x", {rows, c.dim}, c.type);
  Tensor weight = c.weight ? input("weight", {c.dim}, *c.weight) : x;
  Tensor dx = output("dx", {rows, c.dim}, c.type);
  Tensor dweight = c.weight ? output("dweight", {c.dim}, f32) : dx;
  Tensor residual = adds_residual<Op> ? input("residual", {rows, c.dim}, c.type) : x;
  Tensor dresidual = adds_residual<Op> ? output("dresidual", {rows, c.dim}, c.type) : dx;
  Tensor dsum = adds_residual<Op> ? input("dsum", {rows, c.dim}, c.type) : dx;
  Tensor dbias = c.bias ? output("dbias", {c.dim}, f32) : dx;
  Expr eps = scalar("eps", f32), tiles = ceildiv(rows, c.rows);
  Expr blocks = min(tiles, resident_blocks());
  Tensor partials = c.weight ? workspace("parts", {blocks, c.dim}, f32) : dx;
  Tensor bias_partials = c.bias ? workspace("bias_parts", {blocks, c.dim}, f32) : dx;
  float share = 1.f / static_cast<float>(c.dim);

  bool is_read_again() const { return c.runs ? c.dim > longest_held_run : c.is_long() && !c.direct; }
  // Rows that come to registers at once are awaited: as many blocks as registers have room for wait at a
  // time. Of clusters of eight blocks there are half as many as processors, which is more than these have
  // room for, since it is not known how many that are; but at least one where there is one processor.
  Expr resident_blocks() const {
    constexpr int of_f32 = 4, short_tile = 1024, one_piece = 4096, few = 3;
    constexpr int resident = adds_residual<Op> ? 640 : is_centred<Op> ? 864 : 896;
    if (c.spread) return max(processors() / 2, 1);
    if (c.runs) return processors() * blocks_of_runs();
    if (!c.direct) return processors() * (c.is_long() ? 1 : norms_of_a_processor);
    if (c.type == f32) return processors() * of_f32;
    if (c.dim > one_piece) return processors();
    const bool has_three_pieces = c.dim < short_tile && c.rows * c.dim > short_tile;
    return processors() * (has_three_pieces ? few : std::max(1, resident / c.threads));
  }

  // As many blocks as registers have room for where threads hold what they have of a row.
  int blocks_of_runs() const {
    constexpr int registers = 64 << 10, each = 168;
    return is_read_again() ? 1 : std::max(1, registers / each / c.threads);
  }
  // A block that is alone has more rows on their way.
  int stages() const {
    constexpr int usual = 3, most = 6, bytes_on_their_way = 64 << 10;
    if (!c.runs || blocks_of_runs() > 1) return usual;
    return std::clamp(1 + bytes_on_their_way / (2 * c.dim * c.type.bytes()), usual, most);
  }

  // A tile of rows of all inputs, in shared memory.
  struct Inputs {
    Shared values, given;
    std::optional<Shared> added;
    Inputs(const NormGradient& n, const Expr& row)
        : values({n.c.rows, n.c.dim}, n.c.type), given({n.c.rows, n.c.dim}, n.c.type) {
      copy(n.x.at(row), values);
      copy(n.dout.at(row), given);
      if (!adds_residual<Op>) return;
      added.emplace(Shared({n.c.rows, n.c.dim}, n.c.type));
      copy(n.residual.at(row), *added);
    }
  };
  // Rows of a tensor, or of what shared memory has of it.
  Fragment rows_of(const Shared* brought, const Tensor& tensor, const Expr& row) const {
    if (!brought) return load(tensor.at(row), {c.rows, c.dim}, f32);
    Fragment result({c.rows, c.dim}, f32);
    copy(*brought, result);
    return result;
  }
  // What was normalised.
  Fragment normalised(const Inputs* from, const Expr& row) const {
    Fragment values = rows_of(from ? &from->values : nullptr, x, row);
    if (adds_residual<Op>) {
      Fragment added = rows_of(from ? &*from->added : nullptr, residual, row);
      parallel(values, [&](Index i, Index j) { values(i, j) = c.type(values(i, j) + added(i, j)); });
    }
    return values;
  }
  // The factors of the features, held by the block: of long rows in shared memory.
  struct Weights {
    std::optional<Shared> shared;
    std::optional<Fragment> registers;
    explicit Weights(const NormGradient& n) {
      const std::vector<int> features{n.c.dim};
      if (n.c.weight && n.is_read_again()) {
        shared.emplace(Shared({n.c.dim}, *n.c.weight));
        copy(n.weight.at(0), *shared);
      } else {
        registers.emplace(features, f32, Loc::current());
        fill(*registers, 1);
        if (n.c.weight) copy(n.weight.at(0), *registers);
      }
    }
    Fragment load() const { return clone(*registers); }
    Expr of(const Expr& j) const { return shared ? f32((*shared)(j)) : (*registers)(j); }
  };
  // A tile in registers. Elements of long rows are read from shared memory wherever they are needed, so that
  // the sums have the registers.
  struct Held {
    Fragment values, given, weights;
    Held(const NormGradient& n, const Inputs* from, const Expr& row, const Weights& of_block)
        : values(n.normalised(from, row)),
          given(n.rows_of(from ? &from->given : nullptr, n.dout, row)),
          weights(of_block.load()) {}
  };
  struct Operands {
    const NormGradient& n;
    const std::optional<Inputs>& from;
    const Weights& of_block;
    std::optional<Held> held = {};
    Expr value(const Expr& i, const Expr& j) const {
      if (held) return held->values(i, j);
      if (!adds_residual<Op>) return f32(from->values(i, j));
      return f32(n.c.type(f32(from->values(i, j)) + f32((*from->added)(i, j))));
    }
    Expr given(const Expr& i, const Expr& j) const {
      return held ? Expr(held->given(i, j)) : f32(from->given(i, j));
    }
    Expr weighted(const Expr& i, const Expr& j) const {
      return given(i, j) * (held ? Expr(held->weights(j)) : of_block.of(j));
    }
  };
  // The sum's gradient of long rows, for which shared memory has no room, is on its way meanwhile.
  std::optional<Fragment> sum_ahead(const Expr& row) const {
    if (!adds_residual<Op> || !is_read_again()) return std::nullopt;
    return load(dsum.at(row), {c.rows, c.dim});
  }
  void tile(const Expr& row, const Weights& weights, Fragment* sum, Fragment* bias_sum) const {
    std::optional<Inputs> from;
    if (!c.direct) from.emplace(*this, row);
    std::optional<Fragment> more = sum_ahead(row);
    Fragment mean({c.rows}, f32, 0), before({c.rows}, f32, 0), r({c.rows}, f32), along({c.rows}, f32);
    Operands own{*this, from, weights};
    std::optional<Fragment> formed;
    if (is_read_again())
      formed.emplace(std::vector<int>{c.rows, c.dim}, f32, Loc::current());
    else
      own.held.emplace(*this, from ? &*from : nullptr, row, weights);
    Fragment &values = formed ? *formed : own.held->values, &given = formed ? *formed : own.held->given;
    const auto value = [&](Index i, Index j) { return own.value(i, j); };
    const auto weighted = [&](Index i, Index j) { return own.weighted(i, j); };
    const auto less = [&](Index i, Index j) { return own.value(i, j) - mean(i); };
    if (is_centred<Op>) {
      Fragment all = formed ? map(values, value) : clone(values), g = map(given, weighted);
      reduce_sum(all, mean), reduce_sum(g, before);
      parallel(mean, [&](Index i) { mean(i) *= share, before(i) *= share; });
    }
    Fragment squares = map(values, [&](Index i, Index j) { return less(i, j) * less(i, j); });
    Fragment products = map(given, [&](Index i, Index j) { return weighted(i, j) * less(i, j); });
    clear(r), clear(along);
    reduce_sum(squares, r), reduce_sum(products, along);
    parallel(r, [&](Index i) {
      r(i) = rsqrt(r(i) * share + eps);
      along(i) *= share * r(i) * r(i);
    });
    if (bias_sum != nullptr)
      parallel(*bias_sum, [&](Index i, Index j) { (*bias_sum)(i, j) += own.given(i, j); });
    if (sum != nullptr)
      parallel(*sum, [&](Index i, Index j) { (*sum)(i, j) += own.given(i, j) * less(i, j) * r(i); });
    // The mean of one feature is that feature. A compiler may fuse the product with the difference: what
    // remains of g is then the rounding of its mean, and r of a row without deviation is large.
    const bool is_its_mean = is_centred<Op> && c.dim == 1;
    const auto gradient = [&](Index i, Index j) {
      if (is_its_mean) return r(i) * (0.f - less(i, j) * along(i));
      return r(i) * (weighted(i, j) - before(i) - less(i, j) * along(i));
    };
    store(row, more, values, gradient);
  }
  // The gradient of the rows; of a sum, with that of the sum itself, also as the residual's.
  template <class F>
  void store(const Expr& row, std::optional<Fragment>& more, Fragment& values, const F& gradient) const {
    if (adds_residual<Op>) {
      if (!more) more.emplace(load(dsum.at(row), {c.rows, c.dim}, f32));
      parallel(values, [&](Index i, Index j) { values(i, j) = gradient(i, j) + f32((*more)(i, j)); });
      copy(values, dresidual.at(row));
    } else {
      parallel(values, [&](Index i, Index j) { values(i, j) = gradient(i, j); });
    }
    if (is_read_again())
      copy(values.to(c.type), dx.at(row));
    else
      copy(values, dx.at(row));
  }
  void write() const {
    GridOptions options = c.spread ? options_of_held_rows(c.spread) : GridOptions{.threads = c.threads};
    if (c.runs && blocks_of_runs() > 1) options.blocks_per_processor = blocks_of_runs();
    grid(blocks, options, [&](Index block) {
      // Sums per row of tiles, which are added up at the end.
      std::optional<Fragment> sum, bias_sum;
      const std::vector<int> shape{c.rows, c.dim};
      if (c.weight) sum.emplace(shape, f32, Loc::current()), clear(*sum);
      if (c.bias) bias_sum.emplace(shape, f32, Loc::current()), clear(*bias_sum);
      const Weights weights(*this);
      pipelined(ceildiv(tiles - block, blocks), {.stages = stages()}, [&](Index step) {
        tile((block + step * blocks) * c.rows, weights, sum ? &*sum : nullptr,
             bias_sum ? &*bias_sum : nullptr);
      });
      if (sum) copy(reduce_sum(*sum, 0), partials.slice(block).at(0));
      if (bias_sum) copy(reduce_sum(*bias_sum, 0), bias_partials.slice(block).at(0));
    });
    add_partials_of_parameters(c, {partials, dweight}, {bias_partials, dbias},
                               c.partials.value_or(many_partials));
  }
};

}  // namespace

template <class Op>
Kernel norm_gradient_program(const NormInstance<Op>& c) {
  if (c.pieces) return long_norm_gradient_program(c);
  if (c.stays) return spread_norm_gradient_program(c);
  return kernel(norm_name(c, "_backward"), [&] { NormGradient<Op>{c}.write(); });
}

TEGULA_PROGRAMS_OF_NORMS(norm_program)
TEGULA_PROGRAMS_OF_NORMS(norm_gradient_program)

}  // namespace tegula::ops
