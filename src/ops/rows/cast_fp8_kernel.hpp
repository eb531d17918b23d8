// The programs of casts to e4m3 and back.
#pragma once
#include "ops/pieces/row_tiles.hpp"
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops/cast_fp8.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 3> choice_names<Fp8Scaling>{
    "token", "block", "tensor"};

struct CastFp8Kernel {
  DType type = f32;
  Fp8Scaling scaling = Fp8Scaling::token;
  bool power_of_two = false, of_groups = false;
  std::optional<int> columns = {};  // features of a tile of tokens, if several groups
  bool by_elements = false;         // its elements are read and written one by one, as loops of a CPU do best
  bool as_row = false;              // one scale, of elements that follow each other in memory
  std::optional<int> narrow = {};   // features of rows that are shorter than a group
  auto fields() const {
    return std::tuple(type, scaling, labelled("power_of_two", power_of_two), labelled("groups", of_groups),
                      labelled("columns", columns), labelled("elements", by_elements),
                      labelled("row", as_row), labelled("narrow", narrow));
  }
  static constexpr int group = 128, elements = 4096;
  int width() const { return narrow.value_or(columns.value_or(group)); }
  int rows() const { return scaling == Fp8Scaling::block ? group : whole_power(elements / width()); }
};
// The scale of numbers whose largest magnitude is this, as a program and as a formula have it.
lang::Expr fp8_scale(const lang::Expr& magnitude, bool power_of_two);
double exact_fp8_scale(double magnitude, bool power_of_two);

// Arguments: x and out [batch, m, n], and scale, with one for every group of features of a row, for every
// block, or one. Of groups also their offsets; tokens then go to out [groups, rows of a group, n]. As a row,
// in place of x and out `elements` and `results` [tiles, elements of one], and what is left, `rest` and
// `rest_results`.
lang::Kernel cast_fp8_program(const CastFp8Kernel& instance);

// The other way.
struct UncastFp8Kernel {
  Fp8Scaling scaling = Fp8Scaling::token;
  DType out = f32;
  bool of_groups = false;
  auto fields() const { return std::tuple(scaling, out, labelled("groups", of_groups)); }
};
lang::Kernel uncast_fp8_program(const UncastFp8Kernel& instance);

}  // namespace tegula::ops
