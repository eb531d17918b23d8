#include "layout/lane_shares.hpp"

#include <algorithm>

namespace tegula::layout {

namespace {

constexpr std::int64_t warp = 32;

bool is_power_of_two(std::int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// The digit of replicas within a warp that have other lanes in front by a power of two, and that number.
std::optional<std::pair<std::size_t, std::int64_t>> replicas_of_lanes(const Digits& threads) {
  std::int64_t step = 1;
  for (std::size_t i = 0; i < threads.size() && step < warp; step *= threads[i].extent, ++i)
    if (threads[i].is_replica() && is_power_of_two(step) && is_power_of_two(threads[i].extent) &&
        step * threads[i].extent <= warp)
      return std::pair(i, step);
  return std::nullopt;
}

// The slowest digit of two or more even parts, rather not one along that dimension.
std::optional<std::size_t> halved(const Digits& registers, int along) {
  std::optional<std::size_t> best;
  const auto crosses = [&](const Digit& d) { return d.stride[static_cast<std::size_t>(along)] == 0; };
  for (std::size_t i = 0; i < registers.size(); ++i)
    if (registers[i].extent % 2 == 0 && (!best || crosses(registers[i]) || !crosses(registers[*best])))
      best = i;
  return best;
}

Digit multiple(const Digit& of, std::int64_t extent, std::int64_t factor) {
  Digit result{extent, of.stride};
  for (std::int64_t& stride : result.stride) stride *= factor;
  return result;
}

}  // namespace

std::optional<LaneShares> share_among_lanes(const Layout& sums, int along) {
  for (int d = 0; d < sums.rank(); ++d)
    if (sums.overhangs(d)) return std::nullopt;
  const auto replicas = replicas_of_lanes(sums.threads());
  if (!replicas) return std::nullopt;
  const auto [place, step] = *replicas;
  Digits threads = sums.threads(), registers = sums.registers(), lanes;
  LaneShares result;
  for (std::int64_t bit = 1; bit < threads[place].extent; bit *= 2) {
    const auto digit = halved(registers, along);
    if (!digit) return std::nullopt;
    std::int64_t apart = 1;
    for (std::size_t i = 0; i < *digit; ++i) apart *= registers[i].extent;
    result.steps.push_back({step * bit, apart});
    lanes.push_back(multiple(registers[*digit], 2, 1));
    registers[*digit] = multiple(registers[*digit], registers[*digit].extent / 2, 2);
  }
  threads.erase(threads.begin() + static_cast<std::ptrdiff_t>(place));
  threads.insert(threads.begin() + static_cast<std::ptrdiff_t>(place), lanes.begin(), lanes.end());
  result.layout = Layout(sums.shape(), std::move(threads), std::move(registers));
  return result;
}

}  // namespace tegula::layout
