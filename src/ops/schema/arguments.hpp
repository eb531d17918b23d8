// Checks of the arguments of operators. Every error names the argument, what was expected, what was given and
// the remedy.
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "tegula/error.hpp"
#include "tegula/tensor.hpp"

namespace tegula::ops {

// The arguments of one operator call.
class Arguments {
 public:
  explicit Arguments(std::string op) : op_(std::move(op)) {}

  [[noreturn]] void refuse(const std::string& argument, const std::string& expected, const std::string& given,
                           const std::string& remedy) const;
  // On the device of the first tensor that is checked.
  void check_device(const std::string& name, const TensorRef& tensor) const;
  void check_contiguous_features(const std::string& name, const TensorRef& tensor) const;

 private:
  std::string op_;
  // The first tensor's, and its name.
  mutable std::optional<Device> device_;
  mutable std::string first_;
};

}  // namespace tegula::ops
