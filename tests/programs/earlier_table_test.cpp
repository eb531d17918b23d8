// Pages of programs beside each other: rows are found by name, and only those that differ are shown.
#include "tests/programs/earlier_table.hpp"

#include <gtest/gtest.h>

namespace programs {
namespace {

std::string page(const std::string& rows) {
  return "# Programs\n\n| program | form |\n|---|---|\n| `no` | row |\n\n### gemm\n\n"
         "| program | form | roles | rings | products | threads x registers | spilled bytes | NVRTC s | notes |\n"
         "|---|---|---|---|---|---|---|---|---|\n" +
         rows;
}

TEST(EarlierTable, ShowsRowsThatDiffer) {
  const Table before = read_table(page("| `a` | small | yes | 2 x 16 KB | wgmma, 1 x 1 | 128 x 90 | **8** | 1.00 | stages |\n"
                                       "|  |  | no |  |  | 128 x 32 |  |  |  |\n"
                                       "| `b` | small | no |  |  | 128 x 32 |  | 0.50 |  |\n")),
              now = read_table(page("| `a` | small | yes | 4 x 16 KB | wgmma, 1 x 1 | 128 x 96 |  | 0.40 |  |\n"
                                    "|  |  | no |  |  | 128 x 32 |  |  |  |\n"
                                    "| `b` | small | no |  |  | 128 x 40 |  | 0.20 |  |\n"
                                    "| `c` | small | no |  |  | 128 x 40 |  | 0.20 |  |\n"));
  EXPECT_EQ(before.size(), 2u);
  EXPECT_EQ(side_by_side(before, now),
            "| program | form | roles | rings | products | threads x registers | spilled bytes | NVRTC s | notes |\n"
            "|---|---|---|---|---|---|---|---|---|\n"
            "| `a` | small | yes | 2 x 16 KB → 4 x 16 KB | wgmma, 1 x 1 | 128 x 90 → 128 x 96 | **8** → none | "
            "1.00 → 0.40 | stages → none |\n"
            "|  |  | no |  |  | 128 x 32 |  |  |  |\n");
}

TEST(EarlierTable, IsEmptyWhereNothingDiffers) {
  const Table table = read_table(page("| `a` | small | no |  |  | 128 x 40 |  | 0.20 |  |\n"));
  EXPECT_EQ(side_by_side(table, table), "");
}

}  // namespace
}  // namespace programs
