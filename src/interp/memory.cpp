#include "interp/memory.hpp"

#include <algorithm>
#include <numeric>

namespace tegula::interp {
namespace {

template <class T>
T get(const Memory& memory, std::int64_t position) {
  T value;
  std::memcpy(&value, memory.data + position * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void put(const Memory& memory, std::int64_t position, T value) {
  std::memcpy(memory.data + position * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

}  // namespace

Cell load_element(const Memory& memory, std::int64_t position) {
  switch (memory.format.code) {
    case TypeCode::f32:
      return real_cell(get<float>(memory, position));
    case TypeCode::f64:
      return real_cell(get<double>(memory, position));
    case TypeCode::i32:
      return integer_cell(get<std::int32_t>(memory, position));
    case TypeCode::i64:
      return integer_cell(get<std::int64_t>(memory, position));
    case TypeCode::u32:
      return integer_cell(get<std::uint32_t>(memory, position));
    case TypeCode::boolean:
      return integer_cell(get<std::uint8_t>(memory, position) != 0);
    case TypeCode::i8:
      return integer_cell(get<std::int8_t>(memory, position));
    case TypeCode::i16:
      return integer_cell(get<std::int16_t>(memory, position));
    case TypeCode::u8:
      return integer_cell(get<std::uint8_t>(memory, position));
    case TypeCode::f16:
    case TypeCode::bf16:
      return real_cell(decode(memory.format, get<std::uint16_t>(memory, position)));
    default:
      return real_cell(decode(memory.format, get<std::uint8_t>(memory, position)));
  }
}

Cell rounded(DType type, const Cell& value) {
  if (type.bits() >= 32 || type.is_boolean()) return value;
  if (type.is_floating()) return real_cell(round_to(type, value.real));
  switch (type.code) {
    case TypeCode::i8:
      return integer_cell(static_cast<std::int8_t>(value.integer));
    case TypeCode::i16:
      return integer_cell(static_cast<std::int16_t>(value.integer));
    default:
      return integer_cell(static_cast<std::uint8_t>(value.integer));
  }
}

void store_element(const Memory& memory, std::int64_t position, const Cell& value) {
  const Cell stored = memory.type == memory.format ? value : rounded(memory.type, value);
  switch (memory.format.code) {
    case TypeCode::f32:
      return put(memory, position, static_cast<float>(stored.real));
    case TypeCode::f64:
      return put(memory, position, stored.real);
    case TypeCode::i64:
      return put(memory, position, stored.integer);
    case TypeCode::i32:
    case TypeCode::u32:
      return put(memory, position, static_cast<std::uint32_t>(stored.integer));
    case TypeCode::i16:
      return put(memory, position, static_cast<std::uint16_t>(stored.integer));
    case TypeCode::boolean:
    case TypeCode::i8:
    case TypeCode::u8:
      return put(memory, position, static_cast<std::uint8_t>(stored.integer));
    case TypeCode::f16:
    case TypeCode::bf16:
      return put(memory, position, static_cast<std::uint16_t>(encode(memory.format, stored.real)));
    default:
      return put(memory, position, static_cast<std::uint8_t>(encode(memory.format, stored.real)));
  }
}

Shape Memory::index_of(std::int64_t position) const {
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::abs(strides[a]) > std::abs(strides[b]); });
  Shape index(shape.size());
  std::int64_t remaining = position - origin;
  for (const std::size_t d : order) {
    if (strides[d] < 0) remaining += (shape[d] - 1) * -strides[d];
  }
  for (const std::size_t d : order) {
    const std::int64_t stride = std::abs(strides[d]);
    const std::int64_t step = stride == 0 ? 0 : std::min(remaining / stride, shape[d] - 1);
    remaining -= step * stride;
    index[d] = strides[d] < 0 ? shape[d] - 1 - step : step;
  }
  return index;
}

}  // namespace tegula::interp
