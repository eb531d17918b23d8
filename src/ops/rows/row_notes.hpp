// What plans say of rows that no choice of theirs makes as fast as others.
#pragma once
#include <fmt/format.h>

#include "ops/schema/launch.hpp"

namespace tegula::ops {

// Their rows begin off 16 bytes, where asynchronous copies do not begin either.
inline void note_rows_in_registers(Launch& launch, std::int64_t elements) {
  launch.note([&] {
    return fmt::format(
        "plan: rows of {} elements begin off 16 bytes, so that threads load and shift words of them, and no "
        "row "
        "is on its way while the sums of another are formed",
        elements);
  });
}
// No block or cluster holds a row with the sums of its features.
inline void note_rows_read_twice(Launch& launch, std::int64_t elements) {
  launch.note([&] {
    return fmt::format(
        "plan: rows of {} elements are read twice, for their own sums and for those of features", elements);
  });
}

}  // namespace tegula::ops
