// Schedules written by hand: those of the target texts in bench/targets, and one of a producer that reads.
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

struct AttentionShape {
  int d = 128;
  int groups = 2;  // of 64 queries
  int keys = 128;  // a step
  bool causal = false;
  bool ping_pong = false;
  int producer_registers = 40, consumer_registers = 232;
  int ctas_per_sm = 1;
  bool sparse = false;

  int q_bytes() const { return 64 * d * 2; }
  int kv_bytes() const { return keys * d * 2; }
  int boxes() const { return sparse ? d / 64 * (keys / 64) : 1; }
  int launch_registers() const { return 65536 / ctas_per_sm / (128 * groups + 128) / 8 * 8; }
};
inline AttentionShape full_128() { return {}; }
inline AttentionShape causal_128() { return {.causal = true}; }
inline AttentionShape full_64() {
  return {.d = 64, .groups = 3, .ping_pong = true, .producer_registers = 32, .consumer_registers = 160};
}
inline AttentionShape causal_64() {
  AttentionShape shape = full_64();
  shape.causal = true;
  return shape;
}
inline AttentionShape sparse_128_rows() { return {.sparse = true}; }
inline AttentionShape sparse_64_rows() {
  return {.groups = 1, .keys = 64, .consumer_registers = 216, .ctas_per_sm = 2, .sparse = true};
}
Schedule attention_forward(const AttentionShape& shape);
Schedule block_sparse_forward(const AttentionShape& shape);

// Row numbers, and the rows that they name: the producer's threads read what it has brought, and so do the
// consumers.
enum class Numbers : std::uint8_t {
  by_engine,
  by_engine_or_threads,
  by_rows,  // asynchronous copies of the threads
};
Schedule looked_up(Numbers numbers);

}  // namespace tegula::schedule::examples
