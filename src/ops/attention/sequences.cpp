#include "ops/attention/sequences.hpp"

#include <algorithm>

namespace tegula::ops {

namespace {

// The fences of packed sequences: 0 … tokens, never falling. The result is the longest sequence, or what it
// is at most: what lies on a device is not read.
std::int64_t check_fences(const Arguments& args, const char* name, const TensorRef& fences,
                          std::int64_t tokens, std::int64_t most) {
  args.check_tensor(name, fences, {i32}, {1});
  const std::int64_t count = fences.size(0);
  args.check(count >= 1, name, "at least one element", fences, "give sequences + 1 elements");
  if (!fences.device.is_cpu()) return most > 0 ? std::min(most, tokens) : tokens;
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

void check_most(const Arguments& args, const char* name, std::int64_t most, bool packed, bool on_cpu,
                std::int64_t longest) {
  args.check(most >= 0, name, "a number of tokens, or 0 where it is not known", worded("{}", most),
             "leave it out");
  args.check(most == 0 || packed, name, "cu_seqlens_q and cu_seqlens_k beside it", worded("{}", most),
             "leave it out: without them all sequences are equally long");
  args.check(most == 0 || !on_cpu || longest <= most, name,
             worded("at least {}, the longest sequence", longest), worded("{}", most), "correct it");
}

}  // namespace

PackedLengths check_sequences(const Arguments& args, const PackedSequences& given,
                              const HeadTensors& tensors) {
  const auto& [q, k, most] = given;
  args.check(q.has_value() == k.has_value(), "cu_seqlens_q", "cu_seqlens_q and cu_seqlens_k together",
             "one of them", "give both");
  PackedLengths lengths;
  if (q) {
    lengths.queries = check_fences(args, "cu_seqlens_q", *q, tensors.q.size(0), most.queries);
    lengths.keys = check_fences(args, "cu_seqlens_k", *k, tensors.k.size(0), most.keys);
    args.check(q->size(0) == k->size(0), "cu_seqlens_k", worded("{} elements, as cu_seqlens_q", q->size(0)),
               *k, "give every sequence queries and keys, also none");
  }
  check_most(args, "max_seqlen_q", most.queries, q.has_value(), q && q->device.is_cpu(), lengths.queries);
  check_most(args, "max_seqlen_k", most.keys, k.has_value(), k && k->device.is_cpu(), lengths.keys);
  return lengths;
}

}  // namespace tegula::ops
