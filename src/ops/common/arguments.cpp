#include "ops/common/arguments.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/binding_memory.hpp"

namespace tegula::ops {

namespace {

template <class T, class F>
std::string alternatives(const std::vector<T>& values, F text) {
  std::string result;
  for (std::size_t i = 0; i < values.size(); ++i)
    result += (i == 0 ? "" : i + 1 == values.size() ? " or " : ", ") + text(values[i]);
  return result;
}

}  // namespace

void Arguments::refuse(const std::string& argument, const std::string& expected, const std::string& given,
                       const std::string& remedy) const {
  throw ArgumentError(
      fmt::format("{}, argument '{}': expected {}, given {}; {}", op_, argument, expected, given, remedy));
}

void Arguments::check_tensor(const std::string& name, const TensorRef& tensor,
                             const std::vector<DType>& types, const std::vector<int>& ranks) const {
  const auto has = [](const auto& values, const auto& value) {
    return std::find(values.begin(), values.end(), value) != values.end();
  };
  const auto is_small = [](std::int64_t extent) { return extent >= 0 && extent < (std::int64_t{1} << 29); };
  if (!has(types, tensor.dtype))
    refuse(name, "dtype " + alternatives(types, [](DType t) { return std::string(t.name()); }),
           describe(tensor), "convert it");
  if (!has(ranks, tensor.rank()))
    refuse(name, "rank " + alternatives(ranks, [](int r) { return std::to_string(r); }), describe(tensor),
           "reshape it");
  if (!std::all_of(tensor.shape.begin(), tensor.shape.end(), is_small))
    refuse(name, "extents below 2^29", describe(tensor), "split the call");
  if (tensor.data == nullptr && nelements(tensor) != 0)
    refuse(name, "memory", describe(tensor) + " at a null pointer", "allocate it first");
  check_device(name, tensor);
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
             "pass a tensor without repetition");
    auto check_against = [&](const auto& other) {
      if (other.second && share_bytes(*output->second, *other.second))
        refuse(output->first, fmt::format("memory of its own, not that of {}", other.first),
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

void Arguments::check_shape(const std::string& name, const TensorRef& tensor, DType type, const Shape& shape,
                            const std::string& meaning) const {
  check_tensor(name, tensor, {type}, {static_cast<int>(shape.size())});
  if (tensor.shape != shape)
    refuse(name, fmt::format("{} = {}", meaning, describe(shape)), describe(tensor), "give it that shape");
}

Tensor Arguments::output(const std::string& name, const std::optional<TensorRef>& given, const Shape& shape,
                         DType type, const std::string& meaning, const Device& device) const {
  if (!given) return Tensor::empty(shape, type, device);
  check_shape(name, *given, type, shape, meaning);
  if (given->device != device)
    refuse(name, "a tensor on " + device.name(), describe(*given), "copy the result there afterwards");
  return Tensor::adopt(*given, nullptr);
}

float checked_scale(const Arguments& args, const std::optional<float>& scale, std::int64_t dim) {
  if (!scale) return 1.f / std::sqrt(static_cast<float>(dim));
  args.check(std::isfinite(*scale) && *scale > 0, "scale", "a positive finite number", worded("{}", *scale),
             "negate q for a negative scale");
  return *scale;
}

}  // namespace tegula::ops
