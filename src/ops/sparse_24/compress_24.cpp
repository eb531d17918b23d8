#include <cmath>

#include "ops/schema/functions.hpp"
#include "ops/schema/schema.hpp"
#include "ops/sparse_24/codes.hpp"
#include "tegula/ops/gemm_24.hpp"

namespace tegula::ops {

namespace {

using namespace lang;
using lang::Tensor;

constexpr int group = 4, of_byte = 8;  // elements that two stand for, and that a byte of metadata tells of

struct CompressInstance {
  DType type = bf16;
  int rows = 16, columns = 256;  // of a tile
  auto fields() const { return std::tuple(type, joined("t", rows, columns)); }
};

// Which two of four elements stay.
struct Kept {
  Expr first, second;
};
Kept kept(const Expr (&magnitude)[group]) {
  const auto comes_before = [&](int other, int e) {
    return select(other < e ? magnitude[other] >= magnitude[e] : magnitude[other] > magnitude[e], 1, 0);
  };
  const auto rank = [&](int e) {
    return comes_before(e == 0 ? 1 : 0, e) + comes_before(e <= 1 ? 2 : 1, e) +
           comes_before(e <= 2 ? 3 : 2, e);
  };
  const auto stays = [&](int e) { return rank(e) < 2; };
  return {select(stays(0), 0, select(stays(1), 1, 2)), select(stays(3), 3, select(stays(2), 2, 1))};
}

Kernel compress_program(const CompressInstance& c) {
  return kernel(instance_name("compress_24", c), [&] {
    Dim m("m"), k("k");
    Tensor a = input("a", {m, k}, c.type), values = output("values", {m, k / 2}, c.type);
    Tensor metadata = output("metadata", {m, k / of_byte}, u8);
    grid(ceildiv(k, c.columns), ceildiv(m, c.rows), [&](Index x, Index y) {
      Shared from({c.rows, c.columns}, c.type), left({c.rows, c.columns / 2}, c.type);
      Shared codes({c.rows, c.columns / of_byte}, u8);
      copy(a.at(y * c.rows, x * c.columns), from);
      parallel(c.rows, c.columns / of_byte, [&](Index i, Index j) {
        // Stores the values of the four elements of a half and returns their code.
        const auto half = [&](int h) -> Expr {
          const auto element = [&](int e) { return Expr(from(i, j * of_byte + (h * group + e))); };
          const auto magnitude = [&](const Expr& e) { return abs(c.type == i8 ? i32(e) : f32(e)); };
          const Expr x[group] = {element(0), element(1), element(2), element(3)};
          const Kept own = kept({magnitude(x[0]), magnitude(x[1]), magnitude(x[2]), magnitude(x[3])});
          left(i, j * group + 2 * h) = select(own.first == 0, x[0], select(own.first == 1, x[1], x[2]));
          left(i, j * group + (2 * h + 1)) =
              select(own.second == 3, x[3], select(own.second == 2, x[2], x[1]));
          return own.first + own.second * 4;
        };
        codes(i, j) = half(0) + half(1) * 16;
      });
      copy(left, values.at(y * c.rows, x * (c.columns / 2)));
      copy(codes, metadata.at(y * c.rows, x * (c.columns / of_byte)));
    });
  });
}

CompressInstance compress_plan(const Bound<Compress24>& c) {
  CompressInstance t{.type = c.type("a")};
  if (c.on_gpu() && c.dim("k") >= 1024) t.columns = 512;
  return t;
}

void formula(const Bound<Compress24>& c, Exact& exact) {
  const std::int64_t m = c.dim("m"), k = c.dim("k");
  const tegula::Tensor a = exact["a"].to(f64), &values = exact["values"], &metadata = exact["metadata"];
  const bool integers = c.type("a") == i8;
  auto* codes = metadata.data_as<std::uint8_t>();
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t q = 0; q < k / group; ++q) {
      double x[group];
      for (int e = 0; e < group; ++e) x[e] = a.data_as<double>()[i * k + group * q + e];
      int first = -1, second = -1;
      for (int e = 0; e < group; ++e) {
        int before = 0;
        for (int other = 0; other < group; ++other)
          before += other < e ? std::abs(x[other]) >= std::abs(x[e]) : std::abs(x[other]) > std::abs(x[e]);
        if (before < 2) (first < 0 ? first : second) = e;
      }
      const std::int64_t at = i * (k / 2) + 2 * q;
      for (const auto& [place, e] : {std::pair(at, first), {at + 1, second}}) {
        if (integers)
          values.data_as<std::int8_t>()[place] = static_cast<std::int8_t>(x[e]);
        else
          values.data_as<double>()[place] = x[e];
      }
      const int code = first | second << 2, shift = static_cast<int>(q % 2 * group);
      std::uint8_t& byte = codes[i * (k / of_byte) + q / 2];
      byte = static_cast<std::uint8_t>(byte | code << shift);
    }
}

}  // namespace

const OperatorSchema& compress_24_schema() {
  static const OperatorSchema table =
      Schema<Compress24>("compress_24", "the two elements of largest magnitude of each four along rows")
          .in(&Compress24::a, "a", "m k", types_of_24, "the matrix")
          .out(&Compress24::values, "values", "m k/2", same_as("a"), "the elements that are kept")
          .out(&Compress24::metadata, "metadata", "m k/8", is(u8),
               "positions of the values, four bits for every two")
          .require("a", "k%8 == 0", "a multiple of 8 columns", "pad rows with zeros")
          .source("Mishra et al. 2021, Accelerating Sparse Deep Neural Networks")
          .no_gradient("its metadata are integers")
          .flops("6*m*k")
          .examples({{"ragged_f16", "m=37 k=104 f16"},
                     {"bf16", "m=20 k=1032 bf16"},
                     {"e4m3", "m=18 k=272 e4m3"},
                     {"i8", "m=5 k=264 i8"}})
          .measured({{"8192_bf16", "m=8192 k=8192 bf16"}})
          .run(compress_plan, compress_program, formula);
  return table;
}

}  // namespace tegula::ops
