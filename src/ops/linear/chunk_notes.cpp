#include "ops/linear/chunk_notes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tegula::ops {

void note_waiting_chunks(const BoundCall& call, std::int64_t segments, Launch& launch) {
  launch.note([&] {
    return fmt::format(
        "plan: chunks of {} tokens wait for the state of the one before, in {} segment{} of each sequence, "
        "and {} heads of all sequences are too few to keep the processors busy",
        chunk_tokens_of_scan, segments, segments == 1 ? "" : "s", sequences_of(call) * call.dim("heads"));
  });
}

void note_unfilled_chunks(const BoundCall& call, int most_of_tile, Launch& launch) {
  constexpr double few = 0.55;
  if (!call.on_gpu()) return;
  const bool packed = call.has("cu_seqlens");
  const auto sequences = packed ? static_cast<double>(std::max<std::int64_t>(sequences_of(call), 1)) : 1;
  const double tokens = std::max(static_cast<double>(call.dim("tokens")) / sequences, 1.),
               rows = std::ceil(tokens / chunk_tokens_of_scan) * chunk_tokens_of_scan;
  if (tokens > few * rows) return;
  const bool is_unknown = packed && call.dim("longest") == call.dim("tokens");
  launch.note([&] {
    std::string said =
        fmt::format("plan: sequences of {:.0f} tokens{} fill {:.0f} % of the rows of their chunks of {}",
                    tokens, packed ? " on average" : "", 100 * tokens / rows, chunk_tokens_of_scan);
    if (is_unknown && most_of_tile > 0)
      said += fmt::format("; with max_seqlen, where none has more than {}, they have tiles of their length",
                          most_of_tile);
    return said;
  });
}

}  // namespace tegula::ops
