#include "tests/rows/rows.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  tegula::rows::register_tests();
  return RUN_ALL_TESTS();
}
