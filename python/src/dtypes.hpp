// The names of dtypes in Python, which are those of NumPy, PyTorch and ml_dtypes.
#pragma once
#include <string_view>

#include "tegula/dtype.hpp"

namespace tegula::python {

inline const char* python_name(DType dtype) {
  struct Name {
    DType dtype;
    const char* name;
  };
  constexpr Name names[] = {
      {boolean, "bool"},  {i8, "int8"},     {i16, "int16"},          {i32, "int32"},        {i64, "int64"},
      {u8, "uint8"},      {u32, "uint32"},  {e4m3, "float8_e4m3fn"}, {e5m2, "float8_e5m2"}, {f16, "float16"},
      {bf16, "bfloat16"}, {f32, "float32"}, {f64, "float64"}};
  for (const Name& each : names)
    if (each.dtype == dtype) return each.name;
  return "";
}

}  // namespace tegula::python
