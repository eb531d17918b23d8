// Requirements of products with 8-bit, 4-bit and 2-bit weights.
#pragma once
#include <string>

#include "ops/quantised_gemm/weights.hpp"
#include "ops/schema/schema.hpp"

namespace tegula::ops {

// `block` is the option that says how many weights have one scale, `name` its name; `name`s is the dim of
// scales.
template <auto block, class Op>
void add_weight_rules(Schema<Op>& table, const std::string& name) {
  const std::string count = name + "s == ceildiv(k,of_scale)", such = "give scales of such " + name + "s";
  const std::string each = "a scale for every " + name + " of {of_scale} weights", check = "check " + name;
  table
      .require(
          "b", [](const Bound<Op>& c) { return (c->format == WeightFormat::int8) == (c.type("b") == i8); },
          "i8 for int8, u8 for weights of 4 and 2 bits", "check the format")
      .require("a", "format=int8 ? 1 : (format=ternary ? k%4 == 0 : k%2 == 0)", "weights that fill bytes",
               "add columns of zeros")
      .require(
          "scales", [](const Bound<Op>& c) { return scales_fit(c->format, c.type("scales")); },
          "u8 for mxfp4, e4m3 for nvfp4, f16, bf16 or f32 else", "check the format")
      .require(
          name.c_str(), [](const Bound<Op>& c) { return group_fits(c->format, c.operator->()->*block); },
          "0, 16, 32 or a multiple of 64", such.c_str())
      .require("scales", count.c_str(), each.c_str(), (check + " and format").c_str())
      .require(
          "zeros", [](const Bound<Op>& c) { return !c.has("zeros") || !is_e2m1(c->format); },
          "no zeros: these weights are floats", "leave them out")
      .require(
          "b",
          [](const Bound<Op>& c) { return !c->packed || (bits_of(c->format) == 4 && c.dim("k") % 64 == 0); },
          "4 bits, and a multiple of 64 weights in a row", "leave packed out, or add columns of zeros");
}

}  // namespace tegula::ops
