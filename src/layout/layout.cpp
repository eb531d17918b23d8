#include "layout/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tegula/error.hpp"

namespace tegula::layout {
namespace {

bool continues(const Digit& a, const Digit& b) {
  for (std::size_t d = 0; d < a.stride.size(); ++d) {
    if (b.stride[d] != a.extent * a.stride[d]) return false;
  }
  return true;
}

Digits canonical(const Digits& digits, bool keep_replicas) {
  Digits result;
  for (const Digit& digit : digits) {
    if (digit.extent == 1 || (!keep_replicas && digit.is_replica())) continue;
    if (!result.empty() && continues(result.back(), digit))
      result.back().extent *= digit.extent;
    else
      result.push_back(digit);
  }
  return result;
}

std::int64_t count(const Digits& digits) {
  std::int64_t result = 1;
  for (const Digit& digit : digits) result *= digit.extent;
  return result;
}

void add(const Digits& digits, std::int64_t number, Coordinates& at) {
  for (const Digit& digit : digits) {
    const std::int64_t value = number % digit.extent;
    number /= digit.extent;
    for (std::size_t d = 0; d < at.size(); ++d) at[d] += value * digit.stride[d];
  }
}

void drop_dimension(Digits& digits, int dim) {
  for (Digit& digit : digits) digit.stride.erase(digit.stride.begin() + dim);
}

std::string text_of(const Digits& digits) {
  std::string result;
  for (const Digit& digit : digits)
    result += fmt::format(" ({}: {})", digit.extent, fmt::join(digit.stride, ","));
  return result.empty() ? " ()" : result;
}

}  // namespace

bool Digit::is_replica() const {
  return std::all_of(stride.begin(), stride.end(), [](std::int64_t s) { return s == 0; });
}

Digit digit(int rank, int dim, std::int64_t extent, std::int64_t stride) {
  Digit result{extent, std::vector<std::int64_t>(static_cast<std::size_t>(rank), 0)};
  result.stride[static_cast<std::size_t>(dim)] = stride;
  return result;
}

Digit replica(int rank, std::int64_t extent) {
  return {extent, std::vector<std::int64_t>(static_cast<std::size_t>(rank), 0)};
}

Layout::Layout(Coordinates shape, Digits threads, Digits registers)
    : shape_(std::move(shape)), threads_(canonical(threads, true)), registers_(canonical(registers, false)) {
  for (const Digits* digits : {&threads, &registers}) {
    for (const Digit& d : *digits)
      internal_assert(d.stride.size() == shape_.size() && d.extent > 0,
                      "a digit has a stride for each dimension");
  }
}

std::int64_t Layout::thread_count() const { return count(threads_); }
std::int64_t Layout::register_count() const { return count(registers_); }

std::int64_t Layout::replicas() const {
  std::int64_t result = 1;
  for (const Digit& d : threads_) result *= d.is_replica() ? d.extent : 1;
  return result;
}

Coordinates Layout::coordinates(std::int64_t thread, std::int64_t reg) const {
  Coordinates at(shape_.size(), 0);
  add(threads_, thread, at);
  add(registers_, reg, at);
  return at;
}

bool Layout::is_inside(const Coordinates& at) const {
  for (std::size_t d = 0; d < shape_.size(); ++d) {
    if (at[d] < 0 || at[d] >= shape_[d]) return false;
  }
  return true;
}

bool Layout::overhangs(int dim) const {
  const auto d = static_cast<std::size_t>(dim);
  std::int64_t last = 0;
  for (const Digits* digits : {&threads_, &registers_}) {
    for (const Digit& digit : *digits) last += (digit.extent - 1) * digit.stride[d];
  }
  return last >= shape_[d];
}

std::vector<Place> Layout::places(const Coordinates& at) const {
  std::vector<Place> result;
  for (std::int64_t t = 0; t < thread_count(); ++t) {
    for (std::int64_t r = 0; r < register_count(); ++r) {
      if (coordinates(t, r) == at) result.push_back({t, r});
    }
  }
  return result;
}

bool Layout::is_valid() const {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape_) elements *= extent;
  std::vector<std::int64_t> held(static_cast<std::size_t>(elements), 0), last(held.size(), -1);
  for (std::int64_t t = 0; t < thread_count(); ++t) {
    for (std::int64_t r = 0; r < register_count(); ++r) {
      const Coordinates at = coordinates(t, r);
      if (!is_inside(at)) continue;
      std::int64_t flat = 0;
      for (std::size_t d = 0; d < at.size(); ++d) flat = flat * shape_[d] + at[d];
      const auto i = static_cast<std::size_t>(flat);
      if (last[i] == t) return false;
      last[i] = t;
      ++held[i];
    }
  }
  return std::all_of(held.begin(), held.end(), [&](std::int64_t n) { return n == replicas(); });
}

Layout Layout::slice(int dim) const {
  Coordinates shape = shape_;
  shape.erase(shape.begin() + dim);
  Digits threads = threads_, registers = registers_;
  drop_dimension(threads, dim);
  drop_dimension(registers, dim);
  return {std::move(shape), std::move(threads), std::move(registers)};
}

Layout Layout::permute(const std::vector<int>& order) const {
  const auto picked = [&](const std::vector<std::int64_t>& from) {
    std::vector<std::int64_t> result;
    for (const int d : order) result.push_back(from[static_cast<std::size_t>(d)]);
    return result;
  };
  Digits threads = threads_, registers = registers_;
  for (Digits* digits : {&threads, &registers}) {
    for (Digit& d : *digits) d.stride = picked(d.stride);
  }
  return {picked(shape_), std::move(threads), std::move(registers)};
}

std::string Layout::text() const {
  return fmt::format("[{}] threads{} registers{}", fmt::join(shape_, ", "), text_of(threads_),
                     text_of(registers_));
}

}  // namespace tegula::layout
