// The programs of gated linear units, for operators that have one between two products.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops/gated_units.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 4> choice_names<GatedUnit>{
    "silu", "gelu", "relu", "swiglu_oai"};

inline constexpr float root_of_gelu = 0.7978845608028654f, cube_of_gelu = 0.044715f;  // √(2/π)

struct GatedUnitKernel {
  DType type = f32;
  GatedUnit unit = GatedUnit::silu;
  bool interleaved = false;     // a gate and its value stand side by side
  int rows = 8, columns = 256;  // of a tile
  int multiple = 1;             // what d is a multiple of: then halves begin where pieces of 16 bytes do
  auto fields() const {
    return std::tuple(type, unit, labelled("interleaved", interleaved), joined("t", rows, columns),
                      labelled("m", multiple));
  }
};

GatedUnitKernel planned_unit(DType type, GatedUnit unit, bool interleaved, std::int64_t d);
// Arguments: x [rows, 2 d], out [rows, d] and the scalars alpha and limit of swiglu_oai.
lang::Kernel gated_unit_program(const GatedUnitKernel& instance);
// Arguments: dout [rows, d], x and dx [rows, 2 d], and the same scalars.
lang::Kernel gated_unit_gradient(const GatedUnitKernel& instance);

}  // namespace tegula::ops
