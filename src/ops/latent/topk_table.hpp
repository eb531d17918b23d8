// What the tables of choices of the largest scores share.
#pragma once
#include <span>

#include "ops/latent/topk_kernel.hpp"
#include "ops/schema/schema.hpp"
#include "tegula/ops/indexer.hpp"

namespace tegula::ops {

inline constexpr std::int64_t most_chosen = 4096;
inline const OptionRule number_chosen = between(0, most_chosen, "a number from 0 to 4096", "choose fewer");

template <class Op>
void add_count(Schema<Op>& table) {
  table
      .in(&Op::page_table, "page_table", "[batch] pages", index,
          "if given, results are rows of a paged cache: column c is in page page_table[c / page_size]")
      .converts()
      .range("-1", "100")
      .remedy("give every batch a row of pages")
      .option(&Op::count, "count", "columns of a row", number_chosen)
      .needed()
      .option(&Op::page_size, "page_size", "columns of a page", block_size);
}

// What stands for columns in the formula of a result.
struct PageTable {
  std::span<const std::int32_t> table;
  bool is_given = false;
  std::int64_t size = 1;

  PageTable() = default;
  PageTable(const BoundCall& c, Exact& exact, std::int64_t batch, std::int64_t page_size);
  std::int32_t placed(std::int64_t column) const;
};

// The columns of the largest of scores[begin … end − 1], ascending, and -1 after them.
void write_largest(const double* scores, std::int64_t begin, std::int64_t end, std::span<std::int32_t> out,
                   const PageTable& pages);

}  // namespace tegula::ops
