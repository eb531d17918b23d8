#include "ops/schema/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/data/overlap.hpp"

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

void Arguments::check_apart(const Named& outputs, const Named& inputs) const {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (!output->second) continue;
    if (overlaps_itself(*output->second))
      refuse(output->first, "elements that share no memory", describe(*output->second),
             "pass a tensor without overlapping elements");
    auto check_against = [&](const auto& other) {
      if (other.second && share_bytes(*output->second, *other.second))
        refuse(output->first, fmt::format("its own memory, not that of {}", other.first),
               describe(*output->second), "pass another tensor");
    };
    std::for_each(inputs.begin(), inputs.end(), check_against);
    std::for_each(output + 1, outputs.end(), check_against);
  }
}

void Arguments::check_contiguous_features(const std::string& name, const TensorRef& tensor) const {
  if (tensor.size(-1) > 1 && tensor.stride(-1) != 1 && nelements(tensor) != 0)
    refuse(name, "a last dimension of stride 1", describe(tensor), "pass a contiguous copy");
}

}  // namespace tegula::ops
