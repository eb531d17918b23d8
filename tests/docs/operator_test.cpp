// The operator of docs/adding-an-operator.md.
#include <gtest/gtest.h>

#include "ops/schema/judge.hpp"
#include "ops/testing/operators.hpp"

#undef assert
#define assert(condition) EXPECT_TRUE(condition)
#include "adding-an-operator.inc"

namespace {

TEST(OperatorPage, AgreesWithItsFormula) {
  for (const tegula::Target target : tegula::ops::test_targets()) {
    tegula::ops::look_at_swiglu(target);
    tegula::ops::look_at_its_gradient(target);
  }
}

TEST(OperatorPage, RefusalsAreAsShown) { tegula::ops::see_a_refusal(); }

}  // namespace
