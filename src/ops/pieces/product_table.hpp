// What is common to the instances and tables of operators that multiply matrices.
#pragma once
#include "ops/pieces/activation.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> choice_names<Precision>{
    "ieee", "tf32", "tf32x3"};

template <class Op>
void add_precision(Schema<Op>& table) {
  table.option(&Op::precision, "precision",
               "of products of f32: as they are, of operands rounded to tf32, or three such products");
}

template <class Op>
void add_activation(Schema<Op>& table) {
  table.option(&Op::activation, "activation", "applied to the sums; gelu is the tanh approximation");
}

inline const OptionRule any_factor{{}, {}, false, "a finite factor", "give 1 where there is none"};
template <class Op>
void add_factor(Schema<Op>& table) {
  table.option(&Op::scale, "scale", "factor of the product", any_factor);
}

template <>
struct FieldOf<GemmTiles> {
  static constexpr std::size_t words = 4, members = 1;
  static void key(const GemmTiles& t, std::int64_t* words) {
    words[0] = t.m, words[1] = t.n, words[2] = t.k, words[3] = t.splits;
  }
  static std::string name(const GemmTiles& t) {
    const std::string splits = t.splits > 1 ? fmt::format("_split{}", t.splits) : "";
    return fmt::format("_{}x{}x{}{}", t.m, t.n, t.k, splits);
  }
};

template <class Op>
void add_product_tiles(Schema<Op>& table) {
  const OptionRule extents =
      between(0, 4096, "extents from 1 to 4096, or 0 for the plan's choice", "leave them out");
  const OptionRule rule = between(0, 32, "1 to 32 splits, or 0 for the plan's choice", "leave it out");
  table.option(&Op::tiles, &GemmTiles::m, "tile_m", "rows of a tile; 0: planned", extents)
      .option(&Op::tiles, &GemmTiles::n, "tile_n", "columns of a tile; 0: planned", extents)
      .option(&Op::tiles, &GemmTiles::k, "tile_k", "inner extent of a tile; 0: planned", extents)
      .option(&Op::tiles, &GemmTiles::splits, "splits", "splits of k, which are added in order; 0: planned",
              rule);
}

}  // namespace tegula::ops
