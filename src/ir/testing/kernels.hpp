// Small kernels by hand, for tests of the contract of the IR.
#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "ir/testing/nodes.hpp"
#include "ir/verify.hpp"
#include "tegula/error.hpp"

namespace tegula::ir::testing {

// Material for small kernels; a fresh one for each, because definitions are unique.
struct Material {
  VariablePtr N = named("N", VariableKind::dim), bx = named("bx"), i = named("i"), j = named("j"),
              v = named("v", VariableKind::let), x = named("x", VariableKind::let, f32),
              n = named("n", VariableKind::mutable_);
  BufferPtr A = tensor("A", f32, {variable(N), int32(8)}),
            C = tensor("C", f32, {variable(N), int32(8)}, Role::output);
  BufferPtr s = tile("s", Space::shared, f32, {8, 8}), f = tile("f", Space::fragment, f32, {8, 8}),
            h = tile("h", Space::shared, f16, {8, 8}), row = tile("row", Space::fragment, f32, {8});
  Expr zero = int32(0), one = constant(f32, 1), I = variable(i), yes = truth(true);

  Stmt declare(const BufferPtr& b) const { return st(Declare{b}); }
  Stmt store(const BufferPtr& b) const { return st(Store{element(b, {zero, zero}), one}); }
  Stmt loop(LoopKind kind, Body body) const {
    return st(For{kind, {i}, {zero}, {int32(8)}, 0, std::move(body)});
  }

  Kernel kernel(Body body) const {
    Kernel k;
    k.name = "test";
    k.dims = {{N, 1}};
    k.parameters = {{A, nullptr}, {C, nullptr}};
    k.grids = {{{bx}, {variable(N)}, {}, std::move(body), Loc::current()}};
    return k;
  }
};

struct Case {
  const char* rule;  // in the message; empty: the program is right
  std::function<Body(const Material& p)> body;
};

// What the verifier says; empty if it accepts the kernel.
inline std::string message_of(const Kernel& kernel) {
  try {
    verify(kernel);
  } catch (const InternalError& e) { return e.what(); }
  return "";
}

inline void expect_broken(const Kernel& kernel, const std::string& rule) {
  const std::string message = message_of(kernel);
  EXPECT_NE(message.find(rule), std::string::npos) << "wanted: " << rule << "\ngot: " << message;
}

}  // namespace tegula::ir::testing
