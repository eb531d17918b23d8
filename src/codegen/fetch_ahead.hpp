// Which memory the products of a pipelined loop prefetch into the cache: what the copies after them read, in
// the same iteration or the next one.
#pragma once
#include <unordered_map>
#include <vector>

#include "ir/ir.hpp"

namespace tegula::codegen {

struct FetchAhead {
  ir::Body definitions;  // of what the address depends on, to stand before it
  ir::View from;
  std::int64_t rows, columns;
  ir::Stmt copy = nullptr;
  ir::Expr step = nullptr;  // of the loop, in which the copy is made
  ir::Expr more = nullptr;  // of the next iteration: whether there is one; null for this iteration
  std::size_t place = 0;    // of the next iteration: among the products that fetch for it, from the last on
};

// More would push what the product itself needs out of the second-level cache.
inline constexpr std::int64_t most_fetched_bytes = 64 * 1024;
// Whether a copy brings a matrix of a tensor, of no more bytes.
bool is_fetchable(const ir::Copy& copy);

// Keyed by the statement of the product.
using FetchesAhead = std::unordered_map<const ir::StmtNode*, FetchAhead>;
FetchesAhead fetches_ahead(const ir::For& loop);

// The tiles that the statements copy to tensors, the largest first.
std::vector<FetchAhead> results_of(const ir::Body& body);

}  // namespace tegula::codegen
