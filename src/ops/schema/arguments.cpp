#include "ops/schema/arguments.hpp"

#include <fmt/format.h>

namespace tegula::ops {

void Arguments::refuse(const std::string& argument, const std::string& expected, const std::string& given,
                       const std::string& remedy) const {
  throw ArgumentError(
      fmt::format("{}, argument '{}': expected {}, given {}; {}", op_, argument, expected, given, remedy));
}

void Arguments::check_device(const std::string& name, const TensorRef& tensor) const {
  if (!device_) device_ = tensor.device, first_ = name;
  if (tensor.device != *device_)
    refuse(name, fmt::format("a tensor on {}, as {}", device_->name(), first_), describe(tensor),
           "copy it there");
}

void Arguments::check_contiguous_features(const std::string& name, const TensorRef& tensor) const {
  if (tensor.size(-1) > 1 && tensor.stride(-1) != 1 && nelements(tensor) != 0)
    refuse(name, "a last dimension of stride 1", describe(tensor), "pass a contiguous copy");
}

}  // namespace tegula::ops
