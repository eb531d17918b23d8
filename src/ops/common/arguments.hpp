// Checks of the arguments of operators. Every refusal says which argument, what was expected, what was given
// and what to do.
#pragma once
#include <fmt/format.h>

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula::ops {

// The arguments of one operator call.
class Arguments {
 public:
  explicit Arguments(std::string op) : op_(std::move(op)) {}

  [[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& given,
                           const std::string& remedy) const;
  // Texts may be strings, tensors, which are described, or functions that give a string, such as `worded`.
  template <class Argument, class Expected, class Given, class Remedy>
  void check(bool good, const Argument& argument, const Expected& expected, const Given& given,
             const Remedy& remedy) const {
    if (!good) refuse(text(argument), text(expected), text(given), text(remedy));
  }

  // A tensor of one of the types and ranks, on the device of the first one.
  void check_tensor(const std::string& name, const TensorRef& tensor, const std::vector<DType>& types,
                    const std::vector<int>& ranks) const;
  // As check_tensor, for a tensor of exactly this shape; `meaning` names the dimensions.
  void check_shape(const std::string& name, const TensorRef& tensor, DType type, const Shape& shape,
                   const std::string& meaning) const;
  // On the device of the first tensor that is checked.
  void check_device(const std::string& name, const TensorRef& tensor) const;
  void check_contiguous_features(const std::string& name, const TensorRef& tensor) const;

  using Named = std::vector<std::pair<const char*, std::optional<TensorRef>>>;
  // Outputs that the caller has given share no memory with inputs, each other or themselves. A kernel checks
  // its own tensors: this is for calls of several, none of which may run before all are known to be right.
  void check_apart(const Named& outputs, const Named& inputs) const;

  // The tensor to write: the caller's, which must fit, or a new one on the device.
  Tensor output(const std::string& name, const std::optional<TensorRef>& given, const Shape& shape,
                DType type, const std::string& meaning, const Device& device) const;

 private:
  static std::string text(std::string_view given) { return std::string(given); }
  static std::string text(const TensorRef& tensor) { return describe(tensor); }
  template <std::invocable F>
  static std::string text(const F& make) {
    return make();
  }

  std::string op_;
  // The first tensor's, and its name.
  mutable std::optional<Device> device_;
  mutable std::string first_;
};

// A text that is made if it is needed: a warm call of an operator takes less time than a few of them.
template <class... Values>
auto worded(fmt::format_string<Values...> text, Values... values) {
  return [checked = fmt::string_view(text), values...] {
    return fmt::vformat(checked, fmt::make_format_args(values...));
  };
}

inline const std::vector<DType> float_types = {f32, f16, bf16};
inline const std::vector<DType> gemm_types = {f32, f16, bf16, e4m3, e5m2};

// A positive finite scale; 1/√dim where none is given.
float checked_scale(const Arguments& args, const std::optional<float>& scale, std::int64_t dim);

}  // namespace tegula::ops
