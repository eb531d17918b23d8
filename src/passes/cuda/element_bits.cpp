#include "passes/cuda/element_bits.hpp"

#include <algorithm>

#include "ir/affine.hpp"
#include "ir/visit.hpp"

namespace tegula::passes {

using namespace ir;
using layout::Digit;
using layout::Digits;
using layout::Layout;

namespace {

// The first dimension of more than one element, which may have an odd factor.
std::size_t slowest_dim(const layout::Coordinates& shape) {
  std::size_t d = 0;
  while (d + 1 < shape.size() && shape[d] == 1) ++d;
  return d;
}

bool has_bits(const layout::Coordinates& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (shape[d] < 1 || (d > slowest_dim(shape) && !is_power_of_two(shape[d]))) return false;
  return true;
}

// The row-major number of the element, as a sum.
std::optional<Affine> element_number(const Access& access) {
  const std::vector<Expr> at = coordinates(access);
  Affine result;
  std::int64_t stride = 1;
  for (std::size_t d = at.size(); d-- > 0;) {
    if (!has_affine_form(at[d]->held())) return std::nullopt;
    const auto more = sum(result, affine(at[d]), stride);
    if (!more) return std::nullopt;
    result = *more;
    stride *= constant_value(access.view.shape[d]);
  }
  return result;
}

// Bits of the row-major number of an element of the shape, as steps along dimensions.
Digit digit_of(const layout::Coordinates& shape, int bit) {
  Digit result{2, std::vector<std::int64_t>(shape.size(), 0)};
  for (std::size_t d = shape.size(); d-- > 0;) {
    const int own = log2_of(shape[d]);
    if (bit < own) {
      result.stride[d] = std::int64_t{1} << bit;
      break;
    }
    bit -= own;
  }
  return result;
}

// An odd digit of registers is their slowest, so that it follows the bits of their number. No digit has bits
// if it goes past the end of its dimension, as where 16 rows of threads hold 10.
std::optional<std::vector<int>> bits_of(const layout::Coordinates& shape, const Digits& digits,
                                        bool of_threads) {
  int last = 0;
  for (const std::int64_t extent : shape) last += log2_of(extent);
  std::vector<int> result;
  for (const Digit& digit : digits) {
    int bit = 0, found = -1;
    for (std::size_t d = shape.size(); d-- > 0; bit += log2_of(shape[d])) {
      if (digit.stride[d] == 0) continue;
      const bool is_past = log2_of(digit.stride[d]) + log2_of(digit.extent) > log2_of(shape[d]);
      if (found >= 0 || !is_power_of_two(digit.stride[d]) || is_past) return std::nullopt;
      found = bit + log2_of(digit.stride[d]);
    }
    if (found < 0) return std::nullopt;
    for (int i = 0; i < log2_of(digit.extent); ++i) result.push_back(found + i);
    if (is_power_of_two(digit.extent)) continue;
    const bool is_last = found + log2_of(digit.extent) == last &&
                         odd_factor(digit.extent) == odd_factor(shape[slowest_dim(shape)]);
    if (!is_last || (!of_threads && &digit != &digits.back())) return std::nullopt;
    result.push_back(last);
  }
  return result;
}

}  // namespace

std::optional<ElementBits> element_bits(const For& loop, const Access& access) {
  const Buffer& buffer = *access.view.buffer;
  layout::Coordinates shape;
  for (const Expr& e : buffer.shape) {
    if (!is_constant(e)) return std::nullopt;
    shape.push_back(constant_value(e));
  }
  if (!has_bits(shape)) return std::nullopt;
  const int count = log2_of(buffer.elements());
  const std::int64_t odd = odd_factor(buffer.elements());
  const auto number = element_number(access);
  if (!number || number->constant < 0 || number->constant >> count != 0) return std::nullopt;
  ElementBits result(static_cast<std::size_t>(odd > 1 ? count + 1 : count));
  std::vector<bool> taken(result.size(), false);
  for (const Affine::Term& term : number->terms) {
    const auto own = std::find(loop.index.begin(), loop.index.end(), term.atom->variable);
    if (term.atom->op != Op::variable || own == loop.index.end() || !is_power_of_two(term.factor))
      return std::nullopt;
    const int axis = static_cast<int>(own - loop.index.begin());
    const Expr& end = loop.end[static_cast<std::size_t>(axis)];
    if (!is_constant(end) || constant_value(end) < 1) return std::nullopt;
    const std::int64_t own_odd = odd_factor(constant_value(end));
    const int bits = log2_of(constant_value(end));
    if (own_odd > 1 && (own_odd != odd || log2_of(term.factor) + bits != count)) return std::nullopt;
    for (int i = 0; i < (own_odd > 1 ? bits + 1 : bits); ++i) {
      const auto at = static_cast<std::size_t>(log2_of(term.factor) + i);
      const bool is_bit = at < static_cast<std::size_t>(count);
      if (at >= result.size() || taken[at] || is_bit != (i < bits) || (number->constant >> at & 1) != 0)
        return std::nullopt;
      taken[at] = true;
      result[at] = {axis, i};
    }
  }
  for (std::size_t at = 0; at < result.size(); ++at)
    if (!taken[at]) result[at].bit = static_cast<int>(number->constant >> at & 1);
  return result;
}

std::optional<BitLayout> bits_of(const Layout& layout) {
  if (!has_bits(layout.shape())) return std::nullopt;
  auto threads = bits_of(layout.shape(), layout.threads(), true),
       registers = bits_of(layout.shape(), layout.registers(), false);
  if (!threads || !registers) return std::nullopt;
  return BitLayout{std::move(*threads), std::move(*registers)};
}

Layout layout_of(const layout::Coordinates& shape, const BitLayout& bits) {
  Digits threads, registers;
  for (const int bit : bits.threads) threads.push_back(digit_of(shape, bit));
  for (const int bit : bits.registers) registers.push_back(digit_of(shape, bit));
  return {shape, std::move(threads), std::move(registers)};
}

std::optional<Layout> loop_layout(const For& loop, const ElementBits& bits, const BitLayout& held) {
  const int rank = static_cast<int>(loop.index.size());
  layout::Coordinates shape;
  for (const Expr& end : loop.end) shape.push_back(constant_value(end));
  std::int64_t covered = 1, all = 1;
  for (const std::int64_t extent : shape) all *= extent;
  Digits threads, registers;
  const auto digit_of_loop = [&](const ElementBit& own) {
    const std::int64_t extent = shape[static_cast<std::size_t>(own.axis)],
                       values = own.bit < log2_of(extent) ? 2 : odd_factor(extent);
    covered *= values;
    return layout::digit(rank, own.axis, values, std::int64_t{1} << own.bit);
  };
  for (const int at : held.threads) {
    const ElementBit& own = bits[static_cast<std::size_t>(at)];
    if (own.axis < 0) return std::nullopt;
    threads.push_back(digit_of_loop(own));
  }
  for (const int at : held.registers)
    if (const ElementBit& own = bits[static_cast<std::size_t>(at)]; own.axis >= 0)
      registers.push_back(digit_of_loop(own));
  if (covered != all) return std::nullopt;
  return Layout{shape, std::move(threads), std::move(registers)};
}

}  // namespace tegula::passes
