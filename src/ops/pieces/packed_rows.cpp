#include "ops/pieces/packed_rows.hpp"

#include <fmt/format.h>

#include "ops/pieces/plan.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

// Beside products and scores of bf16 by instructions, as blocks of 16 and 64 queries show on a Xeon.
constexpr std::int64_t rows_of_pairs = 55;

void note_packed_for_few_rows(std::int64_t rows, Launch& launch) {
  const BoundCall& call = launch.call();
  if (call.on_gpu()) return;
  const bool by_pairs = call.has("q") && multiplied_type(call["q"].dtype, false) == bf16;
  const std::int64_t worth_packing = by_pairs ? rows_of_pairs : static_cast<std::int64_t>(cpu_table.pack);
  if (rows >= worth_packing) return;
  launch.note([&] {
    return fmt::format(
        "plan: {} row{} of queries and heads share the keys of a step, and to pack these for products takes "
        "as long as products of {} rows; more heads of a group, or queries that see the same keys, are "
        "faster",
        rows, rows == 1 ? "" : "s", worth_packing);
  });
}

}  // namespace tegula::ops
