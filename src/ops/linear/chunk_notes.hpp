// What plans of recurrences say of chunks that no choice of theirs makes faster.
#pragma once
#include "ops/linear/sequences.hpp"
#include "ops/schema/launch.hpp"

namespace tegula::ops {

// Chunks wait for each other in so many segments of each sequence, while other processors have none.
void note_waiting_chunks(const BoundCall& call, std::int64_t segments, Launch& launch);
// Says where tokens fill few rows of their chunks. Packed sequences whose caller promises that none has more
// than `most_of_tile` tokens would have tiles of their length; 0: none has.
void note_unfilled_chunks(const BoundCall& call, int most_of_tile, Launch& launch);

}  // namespace tegula::ops
