#include "ops/experts/unit_formula.hpp"

namespace tegula::ops {

std::vector<RoutedPair> pairs_of(const TensorRef& experts) {
  std::vector<RoutedPair> pairs;
  for (std::int64_t t = 0; t < experts.size(0); ++t)
    for (std::int64_t s = 0; s < experts.size(1); ++s) {
      const std::int64_t at = t * experts.stride(0) + s * experts.stride(1);
      const std::int32_t expert = experts.data_as<const std::int32_t>()[at];
      if (expert >= 0) pairs.push_back({t, s, expert});
    }
  return pairs;
}

}  // namespace tegula::ops
