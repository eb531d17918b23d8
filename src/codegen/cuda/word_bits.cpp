#include "codegen/cuda/word_bits.hpp"

#include <bit>

namespace tegula::codegen {

using namespace ir;

namespace {

bool is_word(const Expr& e) { return e->held() == u32 || e->held() == i32; }

// The operand that is no constant, and the constant.
std::optional<std::pair<Expr, std::uint32_t>> with_constant(const Expr& e, Op op) {
  if (e->op != op || !is_word(e)) return std::nullopt;
  for (const std::size_t at : {1, 0}) {
    if (!is_constant(e->args[at]) || (at == 0 && op != Op::bit_and)) continue;
    return std::pair(e->args[1 - at], static_cast<std::uint32_t>(constant_value(e->args[at])));
  }
  return std::nullopt;
}

std::optional<WordBits> bits_of(const Expr& word, std::uint64_t mask, std::uint32_t first) {
  const int count = std::popcount(mask);
  const bool is_run = count > 0 && mask + 1 == std::uint64_t{1} << count;
  if (!is_run || first + static_cast<std::uint32_t>(count) > 32) return std::nullopt;
  return WordBits{word, static_cast<int>(first), count};
}

}  // namespace

std::optional<WordBits> word_bits(const Expr& e) {
  if (e->op == Op::cast && is_word(e) && is_word(e->args[0])) {
    const auto result = word_bits(e->args[0]);
    return result && result->count < 32 ? result : std::nullopt;
  }
  if (const auto masked = with_constant(e, Op::bit_and)) {
    const auto shifted = with_constant(masked->first, Op::shr);
    if (shifted && shifted->second < 32) return bits_of(shifted->first, masked->second, shifted->second);
    return bits_of(masked->first, masked->second, 0);
  }
  const auto shifted = with_constant(e, Op::shr);
  if (!shifted || shifted->second >= 32) return std::nullopt;
  const auto masked = with_constant(shifted->first, Op::bit_and);
  if (masked && (e->held() == u32 || masked->second >> 31 == 0))
    return bits_of(masked->first, masked->second >> shifted->second, shifted->second);
  if (e->held() != u32) return std::nullopt;
  return bits_of(shifted->first, 0xffffffffU >> shifted->second, shifted->second);
}

}  // namespace tegula::codegen
