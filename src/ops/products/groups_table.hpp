// Lines that the tables of products of groups share.
#pragma once
#include "ops/schema/schema.hpp"

namespace tegula::ops {

// Rows of all groups, one group after the other.
template <class Op>
void add_offsets(Schema<Op>& table) {
  table
      .in(&Op::offsets, "offsets", "groups+1", index,
          "first row of each group, and the end of the last group")
      .converts()
      .packs("m", "max_rows", "longest")
      .ends_early();
}

// Or as many rows for each group, of which some are used.
template <class Op>
void add_counts(Schema<Op>& table) {
  table.in(&Op::counts, "counts", "groups", index, "number of used rows of each group")
      .range("0", "m+1")
      .converts()
      .require(
          "counts", [](const Bound<Op>& c) { return !(c.has("counts") && c.has("offsets")); },
          "offsets or counts", "leave one of them out");
}

template <class Op>
void add_max_rows(Schema<Op>& table) {
  table.option(&Op::max_rows, "max_rows", "upper bound on the rows of a group, which the caller promises",
               between(0, 1 << 28, "a number of rows, or 0 where it is not known", "leave it out"));
}

}  // namespace tegula::ops
