// What attention_with_kv_cache computes, by its formula.
#pragma once
#include "ops/schema/exact.hpp"
#include "tegula/ops/attention_with_kv_cache.hpp"

namespace tegula::ops {

void cache_formula(const Bound<AttentionWithKvCache>& c, Exact& exact);

}  // namespace tegula::ops
