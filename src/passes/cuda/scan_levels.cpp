#include "passes/cuda/scan_levels.hpp"

#include <algorithm>

#include "passes/cuda/element_bits.hpp"

namespace tegula::passes {

namespace {

constexpr std::int64_t lanes_of_warp = 32;

struct OwnDigit {
  ScanLevel::Kind kind;
  std::int64_t stride, step, extent;  // of the coordinate, of the number
};

std::optional<std::int64_t> stride_along(const layout::Digit& digit, int dim) {
  const std::int64_t own = digit.stride[static_cast<std::size_t>(dim)];
  const auto moving = std::count_if(digit.stride.begin(), digit.stride.end(), [](auto s) { return s != 0; });
  if (own != 0 && moving > 1) return std::nullopt;
  return own;
}

// The part of a digit of threads that is within a warp, and the rest of it.
void add_threads(std::vector<OwnDigit>& digits, std::int64_t stride, std::int64_t step, std::int64_t extent) {
  std::int64_t lanes = 1;
  if (step < lanes_of_warp && is_power_of_two(step) && is_power_of_two(extent))
    lanes = std::min(extent, lanes_of_warp / step);
  if (lanes > 1) digits.push_back({ScanLevel::Kind::lanes, stride, step, lanes});
  if (extent > lanes)
    digits.push_back({ScanLevel::Kind::threads, stride * lanes, step * lanes, extent / lanes});
}

}  // namespace

std::optional<std::vector<ScanLevel>> scan_levels(const layout::Layout& layout, int dim) {
  std::vector<OwnDigit> digits;
  std::int64_t step = 1;
  for (const layout::Digit& digit : layout.threads()) {
    const auto stride = stride_along(digit, dim);
    if (!stride) return std::nullopt;
    if (*stride != 0) add_threads(digits, *stride, step, digit.extent);
    step *= digit.extent;
  }
  step = 1;
  for (const layout::Digit& digit : layout.registers()) {
    const auto stride = stride_along(digit, dim);
    if (!stride) return std::nullopt;
    if (*stride != 0) digits.push_back({ScanLevel::Kind::registers, *stride, step, digit.extent});
    step *= digit.extent;
  }
  std::sort(digits.begin(), digits.end(), [](auto& a, auto& b) { return a.stride < b.stride; });
  std::vector<ScanLevel> levels;
  std::int64_t registers = layout.register_count();
  for (const OwnDigit& digit : digits) {
    std::int64_t own = digit.step;
    if (digit.kind == ScanLevel::Kind::registers) {
      // Digits that lower levels have taken out no longer count.
      for (const OwnDigit& other : digits) {
        if (other.kind == digit.kind && other.stride < digit.stride && other.step < digit.step)
          own /= other.extent;
      }
    }
    levels.push_back({digit.kind, own, digit.extent, registers});
    if (digit.kind == ScanLevel::Kind::registers) registers /= digit.extent;
  }
  return levels;
}

}  // namespace tegula::passes
