#include "ops/schema/binder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ops/schema/functions.hpp"
#include "ops/schema/words.hpp"

namespace tegula::ops {

namespace {

constexpr std::int64_t largest_extent = std::int64_t{1} << 29;

std::size_t optional_items(const DimList& list) {
  return static_cast<std::size_t>(
      std::count_if(list.items.begin(), list.items.end(), [](const DimItem& i) { return i.optional; }));
}

std::string ranks_of(const DimList& list) {
  const std::size_t all = list.items.size();
  if (all > 0 && list.items.front().leading) return fmt::format("{} or more", all - 1);
  if (optional_items(list) == 0) return std::to_string(all);
  return fmt::format("{} or {}", all - optional_items(list), all);
}

}  // namespace

void Binder::bind() {
  c_.values_.assign(schema_.positions(), 0);
  c_.tensors_.assign(schema_.tensors.size(), nullptr);
  c_.lists_.assign(schema_.tensors.size(), nullptr);
  sources_.assign(schema_.dims.size(), -1);
  read_options();
  check_options();
  check_requirements(true);
  bind_inputs();
  if (!waiting_.empty())
    throw InternalError(
        fmt::format("{}: no tensor determines {}", schema_.name, waiting_.front().item->extent.text()));
  derive();
  check_requirements(false);
  c_.target_ = target_for(schema_.target(c_.op_), c_.device_);
  bind_outputs();
}

void Binder::read_options() {
  std::size_t position = schema_.first_option_position();
  for (const OptionSpec& option : schema_.options) c_.values_[position++] = option.number(c_.op_);
  for (std::size_t i = 0; i < schema_.inputs; ++i) c_.values_[position++] = spec(i).get(c_.op_) != nullptr;
}

namespace {

bool is_allowed(const OptionSpec& option, const void* op) {
  if (option.kind != OptionKind::dtype) return option.obeys(op);
  const OptionValue value = option.get(op);
  const auto* name = std::get_if<std::string>(&value);
  return name == nullptr ||
         std::find(option.choices.begin(), option.choices.end(), *name) != option.choices.end();
}

}  // namespace

void Binder::check_options() const {
  for (const OptionSpec& option : schema_.options)
    if (!is_allowed(option, c_.op_))
      args_.refuse(option.name, expected_of(option), text_of(option.get(c_.op_)), option.rule.remedy);
}

void Binder::bind_inputs() {
  for (std::size_t i = 0; i < schema_.inputs; ++i) {
    c_.tensors_[i] = spec(i).get(c_.op_);
    if (c_.tensors_[i] == nullptr && !spec(i).optional)
      args_.refuse(spec(i).name, "a tensor", "none, or one without rank and memory", "pass one");
  }
  for (const bool follows : {false, true}) {
    for (std::size_t i = 0; i < schema_.inputs; ++i)
      if (c_.tensors_[i] != nullptr && spec(i).follows == follows) bind_input(i);
    // What these determine is known before the inputs that follow, whose extents are wrong where they differ.
    while (solve_some()) {}
  }
}

void Binder::bind_input(std::size_t index) {
  const TensorRef& tensor = *c_.tensors_[index];
  check_type(index, tensor);
  choose_list(index, tensor);
  const auto is_small = [](std::int64_t extent) { return extent >= 0 && extent < largest_extent; };
  if (!std::all_of(tensor.shape.begin(), tensor.shape.end(), is_small))
    args_.refuse(spec(index).name, "extents below 2^29", describe(tensor), "split the call");
  if (tensor.data == nullptr && c_.memory_ == BoundCall::Memory::used && nelements(tensor) != 0)
    args_.refuse(spec(index).name, "memory", describe(tensor) + " at a null pointer", "allocate it first");
  c_.device_ = tensor.device;
  args_.check_device(spec(index).name, tensor);
  if (spec(index).unit_stride) args_.check_contiguous_features(spec(index).name, tensor);
  bind_dims(index, tensor);
}

void Binder::check_type(std::size_t index, const TensorRef& tensor) const {
  const TypeRule& rule = spec(index).type;
  const TensorRef* like =
      rule.like_index < 0 ? nullptr : c_.tensors_[static_cast<std::size_t>(rule.like_index)];
  if (like != nullptr && rule.lists(like->dtype)) {
    if (tensor.dtype == like->dtype) return;
    args_.refuse(spec(index).name, fmt::format("dtype {}, as {}", like->dtype.name(), rule.like),
                 describe(tensor), "convert it");
  }
  if (!rule.lists(tensor.dtype))
    args_.refuse(spec(index).name, "dtype " + names_of(rule.types), describe(tensor), "convert it");
}

void Binder::choose_list(std::size_t index, const TensorRef& tensor) {
  for (const DimList& list : spec(index).lists) {
    if (list.condition && list.condition->evaluate(c_.values()) == 0) continue;
    c_.lists_[index] = &list;
    break;
  }
  const DimList& list = *c_.lists_[index];
  const std::size_t rank = tensor.shape.size(), all = list.items.size();
  const bool folds = all > 0 && list.items.front().leading;
  if (folds ? rank + 1 < all : rank != all && rank != all - optional_items(list))
    args_.refuse(spec(index).name,
                 fmt::format("rank {}, {}{}", ranks_of(list), text_of(list),
                             list.condition ? " with " + list.condition->text() : ""),
                 describe(tensor), "reshape it");
}

void Binder::bind_dims(std::size_t index, const TensorRef& tensor) {
  const std::vector<DimItem>& items = c_.lists_[index]->items;
  const std::size_t rank = tensor.shape.size();
  const bool folds = !items.empty() && items.front().leading, misses = !folds && rank < items.size();
  std::size_t dim = 0;
  for (const DimItem& item : items) {
    if (item.leading) {
      bind_leading(index, tensor, rank + 1 - items.size());
      dim = rank + 1 - items.size();
    } else if (!misses || !item.optional) {
      bind_extent(index, dim, item, tensor.shape[dim]);
      ++dim;
    }
  }
}

void Binder::bind_leading(std::size_t index, const TensorRef& tensor, std::size_t count) {
  const Shape leading(tensor.shape.begin(), tensor.shape.begin() + static_cast<std::ptrdiff_t>(count));
  const int position = schema_.position_of("rows");
  if (!is_met(position)) {
    c_.leading_ = leading;
    c_.met_ |= std::uint64_t{1} << position;
    sources_[static_cast<std::size_t>(position)] = static_cast<int>(index);
    std::int64_t rows = 1;
    for (std::int64_t extent : leading) rows *= extent;
    c_.values_[static_cast<std::size_t>(position)] = rows;
  } else if (c_.leading_ != leading) {
    args_.refuse(
        spec(index).name,
        fmt::format("{} with leading {}, as {}", text_of(*c_.lists_[index]), describe(c_.leading_),
                    spec(static_cast<std::size_t>(sources_[static_cast<std::size_t>(position)])).name),
        describe(tensor), spec(index).remedy);
  }
}

void Binder::bind_extent(std::size_t index, std::size_t dim, const DimItem& item, std::int64_t extent) {
  const Expression& e = item.extent;
  const bool is_dim = e.is_name() && e.position < static_cast<int>(schema_.dims.size());
  if (!is_dim) {
    if (!is_known(e)) return waiting_.push_back({index, dim, &item});
    if (e.evaluate(c_.values()) != extent) refuse_extent(index, e);
    return;
  }
  std::int64_t& value = c_.values_[static_cast<std::size_t>(e.position)];
  const std::uint64_t bit = std::uint64_t{1} << e.position;
  const bool was_repeated = (repeated_ & bit) != 0;
  if (!is_met(e.position) || (was_repeated && value == 1 && item.repeats)) {
    set(e, extent, index);
    if (item.repeats) repeated_ |= bit;
  } else if (value != extent && !(item.repeats && extent == 1)) {
    refuse_extent(index, e, item.repeats);
  }
}

void Binder::set(const Expression& name, std::int64_t value, std::size_t tensor) {
  c_.values_[static_cast<std::size_t>(name.position)] = value;
  c_.met_ |= std::uint64_t{1} << name.position;
  sources_[static_cast<std::size_t>(name.position)] = static_cast<int>(tensor);
}

// A derived value is known, and has its value from then on, as soon as all is that it follows from.
bool Binder::is_known(const Expression& e) {
  if (e.op != Expression::Op::name)
    return std::all_of(e.args.begin(), e.args.end(), [&](const Expression& arg) { return is_known(arg); });
  const auto position = static_cast<std::size_t>(e.position), first = schema_.dims.size();
  if (position < first) return is_met(e.position);
  if (position >= first + schema_.derived.size()) return true;
  const Expression& value = schema_.derived[position - first].value;
  if (!is_known(value)) return false;
  c_.values_[position] = value.evaluate(c_.values());
  return true;
}

bool Binder::solve_some() {
  return std::erase_if(waiting_, [&](const Waiting& waiting) { return solve(waiting); }) != 0;
}

// name + c, name - c, name * c and c * name with one unknown name.
bool Binder::solve(const Waiting& waiting) {
  const Expression& e = waiting.item->extent;
  const std::int64_t extent = c_.tensors_[waiting.tensor]->shape[waiting.dim];
  if (is_known(e)) {
    if (e.evaluate(c_.values()) != extent) refuse_extent(waiting.tensor, e);
    return true;
  }
  if (e.args.size() != 2) return false;
  const bool left_known = is_known(e.args[0]);
  if (!left_known && !is_known(e.args[1])) return false;
  const Expression& unknown = e.args[left_known ? 1 : 0];
  const std::int64_t known = e.args[left_known ? 0 : 1].evaluate(c_.values());
  if (!unknown.is_name()) return false;
  std::int64_t value = 0;
  if (e.op == Expression::Op::add) {
    value = extent - known;
  } else if (e.op == Expression::Op::subtract && !left_known) {
    value = extent + known;
  } else if (e.op == Expression::Op::multiply) {
    // Where nothing is multiplied any factor is right.
    if (known == 0 ? extent != 0 : extent % known != 0) refuse_extent(waiting.tensor, e);
    value = known == 0 ? 1 : extent / known;
  } else {
    return false;
  }
  if (value < 0) refuse_extent(waiting.tensor, e);
  set(unknown, value, waiting.tensor);
  return true;
}

void Binder::refuse_extent(std::size_t index, const Expression& extent, bool repeats) const {
  std::string known;
  extent.each_name([&](const Expression& name) {
    const auto position = static_cast<std::size_t>(name.position);
    if (position < sources_.size() && sources_[position] < 0) return;
    known += fmt::format("{}{} = {}", known.empty() ? "" : ", ", name.name, c_.values_[position]);
    if (position < sources_.size() && sources_[position] != static_cast<int>(index))
      known += ", as " + spec(static_cast<std::size_t>(sources_[position])).name;
  });
  const std::string remedy =
      repeats ? fmt::format("give both the same {}", extent.text()) : spec(index).remedy;
  args_.refuse(spec(index).name,
               fmt::format("{}{}{}{}", text_of(*c_.lists_[index]), known.empty() ? "" : " with ", known,
                           repeats ? ", or 1" : ""),
               describe(*c_.tensors_[index]), remedy);
}

void Binder::derive() {
  for (std::size_t position = 0; position < schema_.dims.size(); ++position)
    if (!is_met(static_cast<int>(position))) c_.values_[position] = 1;
  std::size_t position = schema_.dims.size();
  for (const NamedExpression& derived : schema_.derived)
    c_.values_[position++] = derived.value.evaluate(c_.values());
  for (std::size_t i = 0; i < schema_.inputs; ++i)
    if (spec(i).packs && c_.tensors_[i] != nullptr) check_packing(i);
}

void Binder::check_packing(std::size_t index) {
  const PackingSpec& packing = *spec(index).packs;
  const TensorRef& fences = *c_.tensors_[index];
  const std::int64_t tokens = packing.tokens.evaluate(c_.values());
  const bool has_promise = packing.promise_position >= 0;
  const std::int64_t promise =
      has_promise ? c_.values_[static_cast<std::size_t>(packing.promise_position)] : 0;
  std::int64_t unused = 0;
  std::int64_t& longest =
      has_promise ? c_.values_[static_cast<std::size_t>(packing.longest_position)] : unused;
  longest = promise > 0 ? std::min(promise, tokens) : tokens;
  if (!fences.device.is_cpu() || fences.data == nullptr) return;
  const auto* at = fences.data_as<const std::int32_t>();
  const std::int64_t count = fences.shape[0], stride = fences.strides[0];
  const auto wrong = [&](std::int64_t i) {
    args_.refuse(spec(index).name,
                 fmt::format("numbers that start with 0, never fall and end with {}{} tokens",
                             packing.ends_early ? "at most " : "", tokens),
                 fmt::format("{} at position {}", at[i * stride], i), "correct the lengths of the sequences");
  };
  longest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t before = i == 0 ? 0 : at[(i - 1) * stride], own = at[i * stride];
    if (own < before || (i == 0 && own != 0) || own > tokens ||
        (i + 1 == count && own != tokens && !packing.ends_early))
      wrong(i);
    longest = std::max(longest, own - before);
  }
  if (promise > 0 && longest > promise)
    args_.refuse(packing.promise, fmt::format("at least {}, the longest sequence", longest),
                 std::to_string(promise), "correct it");
}

void Binder::check_requirements(bool of_options) const {
  for (const RequirementSpec& rule : schema_.requirements) {
    if (rule.of_options != of_options) continue;
    const bool good = rule.condition ? rule.condition->evaluate(c_.values()) != 0 : rule.holds(c_);
    if (good) continue;
    const TensorSpec* tensor = schema_.find_tensor(rule.argument);
    const OptionSpec* option = schema_.find_option(rule.argument);
    const TensorRef* given = tensor != nullptr ? tensor->get(c_.op_) : nullptr;
    args_.refuse(rule.argument, with_values(rule.expected, c_),
                 given != nullptr    ? describe(*given)
                 : option != nullptr ? text_of(option->get(c_.op_))
                                     : "none",
                 with_values(rule.remedy, c_));
  }
}

}  // namespace tegula::ops
