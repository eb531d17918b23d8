// A program whose one tile is made of rows of tensors, and the plan of the loop that makes it.
#pragma once
#include <gtest/gtest.h>

#include <functional>

#include "passes/cuda/plan_conversions.hpp"
#include "passes/cuda/testing/plans.hpp"

namespace tegula::passes::testing {

class ConvertedTile {
 public:
  using Element =
      std::function<lang::Expr(const lang::Index& block, const lang::Index& i, const lang::Index& d)>;

  // `declare` declares the inputs, and returns what elements [64, 128] of a block's tile are.
  explicit ConvertedTile(const std::function<Element()>& declare)
      : lowered_(lang::kernel("rows", [&] {
          const Element element = declare();
          lang::grid(lang::scalar("blocks", i32), [&](lang::Index block) {
            lang::Shared t({64, 128}, bf16);
            lang::parallel(t, [&](lang::Index i, lang::Index d) { t(i, d) = element(block, i, d); });
          });
        })) {}

  RowConversion plan() const {
    std::vector<RowConversion> found;
    for (const ir::Stmt& s : lowered_.body())
      if (const auto plan = plan_conversion(s)) found.push_back(*plan);
    EXPECT_EQ(found.size(), 1U);
    return found.at(0);
  }

 private:
  Lowered lowered_;
};

}  // namespace tegula::passes::testing
