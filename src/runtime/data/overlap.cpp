#include "runtime/data/overlap.hpp"

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace tegula {
namespace {

// A multiple of `stride` > 0 by a factor in [low, high].
struct Step {
  std::int64_t stride, low, high;
};

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }
std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return -floor_div(-a, b); }

// Whether a sum of one multiple of each step comes within `slack` of a distance. With the largest stride
// first the search hardly branches for tensors cut from one allocation.
class Search {
 public:
  explicit Search(std::vector<Step> steps, std::int64_t slack) : steps_(std::move(steps)), slack_(slack) {
    std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) { return a.stride > b.stride; });
    least_.assign(steps_.size() + 1, 0);
    most_.assign(steps_.size() + 1, 0);
    for (std::size_t i = steps_.size(); i-- > 0;) {
      least_[i] = least_[i + 1] + steps_[i].stride * steps_[i].low;
      most_[i] = most_[i + 1] + steps_[i].stride * steps_[i].high;
    }
  }

  bool reaches(std::int64_t distance) { return reaches(distance, 0); }
  // Another way than all factors zero.
  bool returns() {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const std::int64_t last = most_[i + 1] / steps_[i].stride;  // further factors cannot be undone
      for (std::int64_t factor = 1; factor <= std::min(steps_[i].high, last + 1); ++factor) {
        if (reaches(-steps_[i].stride * factor, i + 1)) return true;
      }
    }
    return false;
  }

 private:
  bool reaches(std::int64_t distance, std::size_t i) {
    if (distance + slack_ < least_[i] || distance - slack_ > most_[i]) return false;
    if (i == steps_.size() || --budget_ < 0) return true;
    const Step& step = steps_[i];
    const std::int64_t first = std::max(step.low, ceil_div(distance - slack_ - most_[i + 1], step.stride));
    const std::int64_t last = std::min(step.high, floor_div(distance + slack_ - least_[i + 1], step.stride));
    for (std::int64_t factor = first; factor <= last; ++factor) {
      if (reaches(distance - factor * step.stride, i + 1)) return true;
    }
    return false;
  }

  std::vector<Step> steps_;
  std::int64_t slack_;
  std::vector<std::int64_t> least_, most_;  // of the sums of the steps from each on
  int budget_ = 10000;
};

}  // namespace

bool share_bytes(const TensorRef& a, const TensorRef& b) {
  if (!byte_range(a).overlaps(byte_range(b))) return false;
  if (!(a.dtype == b.dtype) || a.strides != b.strides) return true;
  const std::int64_t bytes = a.dtype.bytes();
  std::vector<Step> steps;
  for (std::size_t i = 0; i < a.strides.size(); ++i) {
    const std::int64_t stride = a.strides[i] * bytes;
    if (stride == 0) continue;
    if (stride > 0)
      steps.push_back({stride, 1 - b.shape[i], a.shape[i] - 1});
    else
      steps.push_back({-stride, 1 - a.shape[i], b.shape[i] - 1});
  }
  const std::int64_t distance = static_cast<std::byte*>(b.data) - static_cast<std::byte*>(a.data);
  return Search(std::move(steps), bytes - 1).reaches(distance);
}

bool overlaps_itself(const TensorRef& tensor) {
  if (nelements(tensor) <= 1) return false;
  std::vector<Step> steps;
  for (std::size_t i = 0; i < tensor.strides.size(); ++i) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] == 0) return true;
    const std::int64_t most = tensor.shape[i] - 1;
    steps.push_back({std::llabs(tensor.strides[i]), -most, most});
  }
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.stride < b.stride; });
  std::int64_t span = 0;
  bool nested = true;
  for (const Step& step : steps) {
    nested &= step.stride > span;
    span += step.stride * step.high;
  }
  return !nested && Search(std::move(steps), 0).returns();
}

}  // namespace tegula
