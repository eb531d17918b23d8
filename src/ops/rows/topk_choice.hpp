// The largest of a row, chosen by a warp one after the other.
#pragma once
#include <algorithm>
#include <cstdint>
#include <tuple>

#include "ops/schema/schema.hpp"
#include "tegula/ops/topk.hpp"

namespace tegula::ops {

template <>
inline constexpr std::array<std::string_view, 3> choice_names<TopkGates>{"none", "softmax", "sigmoid"};

inline constexpr int most_topk_columns = 1024;  // of a row, that a warp holds

inline int power_of_two(std::int64_t least, int from) {
  int power = from;
  while (power < least) power *= 2;
  return power;
}

// Rows of a step are cut into pieces of `columns`; from each the largest are chosen. The last step has one
// piece.
struct TopkInstance {
  DType type = f32;
  int rows = 4, columns = 64, count = 0;  // of a block; of a piece; that are chosen
  int together = 1, lanes = 64;           // rows of a warp; the columns of a row are dealt to so many lanes
  bool is_first = true, is_last = true;
  bool fills = false, by_vectors = false;  // a row is one whole piece, or whole vectors
  TopkGates gates = TopkGates::none;
  bool normalized = false, sorts = false;  // of which only those at given places are left
  bool cuts = false;                       // numbers of 32 bits to the bits that a key has beside a column
  auto fields() const {
    return std::tuple(type, joined("t", rows, columns), labelled("k", count), joined("w", together, lanes),
                      labelled("first", is_first), labelled("last", is_last), labelled("fills", fills),
                      labelled("vectors", by_vectors), gates, labelled("normalized", normalized),
                      labelled("sorts", sorts), labelled("cuts", cuts));
  }
  // Numbers of 16 bits leave room for the column in their keys, so that one reduction finds both.
  bool packs() const { return is_first && !sorts && (type.bits() == 16 || cuts); }
  int elements() const { return columns / lanes; }  // of a lane
  int depth() const { return std::min(elements(), count); }
  int vector() const { return by_vectors ? std::min(elements(), 16 / type.bytes()) : 1; }
  // Tiles of the chosen, which lie as the lanes of several rows do.
  int width() const { return together > 1 ? lanes : power_of_two(count, 8); }
  int parts() const { return (count + width() - 1) / width(); }
};

// Arguments: x, values and indices of steps that are first and last; between them keys and numbers,
// chosen_keys and chosen_numbers; of places that are given, chosen.
lang::Kernel topk_program(const TopkInstance& instance);

}  // namespace tegula::ops
