// The outputs of a call: their shapes and dtypes, and what is asked of those that are given.
#include <fmt/format.h>

#include "ops/schema/binder.hpp"
#include "ops/schema/words.hpp"
#include "runtime/data/overlap.hpp"

namespace tegula::ops {

DType Binder::type_of_output(const TensorSpec& spec, const TensorRef* given) const {
  const TypeRule& rule = spec.type;
  if (rule.option_index >= 0) {
    const std::int64_t code =
        c_.values_[schema_.first_option_position() + static_cast<std::size_t>(rule.option_index)];
    if (code > 0) return DType{static_cast<TypeCode>(code - 1)};
    if (given != nullptr && rule.lists(given->dtype)) return given->dtype;
  }
  if (rule.like_index < 0) return rule.types.front();
  const TensorRef* like = c_.tensors_[static_cast<std::size_t>(rule.like_index)];
  if (like == nullptr) return rule.types.front();
  return rule.of_8_bits && like->dtype.bits() == 8 ? *rule.of_8_bits : like->dtype;
}

Shape Binder::shape_of_output(std::size_t index) const {
  Shape shape;
  shape.reserve(c_.lists_[index]->items.size() + c_.leading_.size());
  for (const DimItem& item : c_.lists_[index]->items) {
    if (item.leading)
      shape.insert(shape.end(), c_.leading_.begin(), c_.leading_.end());
    else if (!item.optional || is_met(item.extent.position))
      shape.push_back(item.extent.evaluate(c_.values()));
  }
  return shape;
}

void Binder::bind_outputs() {
  c_.outputs_.reserve(schema_.tensors.size() - schema_.inputs);
  for (std::size_t i = schema_.inputs; i < schema_.tensors.size(); ++i) bind_output(i);
  for (std::size_t i = 0; i < schema_.tensors.size(); ++i)
    if (const TensorRef* written = spec(i).get(c_.op_); written != nullptr && is_written(i))
      check_apart(i, *written);
}

// A kernel checks its own tensors: none of several may run before all are known to be right.
void Binder::check_apart(std::size_t index, const TensorRef& output) const {
  if (output.data == nullptr) return;
  if (overlaps_itself(output))
    args_.refuse(spec(index).name, "elements that share no memory", describe(output),
                 "pass a tensor without repetition");
  for (std::size_t i = 0; i < schema_.tensors.size(); ++i) {
    if (i == index || (is_written(i) && i < index)) continue;
    const TensorRef* other = spec(i).get(c_.op_);
    if (other != nullptr && share_bytes(output, *other))
      args_.refuse(spec(index).name, fmt::format("its own memory, not that of {}", spec(i).name),
                   describe(output), "pass another tensor");
  }
}

void Binder::bind_output(std::size_t index) {
  const TensorSpec& own = spec(index);
  const TensorRef* given = own.get(c_.op_);
  const bool wanted = !own.when || own.when->evaluate(c_.values()) != 0;
  if (!wanted) {
    if (given != nullptr)
      args_.refuse(own.name, fmt::format("no tensor unless {}", own.when->text()), describe(*given),
                   "leave it out");
    c_.outputs_.push_back(Tensor::adopt(TensorRef(nullptr, own.type.types.front(), {0}), nullptr));
    return;
  }
  for (const DimList& list : own.lists)
    if (!list.condition || list.condition->evaluate(c_.values()) != 0) {
      c_.lists_[index] = &list;
      break;
    }
  const Shape shape = shape_of_output(index);
  const DType type = type_of_output(own, given);
  if (given != nullptr) {
    check_given_output(index, *given, shape, type);
    c_.outputs_.push_back(Tensor::adopt(*given, nullptr));
  } else if (c_.memory_ == BoundCall::Memory::unused) {
    c_.outputs_.push_back(Tensor::adopt(TensorRef(nullptr, type, shape, c_.device_), nullptr));
  } else {
    c_.outputs_.push_back(c_.allocate_ != nullptr ? (*c_.allocate_)(index, shape, type, c_.device_)
                                                  : Tensor::empty(shape, type, c_.device_));
  }
  c_.tensors_[index] = &c_.outputs_.back().ref();
  c_.values_[schema_.first_tensor_position() + index] = 1;
}

void Binder::check_given_output(std::size_t index, const TensorRef& given, const Shape& shape,
                                DType type) const {
  const TensorSpec& own = spec(index);
  if (given.dtype != type)
    args_.refuse(own.name, fmt::format("dtype {}", type.name()), describe(given),
                 "convert the result afterwards");
  if (given.shape != shape)
    args_.refuse(own.name, fmt::format("{} = {}", text_of(*c_.lists_[index]), describe(shape)),
                 describe(given), own.remedy);
  if (given.data == nullptr && c_.memory_ == BoundCall::Memory::used && nelements(given) != 0)
    args_.refuse(own.name, "memory", describe(given) + " at a null pointer", "allocate it first");
  if (given.device != c_.device_)
    args_.refuse(own.name, "a tensor on " + c_.device_.name(), describe(given),
                 "copy the result there afterwards");
  if (own.unit_stride) args_.check_contiguous_features(own.name, given);
}

}  // namespace tegula::ops
