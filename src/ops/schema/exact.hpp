// What a formula reads and writes: copies of a call's tensors in double precision, by name, in the form of
// programs; integers stay integers.
#pragma once
#include <bit>
#include <cstdint>
#include <map>

#include "ops/schema/bound.hpp"

namespace tegula::ops {

// Elements by their indices.
template <class Number>
struct ArrayOf {
  Number* data = nullptr;
  Shape extents;

  template <class... I>
  Number& operator()(I... indices) const {
    std::int64_t at = 0;
    std::size_t dim = 0;
    ((at = at * extents[dim++] + static_cast<std::int64_t>(indices)), ...);
    return data[at];
  }
  // Every element becomes what `value` says of its four indices.
  template <class F>
  void each(const F& value) const {
    Number* next = data;
    for (std::int64_t a = 0; a < extents[0]; ++a)
      for (std::int64_t b = 0; b < extents[1]; ++b)
        for (std::int64_t c = 0; c < extents[2]; ++c)
          for (std::int64_t d = 0; d < extents[3]; ++d) *next++ = value(a, b, c, d);
  }
};

class Exact {
 public:
  using Number = double;

  Exact(const BoundCall& call, DType steps) : call_(call), steps_(steps) {}

  // An input's copy, or an output of zeros to be written; contiguous.
  const Tensor& operator[](const std::string& tensor);
  // Its elements, f64.
  double* data(const std::string& tensor) { return (*this)[tensor].data_as<double>(); }
  double* data_if(const std::string& tensor) { return call_.has(tensor) ? data(tensor) : nullptr; }
  ArrayOf<double> array(const std::string& tensor) { return {data(tensor), (*this)[tensor].shape()}; }
  // An output in the shape of the call.
  void set(const std::string& output, const Tensor& result);
  // The value of a step as a computation in `steps` would have it.
  double rounded(double value) const { return steps_ == f64 ? value : round_to(steps_, value); }
  // The value as an operator stores it, whatever the steps are.
  static double stored(double value, DType type) { return round_to(type, value); }
  // What gradients compute with: rounded only there.
  static double step(double value) { return value; }
  DType steps() const { return steps_; }
  // Marks an output element that the operator does not write; it is not judged.
  static double unspecified() { return std::bit_cast<double>(unspecified_bits); }
  static bool is_unspecified(double value) { return std::bit_cast<std::uint64_t>(value) == unspecified_bits; }
  // The outputs in the shapes of the call.
  Tensors outputs();

 private:
  static constexpr std::uint64_t unspecified_bits = 0x7ff8'0000'0000'5eedU;  // a NaN of its own

  const BoundCall& call_;
  DType steps_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace tegula::ops
