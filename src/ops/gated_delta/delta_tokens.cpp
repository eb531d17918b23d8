#include "ops/gated_delta/delta_tokens.hpp"

namespace tegula::ops {

void run_delta_tokens(const BoundCall& c, Launch& launch, const RecurrentKernel& kernel) {
  launch(kernel, recurrent_kernel,
         {{"q", token_view(c, "q")},
          {"k", token_view(c, "k")},
          {"v", token_view(c, "v")},
          {"g", token_view(c, "g")},
          {"beta", token_view(c, "beta")},
          {"scale", c.real("scale")},
          {"out", token_view(c, "out")}});
}

void differentiate_delta_tokens(const BoundCall& c, Launch& launch, const RecurrentKernel& kernel) {
  const auto view = [&](const char* tensor) { return token_view(c, tensor); };
  launch(kernel, recurrent_gradients_kernel,
         {{"q", view("q")},
          {"k", view("k")},
          {"v", view("v")},
          {"g", view("g")},
          {"beta", view("beta")},
          {"scale", c.real("scale")},
          {"dout", view("dout")},
          {"dq", view("dq")},
          {"dk", view("dk")},
          {"dv", view("dv")},
          {"dbeta", view("dbeta")},
          {"dg", view("dg")}});
}

}  // namespace tegula::ops
