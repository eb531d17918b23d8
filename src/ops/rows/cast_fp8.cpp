#include "tegula/ops/cast_fp8.hpp"

#include <algorithm>
#include <cmath>

#include "ops/pieces/kept_rows.hpp"
#include "ops/rows/cast_fp8_kernel.hpp"
#include "ops/rows/maps.hpp"
#include "ops/rows/row_notes.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

namespace {

constexpr int scaled_group = CastFp8Kernel::group;

// As much of a row as a tile has elements: bytes that stand beside each other. Little of the last tile of a
// row may be empty.
std::optional<int> columns_of_tile(std::int64_t features) {
  constexpr int share = 16;
  for (int columns = CastFp8Kernel::elements; columns > scaled_group; columns /= 2) {
    const std::int64_t idle = (features + columns - 1) / columns * columns - features;
    if (share * idle <= features) return columns;
  }
  return std::nullopt;
}
CastFp8Kernel cast_plan(const Bound<CastFp8>& c) {
  CastFp8Kernel made{c.type("x"), c->scaling, c->power_of_two, c.has("offsets")};
  // No piece of 16 bytes may be cut that a thread of a GPU copies.
  const bool whole_pieces = !c.on_gpu() || !ends_within_piece(c.dim("n"));
  if (made.scaling == Fp8Scaling::token && !made.of_groups && whole_pieces) {
    made.columns = columns_of_tile(c.dim("n"));
    made.by_elements = made.columns && !c.on_gpu();
  }
  // A tile of a whole group would be empty for the most part, and each of its rows would end within it.
  if (made.scaling != Fp8Scaling::tensor && !made.of_groups && c.dim("n") < scaled_group)
    made.narrow = c.small_dim("n");
  const TensorRef &x = c["x"], &out = c["out"];
  made.as_row = made.scaling == Fp8Scaling::tensor && is_contiguous(x) && is_contiguous(out) &&
                nelements(x) >= CastFp8Kernel::elements;
  if (made.as_row) made.columns = CastFp8Kernel::elements;
  return made;
}
void cast(const Bound<CastFp8>& c, Launch& launch) {
  const CastFp8Kernel kernel = cast_plan(c);
  if (!c.on_gpu() && kernel.scaling == Fp8Scaling::block)
    note_blocks_of_rows(launch, c.dim("n") * c.type("x").bytes());
  if (!kernel.as_row) return launch(kernel, cast_fp8_program);
  const std::int64_t all = nelements(c["x"]), rest = all % kernel.width();
  const auto part = [&](const char* name, std::int64_t begin, std::int64_t end) {
    return c[name].reshape({all}).slice(0, begin, end);
  };
  const auto tiles = [&](const char* name) {
    return part(name, 0, all - rest).reshape({all / kernel.width(), kernel.width()});
  };
  launch(kernel, cast_fp8_program,
         {{"elements", tiles("x")},
          {"rest", part("x", all - rest, all)},
          {"results", tiles("out")},
          {"rest_results", part("out", all - rest, all)}});
}
UncastFp8Kernel uncast_plan(const Bound<UncastFp8>& c) {
  return {c->scaling, c->out_dtype, c.has("offsets")};
}

// Where the elements and scales of row i of x stand in the results; -1: it is in no group.
struct RowPlaces {
  Fp8Scaling scaling;
  std::int64_t m, group_rows;
  const std::int32_t* offsets;  // of as many groups, or none
  std::int64_t groups;

  struct Place {
    std::int64_t out, scale;
  };
  Place of(std::int64_t b, std::int64_t i) const {
    const std::int64_t row = b * m + i, blocks = (m + scaled_group - 1) / scaled_group;
    if (scaling == Fp8Scaling::tensor) return {row, 0};
    if (!offsets) return {row, scaling == Fp8Scaling::token ? row : b * blocks + i / scaled_group};
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t own = i - offsets[g];
      if (i >= offsets[g + 1]) continue;
      if (scaling == Fp8Scaling::block) return {row, offsets[g] / scaled_group + g + own / scaled_group};
      return {g * group_rows + own, g * group_rows + own};
    }
    return {-1, -1};
  }
};

template <class Op>
RowPlaces places_of(const Bound<Op>& c, Exact& exact, std::int64_t group_rows) {
  const bool grouped = c.has("offsets");
  return {c->scaling, c.dim("m"), group_rows,
          grouped ? exact["offsets"].template data_as<std::int32_t>() : nullptr,
          grouped ? c.dim("groups") : 0};
}

// body(element of x, element of the result, scale)
template <class Op, class Body>
void each_element(const Bound<Op>& c, const RowPlaces& places, const Body& body) {
  const std::int64_t m = c.dim("m"), n = c.dim("n"), columns = (n + scaled_group - 1) / scaled_group;
  for (std::int64_t b = 0; b < c.dim("batch"); ++b)
    for (std::int64_t i = 0; i < m; ++i) {
      const auto [out, scale] = places.of(b, i);
      if (out < 0) continue;
      for (std::int64_t j = 0; j < n; ++j)
        body((b * m + i) * n + j, out * n + j,
             places.scaling == Fp8Scaling::tensor ? 0 : scale * columns + j / scaled_group);
    }
}

void cast_formula(const Bound<CastFp8>& c, Exact& exact) {
  const RowPlaces places = places_of(c, exact, c->group_rows);
  const double* x = exact.data("x");
  double *out = exact.data("out"), *scale = exact.data("scale");
  const std::int64_t scales = exact["scale"].nelements();
  // Rows of no group, and blocks that a group does not have, are not written.
  if (places.offsets && c->scaling == Fp8Scaling::block) {
    std::fill(out, out + exact["out"].nelements(), Exact::unspecified());
    std::fill(scale, scale + scales, Exact::unspecified());
  }
  each_element(c, places, [&](std::int64_t from, std::int64_t, std::int64_t own) {
    const double before = Exact::is_unspecified(scale[own]) ? 0 : scale[own];
    scale[own] = std::max(before, std::abs(x[from]));
  });
  for (std::int64_t i = 0; i < scales; ++i)
    if (!Exact::is_unspecified(scale[i])) scale[i] = exact_fp8_scale(scale[i], c->power_of_two);
  each_element(c, places, [&](std::int64_t from, std::int64_t to, std::int64_t own) {
    out[to] = exact.rounded(x[from] / scale[own]);
  });
}

void uncast_formula(const Bound<UncastFp8>& c, Exact& exact) {
  const RowPlaces places = places_of(c, exact, 0);
  const double *x = exact.data("x"), *scale = exact.data("scale");
  double* out = exact.data("out");
  if (places.offsets) std::fill(out, out + exact["out"].nelements(), Exact::unspecified());
  each_element(c, places,
               [&](std::int64_t from, std::int64_t to, std::int64_t own) { out[to] = x[from] * scale[own]; });
}

constexpr const char* offsets_meaning =
    "first row of each group, and the end of the last group: no scale belongs to two of them";
constexpr const char* scale_dims =
    "scaling=tensor ? 1 : scaling=token ? [batch] m ceildiv(n,128) : "
    "offsets ? m/128+groups ceildiv(n,128) : [batch] ceildiv(m,128) ceildiv(n,128)";
constexpr const char* cast_scale_dims =
    "scaling=tensor ? 1 : group_rows>0 ? groups group_rows ceildiv(n,128) : "
    "scaling=token ? [batch] m ceildiv(n,128) : offsets ? m/128+groups ceildiv(n,128) : "
    "[batch] ceildiv(m,128) ceildiv(n,128)";

// A group has scales of its own, or rows.
bool takes_offsets(const Bound<CastFp8>& c) {
  return !c.has("offsets") || c->scaling == Fp8Scaling::block || c->group_rows > 0;
}
bool takes_group_rows(const Bound<CastFp8>& c) {
  return c->group_rows == 0 || (c.has("offsets") && c->scaling == Fp8Scaling::token);
}
bool gives_offsets_of_blocks(const Bound<UncastFp8>& c) {
  return !c.has("offsets") || (c.dim("batch") == 1 && c->scaling == Fp8Scaling::block);
}

std::vector<Example> cast_examples() {
  return {{"token", "m=37 n=300"},
          {"narrow", "batch=2 m=300 n=20"},
          {"narrow_blocks_bf16", "m=300 n=8 bf16 scaling=block"},
          {"block_bf16", "batch=2 m=130 n=140 bf16 scaling=block power_of_two"},
          {"tensor_f16", "m=33 n=129 f16 scaling=tensor"},
          {"wide_bf16", "m=5 n=8200 bf16"},
          {"groups", "m=300 n=140 scaling=block offsets groups=4"},
          {"padded_groups_bf16", "m=70 n=140 bf16 offsets groups=3 group_rows=128 power_of_two"}};
}

std::vector<Example> cast_measured() {
  return {{"16384x4096_bf16", "m=16384 n=4096 bf16"},
          {"4096x16384_bf16", "m=4096 n=16384 bf16 power_of_two"},
          {"block_16384x4096_bf16", "m=16384 n=4096 bf16 scaling=block"},
          {"tensor_16384x4096_bf16", "m=16384 n=4096 bf16 scaling=tensor"},
          {"groups_16384x4096_bf16", "m=16384 n=4096 bf16 scaling=block offsets groups=64"}};
}

}  // namespace

const OperatorSchema& cast_fp8_schema() {
  using Op = CastFp8;
  static const OperatorSchema table =
      Schema<Op>("cast_fp8", "casts to e4m3 with scales of 128 features, of 128 x 128 blocks or of a tensor")
          .in(&Op::x, "x", "[batch] m n", floats, "tokens or weights by features")
          .in(&Op::offsets, "offsets", "groups+1", index, offsets_meaning)
          .converts()
          .packs("m", "group_rows", "longest")
          .ends_early()
          .option(&Op::scaling, "scaling", "what each scale belongs to")
          .option(&Op::power_of_two, "power_of_two", "scales are rounded up to powers of two")
          .option(&Op::group_rows, "group_rows",
                  "rows of each group in the result [groups, group_rows, n], zeros after those it has",
                  between(0, 1 << 28, "a number of rows, or 0 where the result is as x"))
          .require("offsets", "offsets ? batch==1 : 1", "x without a batch", "call once for each matrix")
          .require("offsets", takes_offsets, "scaling=block or group_rows: groups share no scale of tokens",
                   "leave offsets out")
          .require("group_rows", takes_group_rows, "offsets and scaling=token", "leave group_rows out")
          .out(&Op::out, "out", "group_rows>0 ? groups group_rows n : [batch] m n", is(e4m3), "x / scale")
          .out(&Op::scale, "scale", cast_scale_dims, is(f32),
               "the largest magnitude / 448, at least 2^-126; block i of group g has row "
               "offsets[g] / 128 + g + i")
          .source("Micikevicius et al. 2022, FP8 Formats for Deep Learning; the scaling of DeepSeek-V3")
          .no_gradient("it rounds")
          .flops("4*batch*m*n")
          .examples(cast_examples())
          .measured(cast_measured())
          .maps(row_maps({.rows = "m",
                          .width = "n",
                          .kinds = {"", "scaling=block", "scaling=tensor", "power_of_two", "f32"}}))
          .run(cast, cast_formula);
  return table;
}

const OperatorSchema& uncast_fp8_schema() {
  using Op = UncastFp8;
  static const OperatorSchema table =
      Schema<Op>("uncast_fp8", "converts e4m3 back, times the scales of cast_fp8")
          .in(&Op::x, "x", "[batch] m n", is(e4m3), "the values that cast_fp8 returns")
          .in(&Op::scale, "scale", scale_dims, is(f32), "their scales")
          .in(&Op::offsets, "offsets", "groups+1", index, offsets_meaning)
          .converts()
          .packs("m")
          .ends_early()
          .option(&Op::scaling, "scaling", "what each scale belongs to")
          .require("offsets", gives_offsets_of_blocks, "x without a batch and scaling=block",
                   "leave offsets out")
          .option(&Op::out_dtype, "out_dtype", "dtype of the result")
          .out(&Op::out, "out", "[batch] m n", chosen_by("out_dtype", {f32, f16, bf16}, "x", f32),
               "x * scale")
          .source("the inverse of cast_fp8")
          .no_gradient("what it takes was rounded")
          .flops("batch*m*n")
          .examples({{"token", "m=37 n=300"},
                     {"block_bf16", "batch=2 m=130 n=140 scaling=block out_dtype=bf16"},
                     {"tensor_f16", "m=33 n=129 scaling=tensor out_dtype=f16"},
                     {"groups", "m=300 n=140 scaling=block offsets groups=4"}})
          .measured({{"16384x4096_bf16", "m=16384 n=4096 out_dtype=bf16"}})
          .run(uncast_plan, uncast_fp8_program, uncast_formula);
  return table;
}

}  // namespace tegula::ops
