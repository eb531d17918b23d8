// Activations in programs and in formulas.
#pragma once
#include "ops/schema/instance.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops/products.hpp"

namespace tegula::ops {

template <>
[[gnu::visibility("hidden")]] inline constexpr std::array<std::string_view, 4> choice_names<Activation>{
    "none", "relu", "gelu", "silu"};

lang::Expr activate(Activation activation, const lang::Expr& x);
double activate(Activation activation, double x);

}  // namespace tegula::ops
