#include "ops/schema/bound.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ops/schema/arguments.hpp"
#include "ops/schema/binder.hpp"
#include "ops/schema/functions.hpp"

namespace tegula::ops {

BoundCall::BoundCall(const OperatorSchema& schema, const void* op, Memory memory, const Allocate* allocate)
    : schema_(&schema), op_(op), memory_(memory), allocate_(allocate) {
  Binder(*this).bind();
}

// The binder has asked target_for(), which reads the environment: a call asks for this several times.
bool BoundCall::on_gpu() const { return is_planned_for_gpus(target_); }

bool BoundCall::is_empty() const {
  const auto writes = [&](std::size_t i) {
    return schema_->tensors[i].written && tensors_[i] != nullptr && nelements(*tensors_[i]) != 0;
  };
  for (std::size_t i = 0; i < schema_->inputs; ++i)
    if (writes(i)) return false;
  return std::all_of(outputs_.begin(), outputs_.end(), [](const Tensor& t) { return t.nelements() == 0; });
}

std::size_t BoundCall::position(std::string_view name) const {
  const auto& dims = schema_->dims;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] == name) return i;
  const int found = schema_->position_of(std::string(name));
  if (found < 0) throw InternalError(fmt::format("{} has no dim '{}'", schema_->name, name));
  return static_cast<std::size_t>(found);
}

std::size_t BoundCall::index_of(std::string_view tensor) const {
  const auto& all = schema_->tensors;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name == tensor) return i;
  throw InternalError(fmt::format("{} has no tensor '{}'", schema_->name, tensor));
}

const TensorRef& BoundCall::operator[](std::string_view tensor) const {
  const TensorRef* found = at(index_of(tensor));
  if (found == nullptr) throw InternalError(fmt::format("{}: '{}' is not given", schema_->name, tensor));
  return *found;
}

std::optional<DType> BoundCall::type_if(std::string_view tensor) const {
  const TensorRef* found = at(index_of(tensor));
  return found == nullptr ? std::nullopt : std::optional(found->dtype);
}

namespace {

std::int64_t product(const Shape& shape, std::size_t first, std::size_t count) {
  std::int64_t result = 1;
  for (std::size_t i = first; i < first + count; ++i) result *= shape[i];
  return result;
}

bool is_plain(const DimList& list, std::size_t rank) {
  return list.items.size() == rank && list.order.empty() &&
         std::none_of(list.items.begin(), list.items.end(),
                      [](const DimItem& i) { return i.leading || i.repeats || i.splits; });
}

const DimItem& item_of_program(const DimList& list, std::size_t i) {
  return list.items[list.order.empty() ? i : static_cast<std::size_t>(list.order[i])];
}

// Dimension `dim` of `from`, of the item's extent.
void append(TensorRef& to, const TensorRef& from, std::size_t dim, const DimItem& item,
            const std::int64_t* values) {
  if (item.splits) {
    const std::int64_t inner = item.extent.args[1].evaluate(values);
    to.shape.insert(to.shape.end(), {item.extent.args[0].evaluate(values), inner});
    to.strides.insert(to.strides.end(), {from.strides[dim] * inner, from.strides[dim]});
    return;
  }
  const std::int64_t extent = item.repeats ? item.extent.evaluate(values) : from.shape[dim];
  to.shape.push_back(extent);
  to.strides.push_back(extent == from.shape[dim] ? from.strides[dim] : 0);
}

}  // namespace

Shape BoundCall::formed_shape(std::size_t tensor) const {
  const DimList& list = *lists_[tensor];
  Shape result;
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const DimItem& item = item_of_program(list, i);
    if (item.leading)
      result.push_back(product(leading_, 0, leading_.size()));
    else if (item.splits)
      for (const Expression& factor : item.extent.args) result.push_back(factor.evaluate(values()));
    else
      result.push_back(item.extent.evaluate(values()));
  }
  return result;
}

TensorRef BoundCall::formed(std::size_t tensor, const TensorRef& own) const {
  const DimList& list = *lists_[tensor];
  if (is_plain(list, own.shape.size())) return own;
  if (list.items.front().leading) return folded(tensor, own, formed_shape(tensor));
  const bool misses = own.shape.size() < list.items.size();
  TensorRef result;
  result.data = own.data, result.dtype = own.dtype, result.device = own.device;
  result.shape.reserve(list.items.size() + 1), result.strides.reserve(list.items.size() + 1);
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    const DimItem& item = item_of_program(list, i);
    const auto is_there = [&](const DimItem& each) { return !misses || !each.optional; };
    if (is_there(item)) {
      append(result, own, static_cast<std::size_t>(std::count_if(list.items.data(), &item, is_there)), item,
             values());
    } else {
      result.shape.push_back(item.extent.evaluate(values()));
      result.strides.push_back(0);
    }
  }
  return result;
}

double BoundCall::real(std::string_view name) const {
  for (const OptionSpec& option : schema_->options) {
    if (option.name != name) continue;
    const OptionValue value = option.get(op_);
    if (const auto* given = std::get_if<double>(&value)) return *given;
    if (option.otherwise) return option.otherwise->evaluate_real(this->values());
  }
  throw InternalError(fmt::format("{}: the option '{}' has no real value", schema_->name, name));
}

TensorRef BoundCall::rows(std::string_view tensor, int dims) const {
  const std::size_t index = index_of(tensor);
  const Shape& own = tensors_[index]->shape;
  Shape shape{product(own, 0, static_cast<std::size_t>(dims))};
  shape.insert(shape.end(), own.begin() + dims, own.end());
  return folded(index, *tensors_[index], shape);
}

TensorRef BoundCall::folded(std::size_t tensor, const TensorRef& own, const Shape& shape) const {
  if (const auto view = own.try_reshape(shape)) return *view;
  const TensorSpec& spec = schema_->tensors[tensor];
  if (spec.output || spec.written)
    Arguments(schema_->name)
        .refuse(spec.name, "rows at equal distances", describe(own), "pass a contiguous tensor");
  if (memory_ == Memory::unused) return TensorRef(nullptr, own.dtype, shape, own.device);
  copies_.push_back(Tensor::adopt(own, nullptr).contiguous().reshape(shape));
  return copies_.back().ref();
}

Tensor BoundCall::output(std::string_view tensor) const {
  const std::size_t index = index_of(tensor);
  if (index < schema_->inputs) return Tensor::adopt((*this)[tensor], nullptr);
  return outputs_.at(index - schema_->inputs);
}

Tensors BoundCall::outputs() const {
  Tensors result;
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (const TensorSpec& spec = schema_->tensors[i]; tensors_[i] != nullptr && (spec.output || spec.written))
      result.emplace(spec.name, output(spec.name));
  return result;
}

double BoundCall::bytes() const {
  double sum = 0;
  for (const TensorRef* tensor : tensors_)
    if (tensor != nullptr) sum += static_cast<double>(nelements(*tensor)) * tensor->dtype.bytes();
  return sum;
}

namespace {

// The boundaries of packed sequences that can be read here, or null.
const TensorRef* known_boundaries(const TensorSpec& spec, const TensorRef* tensor) {
  const bool is_known = spec.packs && tensor != nullptr && tensor->data != nullptr && tensor->device.is_cpu();
  return is_known ? tensor : nullptr;
}

}  // namespace

// The formula counts one sequence of packed ones, where their lengths are known, after the other.
double BoundCall::flops_of_formula() const {
  const int sequences = schema_->position_of("sequences");
  std::vector<std::int64_t> own = values_;
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < schema_->inputs; ++i)
    if (known_boundaries(schema_->tensors[i], tensors_[i]) != nullptr) count = tensors_[i]->size(0) - 1;
  if (count == 0 || sequences < 0) return schema_->flops->evaluate_real(values());
  own[static_cast<std::size_t>(sequences)] = 1;
  for (std::int64_t sequence = 0; sequence < count; ++sequence) {
    for (std::size_t i = 0; i < schema_->inputs; ++i)
      if (const TensorRef* at = known_boundaries(schema_->tensors[i], tensors_[i]))
        own[static_cast<std::size_t>(schema_->tensors[i].packs->tokens.position)] =
            static_cast<std::int64_t>(at->get({sequence + 1}) - at->get({sequence}));
    sum += schema_->flops->evaluate_real(own.data());
  }
  return sum;
}

double BoundCall::flops() const {
  const bool has_memory =
      std::all_of(tensors_.begin(), tensors_.begin() + static_cast<std::ptrdiff_t>(schema_->inputs),
                  [](const TensorRef* tensor) {
                    return tensor == nullptr || (tensor->data != nullptr && tensor->device.is_cpu()) ||
                           nelements(*tensor) == 0;
                  });
  if (schema_->counted && has_memory) return schema_->counted(*this);
  return schema_->flops ? flops_of_formula() : 0;
}

}  // namespace tegula::ops
