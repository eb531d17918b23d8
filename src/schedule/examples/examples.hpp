// The schedules of the target texts in bench/targets, written by hand.
#pragma once
#include "schedule/build.hpp"

namespace tegula::schedule::examples {

struct GemmShape {
  int cluster = 2;
  int stages = 4;
  int stores = 2;  // buffers of the store ring
  int steps = 4;   // of 64 columns, that a tile is stored in
};
Schedule gemm(const GemmShape& shape);

}  // namespace tegula::schedule::examples
