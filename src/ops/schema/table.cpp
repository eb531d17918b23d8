#include "ops/schema/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tegula/error.hpp"

namespace tegula::ops {

std::string_view name_of(OptionKind kind) {
  constexpr std::string_view names[] = {"bool", "integer", "number", "choice", "dtype"};
  return names[static_cast<int>(kind)];
}

std::vector<std::string> stepped(const std::string& text, int first, int last, int step) {
  std::vector<std::string> result;
  for (int number = first; number <= last; number += step) {
    std::string one;
    for (const char c : text) one += c == '#' ? std::to_string(number) : std::string(1, c);
    result.push_back(std::move(one));
  }
  return result;
}

const TensorRef* TensorSpec::get(const void* op) const {
  const std::byte* at = static_cast<const std::byte*>(op) + offset;
  if (!holds_optional) {
    // An input without rank and memory has not been given.
    const auto* tensor = reinterpret_cast<const TensorRef*>(at);
    return tensor->data == nullptr && tensor->shape.empty() ? nullptr : tensor;
  }
  const auto& tensor = *reinterpret_cast<const std::optional<TensorRef>*>(at);
  return tensor ? &*tensor : nullptr;
}

void TensorSpec::set(void* op, const TensorRef& tensor) const {
  std::byte* at = static_cast<std::byte*>(op) + offset;
  if (holds_optional)
    *reinterpret_cast<std::optional<TensorRef>*>(at) = tensor;
  else
    *reinterpret_cast<TensorRef*>(at) = tensor;
}

namespace {

using Words = std::vector<std::string>;

DimItem item_of(std::string word) {
  DimItem item;
  if (word == "...") {
    item.leading = true;
    item.extent.op = Expression::Op::name, item.extent.name = "rows";
    return item;
  }
  if (word.front() == '[') item.optional = true, word = word.substr(1, word.size() - 2);
  if (word.front() == '~') item.repeats = true, word = word.substr(1);
  item.extent = Expression::parse(word);
  item.splits = word.front() == '(' && word.back() == ')' && item.extent.op == Expression::Op::multiply;
  return item;
}

// A condition, `?`, a list, `:`, and so on.
std::vector<DimList> lists_of(const Words& words) {
  std::vector<DimList> result;
  for (std::size_t i = 0; i < words.size() || result.empty();) {
    DimList list;
    if (i + 1 < words.size() && words[i + 1] == "?") list.condition = Expression::parse(words[i]), i += 2;
    while (i < words.size() && words[i] != ":") list.items.push_back(item_of(words[i++]));
    ++i;
    result.push_back(std::move(list));
  }
  return result;
}

template <class T>
int position(const std::vector<T>& all, const std::string& name) {
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].name == name) return static_cast<int>(i);
  return -1;
}

}  // namespace

std::vector<DimList> parse_dims(const std::string& text) {
  std::istringstream stream(text);
  Words words;
  for (std::string word; stream >> word;) words.push_back(word);
  return lists_of(words);
}

OperatorSchema::OperatorSchema() = default;
OperatorSchema::~OperatorSchema() = default;
OperatorSchema::OperatorSchema(const OperatorSchema&) = default;
OperatorSchema::OperatorSchema(OperatorSchema&&) noexcept = default;
OperatorSchema& OperatorSchema::operator=(const OperatorSchema&) = default;
OperatorSchema& OperatorSchema::operator=(OperatorSchema&&) noexcept = default;

int OperatorSchema::position_of(const std::string& wanted) const {
  const auto dim = std::find(dims.begin(), dims.end(), wanted);
  if (dim != dims.end()) return static_cast<int>(dim - dims.begin());
  if (const int i = position(derived, wanted); i >= 0) return static_cast<int>(dims.size()) + i;
  if (const int i = position(options, wanted); i >= 0) return static_cast<int>(first_option_position()) + i;
  if (const int i = position(tensors, wanted); i >= 0) return static_cast<int>(first_tensor_position()) + i;
  return -1;
}

const TensorSpec* OperatorSchema::find_tensor(const std::string& tensor) const {
  const int i = position(tensors, tensor);
  return i < 0 ? nullptr : &tensors[static_cast<std::size_t>(i)];
}

const OptionSpec* OperatorSchema::find_option(const std::string& option) const {
  const int i = position(options, option);
  return i < 0 ? nullptr : &options[static_cast<std::size_t>(i)];
}

bool OperatorSchema::writes_inputs() const {
  return std::any_of(tensors.begin(), tensors.end(), [](const TensorSpec& tensor) { return tensor.written; });
}

const OperatorSchema* OperatorSchema::forward() const {
  for (const OperatorSchema* schema : operator_schemas())
    if (schema->gradient == name) return schema;
  return nullptr;
}

namespace {

// Gives the names of an expression their positions.
class Resolver {
 public:
  explicit Resolver(OperatorSchema& schema) : schema_(schema) {}

  // Names of an input's extents that stand for nothing else are dims.
  void declare(Expression& e) const {
    e.each_name([&](Expression& name) {
      if (schema_.position_of(name.name) < 0) schema_.dims.push_back(name.name);
    });
  }
  void resolve(Expression& e) const {
    e.each_name([&](Expression& name) {
      name.position = schema_.position_of(name.name);
      if (name.position < 0) fail(fmt::format("the name '{}' stands for nothing", name.name));
      if (name.op != Expression::Op::is_choice) return;
      const OptionSpec* option = schema_.find_option(name.name);
      if (option == nullptr) fail(fmt::format("'{}' is no option", name.name));
      const auto found = std::find(option->choices.begin(), option->choices.end(), name.choice);
      if (found == option->choices.end())
        fail(fmt::format("option '{}' has no choice '{}'", name.name, name.choice));
      name.value = found - option->choices.begin();
    });
  }
  void resolve(std::optional<Expression>& e) const {
    if (e) resolve(*e);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InternalError(fmt::format("the table of {}: {}", schema_.name, what));
  }

 private:
  OperatorSchema& schema_;
};

void complete_type(const Resolver& resolver, OperatorSchema& schema, TensorSpec& tensor) {
  TypeRule& rule = tensor.type;
  if (!rule.like.empty()) {
    rule.like_index = position(schema.tensors, rule.like);
    if (rule.like_index < 0) resolver.fail(fmt::format("'{}' is no tensor", rule.like));
    if (rule.types.empty()) rule.types = schema.tensors[static_cast<std::size_t>(rule.like_index)].type.types;
  }
  if (rule.option.empty()) return;
  rule.option_index = position(schema.options, rule.option);
  if (rule.option_index < 0) resolver.fail(fmt::format("'{}' is no option", rule.option));
  // Dtypes that not every output may have.
  std::vector<std::string>& choices = schema.options[static_cast<std::size_t>(rule.option_index)].choices;
  for (const DType type : rule.types)
    if (std::find(choices.begin(), choices.end(), type.name()) == choices.end())
      choices.emplace_back(type.name());
}

std::string text_of(const DimItem& item) {
  return item.leading ? "..." : (item.repeats ? "~" : "") + item.extent.text();
}

// Where the items of `first` stand in `list`; empty if it has others, or the same order.
std::vector<int> order_of(const DimList& list, const DimList& first) {
  if (list.items.size() != first.items.size()) return {};
  std::vector<int> order;
  for (const DimItem& item : first.items) {
    const auto found = std::find_if(list.items.begin(), list.items.end(),
                                    [&](const DimItem& own) { return text_of(own) == text_of(item); });
    if (found == list.items.end()) return {};
    order.push_back(static_cast<int>(found - list.items.begin()));
  }
  return std::is_sorted(order.begin(), order.end()) ? std::vector<int>() : order;
}

void complete_order(TensorSpec& tensor) {
  for (DimList& list : tensor.lists)
    for (const DimList& first : tensor.lists) {
      if (&first == &list || !list.order.empty()) break;
      list.order = order_of(list, first);
    }
}

void complete_packing(const Resolver& resolver, const OperatorSchema& schema, PackingSpec& packing) {
  resolver.resolve(packing.tokens);
  if (packing.promise.empty()) return;
  packing.promise_position = schema.position_of(packing.promise);
  packing.longest_position = schema.position_of(packing.longest);
  if (packing.promise_position < 0) resolver.fail(fmt::format("'{}' is no option", packing.promise));
}

}  // namespace

void OperatorSchema::complete() {
  const Resolver resolver(*this);
  for (std::size_t i = 0; i < inputs; ++i)
    for (DimList& list : tensors[i].lists)
      for (DimItem& item : list.items) resolver.declare(item.extent);
  if (dims.size() > 64) resolver.fail("more than 64 dims");
  for (TensorSpec& tensor : tensors) {
    for (DimList& list : tensor.lists) {
      resolver.resolve(list.condition);
      for (DimItem& item : list.items) resolver.resolve(item.extent);
    }
    resolver.resolve(tensor.when), resolver.resolve(tensor.cancels);
    resolver.resolve(tensor.low), resolver.resolve(tensor.end);
    complete_type(resolver, *this, tensor);
    if (tensor.ordered) complete_order(tensor);
    if (tensor.packs) complete_packing(resolver, *this, *tensor.packs);
  }
  for (NamedExpression& each : derived) resolver.resolve(each.value);
  for (OptionSpec& each : options) resolver.resolve(each.otherwise);
  for (RequirementSpec& each : requirements) {
    resolver.resolve(each.condition);
    each.of_options = each.condition.has_value();
    if (each.condition)
      std::as_const(*each.condition).each_name([&](const Expression& name) {
        each.of_options &= name.position >= static_cast<int>(first_option_position());
      });
  }
  resolver.resolve(flops);
}

}  // namespace tegula::ops
