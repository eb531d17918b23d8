#include "ops/pieces/packed_rows.hpp"

#include <fmt/format.h>

#include "ops/pieces/plan.hpp"

namespace tegula::ops {

void note_packed_for_few_rows(std::int64_t rows, Launch& launch) {
  constexpr auto worth_packing = static_cast<std::int64_t>(cpu_table.pack);
  if (launch.call().on_gpu() || rows >= worth_packing) return;
  launch.note([&] {
    return fmt::format(
        "plan: {} row{} of queries and heads share the keys of a step, and to pack these for products takes "
        "as long as products of {} rows; more heads of a group, or queries that see the same keys, are "
        "faster",
        rows, rows == 1 ? "" : "s", worth_packing);
  });
}

}  // namespace tegula::ops
