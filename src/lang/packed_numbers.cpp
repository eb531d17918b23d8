#include "lang/packed_numbers.hpp"

namespace tegula::lang {

namespace {

// An integer within the mantissa of a float is added to the power of two whose last place it has there: no
// instruction that converts.
constexpr int mantissa_bits = 23, exponent_bias = 127;
constexpr unsigned half_word = 16;

// Operators that record the place of a program, not that of this file.
struct At {
  Loc at;
  Operand operator()(const Expr& x) const { return Operand(x, at); }
};

std::uint32_t mask_of(PackedType type) { return (1u << type.bits) - 1; }
int sign_of(PackedType type) { return 1 << (type.bits - 1); }
bool is_signed(PackedType type) { return type.code == PackedType::Code::signed_integer; }

// The element as a word, with the place in its low half.
Operand low_half(const Operand& word, const PackedPlace& place) {
  const At o{word.at};
  if (!place.is_high) return word;
  return o(select(o(*place.is_high), o(word >> o(half_word)), word));
}

// Two's complement with the sign bit flipped is the number above the least.
Operand with_sign_flipped(PackedType type, const Operand& word) {
  if (!is_signed(type)) return word;
  std::uint32_t signs = 0;
  for (int bit = type.bits - 1; bit < type.storage.bits(); bit += type.bits) signs |= 1u << bit;
  const At o{word.at};
  return o(word ^ o(signs));
}
int zero_of(PackedType type) { return type.excess + (is_signed(type) ? sign_of(type) : 0); }

// Exponent and mantissa at the places of an f32's, which also fits denormals, and the sign at its own. One
// multiplication moves a number that stays where it is to both.
Expr e2m1_as_f32(const Operand& word, const PackedPlace& place) {
  const At o{word.at};
  const Operand bit(o(place.bit));
  if (!place.shifts) {
    const Operand by(u32(bit), word.at), own(word & o(o(0xfu) << by), word.at),
        moved(own * o(o((1u << 28) + (1u << 22)) >> by), word.at);
    return o(bitcast(o(moved & o(0x81c00000u)), f32)) * o(0x1p126f);
  }
  const Operand up_sign(u32(o(o(28) - bit)), word.at), up(u32(o(o(22) - bit)), word.at);
  const Operand sign(o(word << up_sign) & o(0x80000000u), word.at);
  const Operand magnitude(o(word << up) & o(0x1c00000u), word.at);
  return o(bitcast(o(sign | magnitude), f32)) * o(0x1p126f);
}

// Nearest, ties to the number whose mantissa bit is 0: the numbers of bounds that are passed. NaN passes all.
Expr e2m1_code(const Operand& x) {
  const At o{x.at};
  const Operand magnitude(abs(x), x.at);
  std::optional<Expr> code;
  const auto count = [&](const Expr& below) {
    const Operand one(select(o(below), o(0u), o(1u)), x.at);
    Expr sum = code ? o(*code) + one : Expr(one);
    code.emplace(sum);
  };
  for (const float least : {0.25f, 1.25f, 2.5f, 5.0f}) count(magnitude <= o(least));
  for (const float least : {0.75f, 1.75f, 3.5f}) count(magnitude < o(least));
  const Operand sign(o(bitcast(x, u32)) >> o(28u), x.at);
  return o(sign & o(8u)) | o(*code);
}

}  // namespace

PackedPlace packed_place(PackedType type, const Operand& column) {
  const At o{column.at};
  const int in_element = type.in_element(), in_half = in_element / 2;
  if (type.storage == u8) return {o(column % o(in_element)) * o(type.bits)};
  return {o(column % o(in_half)) * o(type.bits), o(o(column / o(in_half)) % o(2)) == o(1), false};
}

Expr packed_number(PackedType type, const Operand& element, const PackedPlace& place) {
  const At o{element.at};
  const Operand word(u32(element), element.at);
  if (type.code == PackedType::Code::e2m1) return packed_as_f32(type, element, place);
  const Operand half = low_half(with_sign_flipped(type, word), place);
  const Operand bits(o(half >> o(u32(o(place.bit)))) & o(mask_of(type)), element.at);
  return o(i32(bits)) - o(zero_of(type));
}

Expr packed_as_f32(PackedType type, const Operand& element, const PackedPlace& place) {
  const At o{element.at};
  const Operand word(u32(element), element.at);
  if (type.code == PackedType::Code::e2m1) return e2m1_as_f32(low_half(word, place), place);
  // An integer that stays where it is is within the mantissa of a float, too.
  const bool stays = !place.shifts;
  const Operand bit(u32(o(place.bit)), element.at);
  const Operand of_last_place(stays ? u32(o(o(mantissa_bits + exponent_bias) - o(place.bit)))
                                    : Expr(u32(o(mantissa_bits + exponent_bias))),
                              element.at);
  const Operand power(of_last_place << o(u32(o(mantissa_bits))), element.at);
  const Operand half = low_half(with_sign_flipped(type, word), place);
  const Operand own = stays ? o(half & o(o(mask_of(type)) << bit)) : o(o(half >> bit) & o(mask_of(type)));
  return o(bitcast(o(own ^ power), f32)) - o(o(bitcast(power, f32)) + o(static_cast<float>(zero_of(type))));
}

Expr packed_code(PackedType type, const Operand& value) {
  const At o{value.at};
  if (type.code == PackedType::Code::e2m1) return e2m1_code(value);
  return o(u32(o(value + o(type.excess)))) & o(mask_of(type));
}

}  // namespace tegula::lang
