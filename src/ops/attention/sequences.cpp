#include "ops/attention/sequences.hpp"

#include <algorithm>

namespace tegula::ops {

namespace {

// The fences of packed sequences: 0 … tokens, never falling. The result is the longest sequence, or what it
// is at most: what lies on a device is not read.
std::int64_t check_fences(const Arguments& args, const char* name, const TensorRef& fences,
                          std::int64_t tokens) {
  args.check_tensor(name, fences, {i32}, {1});
  const std::int64_t count = fences.size(0);
  args.check(count >= 1, name, "at least one element", fences, "give sequences + 1 elements");
  if (!fences.device.is_cpu()) return tokens;
  std::int64_t before = 0, longest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int64_t>(fences.get({i}));
    const bool good = at >= before && (i > 0 || at == 0) && (i + 1 < count || at == tokens);
    args.check(good, name, worded("numbers that start with 0, never fall and end with {} tokens", tokens),
               worded("{} at position {}", at, i), "correct the sequence lengths");
    longest = std::max(longest, at - before);
    before = at;
  }
  return longest;
}

}  // namespace

PackedLengths check_sequences(const Arguments& args, const std::optional<TensorRef>& cu_seqlens_q,
                              const std::optional<TensorRef>& cu_seqlens_k, const HeadTensors& tensors) {
  if (!cu_seqlens_q && !cu_seqlens_k) return {};
  args.check(cu_seqlens_q && cu_seqlens_k, "cu_seqlens_q", "cu_seqlens_q and cu_seqlens_k together",
             "one of them", "give both");
  PackedLengths lengths;
  lengths.queries = check_fences(args, "cu_seqlens_q", *cu_seqlens_q, tensors.q.size(0));
  lengths.keys = check_fences(args, "cu_seqlens_k", *cu_seqlens_k, tensors.k.size(0));
  args.check(cu_seqlens_q->size(0) == cu_seqlens_k->size(0), "cu_seqlens_k",
             worded("{} elements, as cu_seqlens_q", cu_seqlens_q->size(0)), *cu_seqlens_k,
             "give every sequence queries and keys, also none");
  return lengths;
}

}  // namespace tegula::ops
