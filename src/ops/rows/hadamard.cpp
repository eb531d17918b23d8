#include "tegula/ops/hadamard.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <optional>

#include "ops/pieces/row_tiles.hpp"
#include "ops/schema/gradient.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int longest_row = 32768;

// n = order · 2^k, with the order 1 where n is a power of two itself; 0 if it is none of these.
int order_of(std::int64_t n) {
  if (n < 1 || n > longest_row) return 0;
  for (const int order : {1, 12, 20, 28})
    if (n % order == 0 && ((n / order) & (n / order - 1)) == 0) return order;
  return 0;
}

bool is_square(int x, int prime) {
  for (int i = 1; i < prime; ++i)
    if (i * i % prime == x) return true;
  return false;
}
// 1 for squares modulo the prime, -1 for other numbers, 0 for 0.
int character(int x, int prime) {
  const int rest = ((x % prime) + prime) % prime;
  return rest == 0 ? 0 : is_square(rest, prime) ? 1 : -1;
}

struct HadamardInstance {
  DType type = f32;
  int n = 1, rows = 1;
  bool transposed = false, by_vectors = false;
  std::optional<int> blocks = {};  // of a processor
  std::optional<int> threads = {};
  auto fields() const {
    return std::tuple(type, n, rows, labelled("transposed", transposed), labelled("vectors", by_vectors),
                      labelled("blocks", blocks), labelled("threads", threads));
  }
  GridOptions options() const {
    return {.threads = threads.value_or(0), .blocks_per_processor = blocks.value_or(0)};
  }
  // Neighbours that lanes of vectors exchange.
  int first_stride() const { return std::min(lanes, n / order_of(n)); }
  static constexpr int lanes = 16;
  int padded_order() const { return static_cast<int>(std::bit_ceil(static_cast<unsigned>(order_of(n)))); }
  int padded() const { return n / order_of(n) * padded_order(); }
};

template <bool transposed>
HadamardInstance hadamard_plan(const Bound<Hadamard>& c) {
  const int n = c.small_dim("n"), rows = std::clamp(4096 / std::max(n, 1), 1, 64);
  HadamardInstance made{c.type("x"), n, rows_of_tile(c.on_gpu() ? whole_power(rows) : rows, n), transposed,
                        !c.on_gpu()};
  // Registers of two blocks for each processor.
  if (c.on_gpu() && order_of(n) > 1 && made.padded() == longest_row / 2) made.blocks = 2;
  // A thread has two neighbouring columns of a matrix, which it stores together.
  constexpr int elements = 64, fewest = 64;
  if (c.on_gpu() && order_of(n) > 1 && made.rows * made.padded() == elements * fewest) made.threads = fewest;
  return made;
}

// All sums of four numbers with signs, the first of them +: bit i is set where number i + 1 has a -.
std::vector<Expr> signed_sums(const std::vector<Expr>& of) {
  std::vector<Expr> result;
  const Var pairs[] = {of[0] + of[1], of[0] - of[1], of[2] + of[3], of[2] - of[3]};
  for (int signs = 0; signs < 8; ++signs) {
    const bool second = (signs & 1) != 0, third = (signs & 2) != 0, fourth = (signs & 4) != 0;
    const Expr left = pairs[second ? 1 : 0], right = pairs[third != fourth ? 3 : 2];
    const Var sum = third ? left - right : left + right;
    result.push_back(sum);
  }
  return result;
}

// Transforms the columns of rows viewed as matrices [order, columns], four elements at a time, whose sums the
// rows of signs share. `x` has rows as long as if the order were a power of two, so that registers can be
// exchanged.
template <class Tile>
void transform_columns(Tile& x, const HadamardInstance& c, int order) {
  const std::vector<std::vector<int>> signs = hadamard_signs(order);
  Tile matrices = x.reshape({c.rows, c.padded_order(), c.n / order});
  parallel(c.rows, c.n / order, [&](Index i, Index j) {
    std::deque<Var> sums;
    for (int first = 0; first < order; first += 4) {
      std::vector<Expr> given;
      for (int l = first; l < first + 4; ++l) given.push_back(matrices(i, l, j));
      const std::vector<Expr> all = signed_sums(given);
      for (int k = 0; k < order; ++k) {
        const auto is_negative = [&](int l) {
          return (c.transposed ? signs[first + l][k] : signs[k][first + l]) < 0;
        };
        int number = 0;
        for (int l = 1; l < 4; ++l) number |= (is_negative(l) != is_negative(0) ? 1 : 0) << (l - 1);
        if (first == 0)
          sums.emplace_back(is_negative(0) ? -all[number] : all[number]);
        else if (is_negative(0))
          sums[k] -= all[number];
        else
          sums[k] += all[number];
      }
    }
    for (int k = 0; k < order; ++k) matrices(i, k, j) = sums[k];
  });
}

template <class Tile>
void butterflies(Tile& x, const HadamardInstance& c, int stride) {
  Tile pairs = x.reshape({c.rows, c.padded() / (2 * stride), 2, stride});
  parallel(c.rows, c.padded() / (2 * stride), stride, [&](Index i, Index p, Index q) {
    Expr a = pairs(i, p, 0, q), b = pairs(i, p, 1, q);
    pairs(i, p, 0, q) = a + b;
    pairs(i, p, 1, q) = a - b;
  });
}

// Two steps at once, for vectors, whose loads and stores are most of the work.
template <class Tile>
void double_butterflies(Tile& x, const HadamardInstance& c, int stride) {
  Tile fours = x.reshape({c.rows, c.padded() / (4 * stride), 4, stride});
  parallel(c.rows, c.padded() / (4 * stride), stride, [&](Index i, Index p, Index q) {
    const Var a = fours(i, p, 0, q) + fours(i, p, 1, q), b = fours(i, p, 0, q) - fours(i, p, 1, q);
    const Var d = fours(i, p, 2, q) + fours(i, p, 3, q), e = fours(i, p, 2, q) - fours(i, p, 3, q);
    fours(i, p, 0, q) = a + d;
    fours(i, p, 1, q) = b + e;
    fours(i, p, 2, q) = a - d;
    fours(i, p, 3, q) = b - e;
  });
}

// Four steps at once, as far as registers hold the sixteen numbers.
template <class Tile>
void sixteen_butterflies(Tile& x, const HadamardInstance& c, int stride) {
  constexpr int count = 16;
  Tile all = x.reshape({c.rows, c.padded() / (count * stride), count, stride});
  parallel(c.rows, c.padded() / (count * stride), stride, [&](Index i, Index p, Index q) {
    std::vector<Expr> now;
    for (int k = 0; k < count; ++k) now.push_back(all(i, p, k, q));
    std::deque<Var> sums;
    for (int step = 1; step < count; step *= 2) {
      std::vector<Expr> next;
      for (int k = 0; k < count; ++k) {
        const Expr &a = now[k & ~step], &b = now[k | step];
        next.push_back(sums.emplace_back((k & step) == 0 ? a + b : a - b));
      }
      now.swap(next);
    }
    for (int k = 0; k < count; ++k) all(i, p, k, q) = now[k];
  });
}

// Neighbours within the lanes of a vector: each lane has the sum or the difference of its own number and that
// of a lane it exchanges with. Two steps at once where there are two.
void exchanges(const Shared& from, const Shared& to, const HadamardInstance& c, int stride, bool twice) {
  const int width = c.first_stride(), vectors = c.rows * c.padded() / width;
  Shared given = from.reshape({vectors, width}), sums = to.reshape({vectors, width});
  const auto sign = [](const Expr& j, int of) { return select((j & of) == 0, 1.f, -1.f); };
  parallel(sums, [&](Index i, Index j) {
    const Var own = given(i, j) * sign(j, stride) + given(i, j ^ stride);
    if (!twice) {
      sums(i, j) = own;
      return;
    }
    const Var other = given(i, j ^ (2 * stride)) * sign(j, stride) + given(i, j ^ (3 * stride));
    sums(i, j) = own * sign(j, 2 * stride) + other;
  });
}

// All steps of a row on a CPU.
void transform_vectors(Shared& values, const HadamardInstance& c) {
  const int length = c.n / order_of(c.n), width = c.first_stride();
  Shared other({c.rows, c.padded()}, f32);
  Shared *from = &values, *to = &other;
  for (int stride = 1; stride < width;) {
    const bool twice = 4 * stride <= width;
    exchanges(*from, *to, c, stride, twice);
    std::swap(from, to);
    stride *= twice ? 4 : 2;
  }
  if (from != &values) copy(other, values);
  int stride = width;
  for (; 16 * stride <= length; stride *= 16) sixteen_butterflies(values, c, stride);
  for (; 4 * stride <= length; stride *= 4) double_butterflies(values, c, stride);
  if (stride < length) butterflies(values, c, stride);
}

void transform(const HadamardInstance& c, const Tensor& x, const Tensor& out, const Expr& scale) {
  const int order = order_of(c.n);
  const auto rows = [&](const Expr& row, auto values, const auto& steps) {
    copy(x.at(row), values);
    steps(values);
    if (order > 1) transform_columns(values, c, order);
    parallel(values, [&](Index i, Index j) { values(i, j) *= scale; });
    copy(values, out.at(row));
  };
  grid(ceildiv(x.extent(0), c.rows), c.options(), [&](Index block) {
    const Expr row = block * c.rows;
    if (c.by_vectors)
      return rows(row, Shared({c.rows, c.padded()}, f32), [&](Shared& x) { transform_vectors(x, c); });
    rows(row, Fragment({c.rows, c.padded()}, f32), [&](Fragment& x) {
      for (int stride = 1; stride < c.n / order; stride *= 2) butterflies(x, c, stride);
    });
  });
}

Kernel hadamard_transform(const HadamardInstance& c) {
  return kernel(instance_name("hadamard", c), [&] {
    Dim rows("rows");
    Tensor x = input("x", {rows, c.n}, c.type), out = output("out", {rows, c.n}, c.type);
    transform(c, x, out, scalar("scale", f32));
  });
}

// The gradient depends on x in its shape alone.
Kernel hadamard_gradient(const HadamardInstance& c) {
  return kernel(instance_name("hadamard_backward", c), [&] {
    Dim rows("rows");
    Tensor dout = input("dout", {rows, c.n}, c.type), dx = output("dx", {rows, c.n}, c.type);
    transform(c, dout, dx, scalar("scale", f32));
  });
}

template <class E>
void hadamard_formula(const Bound<Hadamard>& c, E& exact) {
  using Number = typename E::Number;
  const std::int64_t n = c.dim("n");
  const int order = order_of(n);
  const auto powers = static_cast<std::size_t>(n / order);
  const std::vector<std::vector<int>> signs = hadamard_signs(order);
  auto *x = exact.data("x"), *out = exact.data("out");
  for (std::int64_t row = 0; row < c.dim("rows"); ++row, x += n, out += n) {
    std::vector<Number> values(x, x + n);
    for (std::size_t stride = 1; stride < powers; stride *= 2)
      for (std::size_t i = 0; i < values.size(); ++i)
        if (i % powers / stride % 2 == 0) {
          const Number a = values[i], b = values[i + stride];
          values[i] = a + b, values[i + stride] = a - b;
        }
    for (std::size_t j = 0; j < powers; ++j)
      for (int k = 0; k < order; ++k) {
        Number sum = 0;
        for (int l = 0; l < order; ++l) sum += values[l * powers + j] * signs[k][l];
        out[k * powers + j] = sum * c->scale;
      }
  }
}

bool is_length(const Bound<Hadamard>& c) { return order_of(c.dim("n")) != 0; }

}  // namespace

std::vector<std::vector<int>> hadamard_signs(int m) {
  if (m == 1) return {{1}};
  std::vector<std::vector<int>> signs(static_cast<std::size_t>(m),
                                      std::vector<int>(static_cast<std::size_t>(m)));
  if (m != 28) {
    // I + S with a skew S: a first row of 1, a first column of -1, and characters of differences.
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < m; ++j)
        signs[i][j] = i == 0 ? 1 : j == 0 ? -1 : i == j ? 1 : character(i - j, m - 1);
    return signs;
  }
  // Each element of a symmetric matrix of characters becomes two rows and two columns.
  constexpr int half = 14, prime = 13;
  constexpr int off[2][2] = {{1, 1}, {1, -1}}, diagonal[2][2] = {{1, -1}, {-1, -1}};
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < m; ++j) {
      const int a = i % half, b = j % half, own = a == 0 || b == 0 ? 1 : character(a - b, prime);
      signs[i][j] = a == b ? diagonal[i / half][j / half] : own * off[i / half][j / half];
    }
  return signs;
}

const OperatorSchema& hadamard_schema() {
  using Op = Hadamard;
  static const OperatorSchema table =
      Schema<Op>("hadamard", "Hadamard transforms of rows")
          .in(&Op::x, "x", "... n", floats, "rows")
          .option(&Op::scale, "scale", "factor of the result; 1/sqrt(n) makes the transform orthogonal",
                  finite)
          .out(&Op::out, "out", "... n", same_as("x"), "scale * (H_m x H_2^k) x, with n = m * 2^k")
          .require("x", is_length, "2^k, 12*2^k, 20*2^k or 28*2^k features, up to 32768", "pad the rows")
          .source("Sylvester 1867; Paley 1933, On Orthogonal Matrices")
          .gradient("hadamard_backward")
          .flops("30*rows*n")
          .examples({{"ragged", "...=37 n=64 scale=0.125"},
                     {"paley_12_bf16", "...=2,3 n=192 bf16"},
                     {"paley_20_f16", "...=3 n=40 f16"},
                     {"paley_28", "...=5 n=56 scale=-1"},
                     {"7168_bf16", "...=2 n=7168 bf16"}})
          .measured({{"16384x4096_bf16", "...=16384 n=4096 bf16"},
                     {"8192x8192_bf16", "...=8192 n=8192 bf16"},
                     {"2048x32768_bf16", "...=2048 n=32768 bf16"},
                     {"8192x7168_bf16", "...=8192 n=7168 bf16"}})
          .run(hadamard_plan<false>, hadamard_transform, hadamard_formula<Exact>);
  return table;
}

const OperatorSchema& hadamard_backward_schema() {
  return gradient_table<hadamard_plan<true>, hadamard_gradient, hadamard_formula<Traced>>(hadamard_schema(),
                                                                                          "30*rows*n");
}

}  // namespace tegula::ops
