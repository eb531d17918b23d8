// Lines of rivals as the tables of a GPU read them.
#include "tools/gpu_rivals.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace tegula::tool {
namespace {

TEST(GpuRivals, AreTheLinesWithATime) {
  std::istringstream lines(
      "a warning\n"
      R"({"workload": "one", "ms": 2.5, "tflops": 600.0})"
      "\n"
      R"({"workload": "two", "failure": "refused"})"
      "\n[1, 2]\n");
  const GpuRivals rivals = read_gpu_rivals(lines);
  ASSERT_EQ(rivals.size(), 1U);
  EXPECT_EQ(rivals.at("one").ms, 2.5);
  EXPECT_EQ(rivals.at("one").tflops, 600);
}

}  // namespace
}  // namespace tegula::tool
