// What the tables of the indexer share.
#pragma once
#include "ops/schema/schema.hpp"
#include "tegula/ops/indexer.hpp"

namespace tegula::ops {

struct Indexer : IndexerOptions {
  TensorRef q = {}, k = {}, weights = {};
};
struct IndexerBackward : IndexerOptions, IndexerBackwardOptions {
  TensorRef dlogits = {}, q = {}, k = {}, weights = {};
};

// What holds for the indexer, wherever its keys are.
template <class Op>
void add_indexer_rules(Schema<Op>& table) {
  table.option(&Op::causal, "causal", "hides later keys; the last query is aligned with the last key")
      .require("q", "1 <= heads & heads <= 128", "1 to 128 heads", "add up the logits of several calls")
      .require("q", "1 <= d & d <= 256", "1 to 256 features", "split the features");
}

// q, k, weights, and what a query sees.
template <class Op>
void add_indexer(Schema<Op>& table, TypeRule types) {
  table.in(&Op::q, "q", "[batch] queries heads d", std::move(types), "queries")
      .in(&Op::k, "k", "[batch] keys d", same_as("q"), "keys, which all heads share")
      .remedy("give it the batch and the features of q")
      .in(&Op::weights, "weights", "[batch] queries heads", floats, "weights of the heads of each query")
      .remedy("give every head of a query one")
      .in(&Op::k_scales, "k_scales", "[batch] keys", is(f32), "factors of the keys' logits")
      .remedy("give every key one")
      .in(&Op::begins, "begins", "[batch] queries", index, "the first key that a query sees; 0 if omitted")
      .converts()
      .range("0-keys/4", "keys/2+1")
      .remedy("give every query one")
      .in(&Op::ends, "ends", "[batch] queries", index,
          "one past the last key that a query sees; `keys` if omitted")
      .converts()
      .range("keys/4", "keys+4")
      .remedy("give every query one")
      .with(add_indexer_rules<Op>);
}

// One batch entry: q [queries, heads, d], k [keys, d], weights [queries, heads]; begin and end of a query's
// keys.
struct IndexerRows {
  std::int64_t b = 0;
  ArrayOf<double> q, k, weights;
  const double* scales = nullptr;
  bool of_8_bits = false;  // products are those of tensor cores
  std::function<std::pair<std::int64_t, std::int64_t>(std::int64_t query)> seen;

  // q[i, h] · k[n], as it is computed.
  double product(const Exact& exact, std::int64_t i, std::int64_t h, std::int64_t n) const;
  double logit(const Exact& exact, std::int64_t i, std::int64_t n) const;
};
IndexerRows indexer_rows(const BoundCall& call, bool causal, Exact& exact);

}  // namespace tegula::ops
