// Random numbers by counters: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3.
#include "lang/builder.hpp"

namespace tegula::lang {

namespace {

constexpr int rounds = 10;
constexpr std::uint32_t multipliers[] = {0xD2511F53u, 0xCD9E8D57u};
constexpr std::uint32_t key_steps[] = {0x9E3779B9u, 0xBB67AE85u};

Operand word(const Expr& x, const Loc& at) {
  if (x.is_literal()) return Operand(u32(Operand(x, at)), at);
  if (x.type() != u32)
    fail(at, "philox() of a word of " + std::string(x.type().name()) + "; its words are u32: write u32(x)");
  return Operand(x, at);
}

}  // namespace

RandomWords philox(const std::array<Expr, 4>& counter, const std::array<Expr, 2>& key, Loc at) {
  Operand x = word(counter[0], at), y = word(counter[1], at), z = word(counter[2], at),
          w = word(counter[3], at);
  Operand first = word(key[0], at), second = word(key[1], at);
  const Operand by_x(multipliers[0], at), by_z(multipliers[1], at);
  for (int round = 0; round < rounds; ++round) {
    const Operand high_x(mul_high(x, by_x), at), low_x(x * by_x, at);
    const Operand high_z(mul_high(z, by_z), at), low_z(z * by_z, at);
    x = Operand(Operand(high_z ^ y, at) ^ first, at);
    y = low_z;
    z = Operand(Operand(high_x ^ w, at) ^ second, at);
    w = low_x;
    first = Operand(first + Operand(key_steps[0], at), at);
    second = Operand(second + Operand(key_steps[1], at), at);
  }
  return {x, y, z, w};
}

Expr uniform(const Operand& word) {
  if (word.type() != u32)
    fail(word.at, "uniform() of " + std::string(word.type().name()) + "; it takes a random word, u32");
  return f32(Operand(word >> Operand(8, word.at), word.at)) * Operand(0x1p-24f, word.at);
}

}  // namespace tegula::lang
