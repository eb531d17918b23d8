#include "array_interface.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>
#include <utility>

namespace tegula::python {

namespace nb = nanobind;

namespace {

DType dtype_of(const char* name, const std::string& type, const std::string& type_name) {
  constexpr std::pair<std::string_view, DType> known[] = {
      {"b1", boolean}, {"i1", i8},  {"i2", i16}, {"i4", i32}, {"i8", i64},
      {"u1", u8},      {"u4", u32}, {"f2", f16}, {"f4", f32}, {"f8", f64}};
  constexpr char foreign = std::endian::native == std::endian::little ? '>' : '<';
  for (const auto& [code, dtype] : known)
    if (type.substr(1) == code && type[0] != foreign) return dtype;
  // To NumPy those of ml_dtypes are bytes without a meaning; only their name tells them apart.
  constexpr std::pair<std::string_view, DType> of_ml_dtypes[] = {
      {"float8_e4m3fn", e4m3}, {"float8_e5m2", e5m2}, {"bfloat16", bf16}};
  for (const auto& [known_name, dtype] : of_ml_dtypes)
    if (type_name == known_name && type[0] != foreign) return dtype;
  throw nb::type_error(
      fmt::format("{}: elements of NumPy's type '{}' are not supported", name, type_name).c_str());
}

Shape integers(nb::handle sequence) {
  Shape result;
  for (nb::handle item : sequence) result.push_back(nb::cast<std::int64_t>(item));
  return result;
}

}  // namespace

namespace {

DescribedArray described_by(const char* name, nb::handle object) {
  const nb::object interface = object.attr("__array_interface__");
  const nb::str code(interface["typestr"]);
  const nb::object type = nb::getattr(object, "dtype", code);
  const nb::str type_name(type);
  const DType dtype = dtype_of(name, code.c_str(), type_name.c_str());
  auto* data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(interface["data"][0]));
  const bool read_only = nb::cast<bool>(interface["data"][1]);
  Shape shape = integers(interface["shape"]);
  const nb::object steps = interface.attr("get")("strides");
  if (steps.is_none()) return {TensorRef(data, dtype, std::move(shape)), read_only};
  Shape strides = integers(steps);
  for (std::int64_t& stride : strides) {
    if (stride % dtype.bytes() != 0)
      throw nb::value_error(
          fmt::format(
              "{}: a stride of {} bytes is not a multiple of the element size {}; pass a copy of the array",
              name, stride, dtype.bytes())
              .c_str());
    stride /= dtype.bytes();
  }
  return {TensorRef(data, dtype, std::move(shape), std::move(strides)), read_only};
}

}  // namespace

std::optional<DescribedArray> read_buffer(nb::handle array) {
  constexpr std::pair<char, DType> known[] = {{'?', boolean}, {'b', i8},  {'h', i16}, {'i', i32},
                                              {'l', i64},     {'q', i64}, {'B', u8},  {'I', u32},
                                              {'e', f16},     {'f', f32}, {'d', f64}};
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  std::optional<DescribedArray> result;
  const std::string_view format = buffer.format;
  for (const auto& [code, dtype] : known) {
    if (format.size() != 1 || format[0] != code || buffer.itemsize != dtype.bytes()) continue;
    Shape strides(buffer.strides, buffer.strides + buffer.ndim);
    if (std::ranges::any_of(strides, [&](std::int64_t bytes) { return bytes % buffer.itemsize != 0; })) break;
    for (std::int64_t& stride : strides) stride /= buffer.itemsize;
    result = {
        TensorRef(buffer.buf, dtype, Shape(buffer.shape, buffer.shape + buffer.ndim), std::move(strides)),
        buffer.readonly != 0};
    break;
  }
  PyBuffer_Release(&buffer);
  return result;
}

DescribedArray read_array_interface(const char* name, nb::handle object) {
  try {
    return described_by(name, object);
  } catch (const nb::cast_error&) {
    throw nb::type_error(
        fmt::format("{}: its __array_interface__ is not of the form that NumPy defines", name).c_str());
  }
}

}  // namespace tegula::python
