// The pages' examples that are parts of programs compile, and the first program of the README prints what it
// says.
#include "fragments.inc"

#include <gtest/gtest.h>

namespace {

TEST(PageFragments, ProgramOfTheReadmePrintsWhatItSays) {
  testing::internal::CaptureStdout();
  of_readme::main();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "c[0, 0] = 6.866\n");
}

}  // namespace
