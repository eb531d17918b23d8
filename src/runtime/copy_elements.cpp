#include <fmt/format.h>

#include <array>
#include <cstring>

#include "cuda/memory.hpp"
#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula {
namespace {

struct Dim {
  std::int64_t extent, from, to;  // the strides, in bytes
};

// The walk over both tensors with as few and as long dimensions as possible; the last one is innermost.
std::vector<Dim> common_walk(const TensorRef& from, const TensorRef& to) {
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < from.shape.size(); ++i) {
    const Dim dim{from.shape[i], from.strides[i] * from.dtype.bytes(), to.strides[i] * to.dtype.bytes()};
    if (dim.extent == 1) continue;
    if (!dims.empty() && dims.back().from == dim.extent * dim.from && dims.back().to == dim.extent * dim.to) {
      dims.back() = {dims.back().extent * dim.extent, dim.from, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  if (dims.empty()) dims.push_back({1, from.dtype.bytes(), to.dtype.bytes()});
  return dims;
}

// Calls row(from, to) at the start of every innermost row.
template <class Row>
void for_each_row(const std::vector<Dim>& dims, const std::byte* from, std::byte* to, const Row& row) {
  std::vector<std::int64_t> index(dims.size() - 1);
  while (true) {
    row(from, to);
    std::size_t d = index.size();
    while (d > 0) {
      --d;
      from += dims[d].from;
      to += dims[d].to;
      if (++index[d] < dims[d].extent) break;
      from -= dims[d].from * dims[d].extent;
      to -= dims[d].to * dims[d].extent;
      index[d] = 0;
      if (d == 0) return;
    }
    if (index.empty()) return;
  }
}

template <class T>
T load_bits(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void copy_row(const Dim& row, const std::byte* from, std::byte* to) {
  for (std::int64_t i = 0; i < row.extent; ++i) std::memcpy(to + i * row.to, from + i * row.from, sizeof(T));
}

using Row = void (*)(const Dim&, const std::byte*, std::byte*);

Row same_type_row(int bytes) {
  switch (bytes) {
    case 1:
      return copy_row<std::uint8_t>;
    case 2:
      return copy_row<std::uint16_t>;
    case 4:
      return copy_row<std::uint32_t>;
    default:
      return copy_row<std::uint64_t>;
  }
}

void copy_same_type(const std::vector<Dim>& dims, int bytes, const std::byte* from, std::byte* to) {
  const Dim& inner = dims.back();
  if (inner.from == bytes && inner.to == bytes) {
    for_each_row(dims, from, to,
                 [&](const std::byte* f, std::byte* t) { std::memcpy(t, f, inner.extent * bytes); });
  } else {
    const Row row = same_type_row(bytes);
    for_each_row(dims, from, to, [&](const std::byte* f, std::byte* t) { row(inner, f, t); });
  }
}

// Different dtypes pass through a buffer of doubles or, between integers, of 64-bit integers.
constexpr std::int64_t chunk = 256;
template <class T>
using Buffer = std::array<T, chunk>;

template <class Stored>
void load_typed(const std::byte* from, std::int64_t stride, std::int64_t count, auto& buffer) {
  using Wide = typename std::remove_reference_t<decltype(buffer)>::value_type;
  for (std::int64_t i = 0; i < count; ++i)
    buffer[i] = static_cast<Wide>(load_bits<Stored>(from + i * stride));
}

// The nearest double of a 64-bit integer, rounded to odd where it is inexact: rounding that to a narrower
// float gives what rounding the integer at once would give.
void load_i64_to_odd(const std::byte* from, std::int64_t stride, std::int64_t count, Buffer<double>& buffer) {
  constexpr std::int64_t exact = 1ll << 53, low_bits = (1ll << 11) - 1;
  for (std::int64_t i = 0; i < count; ++i) {
    auto value = load_bits<std::int64_t>(from + i * stride);
    if ((value >= exact || value <= -exact) && (value & low_bits)) value = (value & ~low_bits) | 1ll << 10;
    buffer[i] = static_cast<double>(value);
  }
}

void load_row(DType type, const std::byte* from, std::int64_t stride, std::int64_t count, auto& buffer) {
  switch (type.code) {
    case TypeCode::boolean:
      load_typed<std::uint8_t>(from, stride, count, buffer);
      for (std::int64_t i = 0; i < count; ++i) buffer[i] = buffer[i] != 0;
      return;
    case TypeCode::i8:
      return load_typed<std::int8_t>(from, stride, count, buffer);
    case TypeCode::i16:
      return load_typed<std::int16_t>(from, stride, count, buffer);
    case TypeCode::i32:
      return load_typed<std::int32_t>(from, stride, count, buffer);
    case TypeCode::i64:
      return load_typed<std::int64_t>(from, stride, count, buffer);
    case TypeCode::u8:
      return load_typed<std::uint8_t>(from, stride, count, buffer);
    case TypeCode::u32:
      return load_typed<std::uint32_t>(from, stride, count, buffer);
    case TypeCode::f32:
      return load_typed<float>(from, stride, count, buffer);
    case TypeCode::f64:
      return load_typed<double>(from, stride, count, buffer);
    default:
      break;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* at = from + i * stride;
    const std::uint64_t bits = type.bits() == 8 ? load_bits<std::uint8_t>(at) : load_bits<std::uint16_t>(at);
    buffer[i] = decode(type, bits);
  }
}

template <class T>
void store_bits(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

void store_row(DType type, std::byte* to, std::int64_t stride, std::int64_t count,
               const Buffer<double>& buffer) {
  if (type == f32) {
    for (std::int64_t i = 0; i < count; ++i) store_bits(to + i * stride, static_cast<float>(buffer[i]));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = encode(type, buffer[i]);
    std::memcpy(to + i * stride, &bits, type.bytes());
  }
}

// Integers wrap: the low bits are kept.
void store_row(DType type, std::byte* to, std::int64_t stride, std::int64_t count,
               const Buffer<std::int64_t>& buffer) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t bits = type.is_boolean() ? buffer[i] != 0 : buffer[i];
    std::memcpy(to + i * stride, &bits, type.bytes());
  }
}

template <class T>
void convert_row(const Dim& row, DType from_type, const std::byte* from, DType to_type, std::byte* to) {
  Buffer<T> buffer;
  for (std::int64_t begin = 0; begin < row.extent; begin += chunk) {
    const std::int64_t count = std::min(chunk, row.extent - begin);
    const std::byte* source = from + begin * row.from;
    if constexpr (std::is_same_v<T, double>) {
      if (from_type == i64 && to_type != f64) {
        load_i64_to_odd(source, row.from, count, buffer);
        store_row(to_type, to + begin * row.to, row.to, count, buffer);
        continue;
      }
    }
    load_row(from_type, source, row.from, count, buffer);
    store_row(to_type, to + begin * row.to, row.to, count, buffer);
  }
}

void check_copy(const TensorRef& from, const TensorRef& to) {
  if (from.shape != to.shape) {
    throw ArgumentError(fmt::format("cannot copy {} to {}: the shapes differ", describe(from), describe(to)));
  }
}

}  // namespace

void copy_elements(const TensorRef& from, const TensorRef& to) {
  check_copy(from, to);
  if (nelements(from) == 0) return;
  if (!from.device.is_cpu() || !to.device.is_cpu()) return cuda::copy_elements(from, to);
  const std::vector<Dim> dims = common_walk(from, to);
  const auto* source = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<std::byte*>(to.data);
  if (from.dtype == to.dtype) return copy_same_type(dims, from.dtype.bytes(), source, target);
  const bool integers = !from.dtype.is_floating() && !to.dtype.is_floating();
  for_each_row(dims, source, target, [&](const std::byte* f, std::byte* t) {
    integers ? convert_row<std::int64_t>(dims.back(), from.dtype, f, to.dtype, t)
             : convert_row<double>(dims.back(), from.dtype, f, to.dtype, t);
  });
}

}  // namespace tegula
