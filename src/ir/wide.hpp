// Integers wide enough for every product and sum of two 64-bit integers.
#pragma once

namespace tegula::ir {

using Wide = __int128;

inline Wide floor_quotient(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

}  // namespace tegula::ir
