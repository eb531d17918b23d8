#include "ops/schema/derivative.hpp"

namespace tegula::ops {

namespace {

thread_local Traced* tracing = nullptr;

}  // namespace

TracedNumber traced(double value, const TracedNumber& a, double by_a) {
  return traced(value, a, by_a, TracedNumber(), 0);
}

TracedNumber traced(double value, const TracedNumber& a, double by_a, const TracedNumber& b, double by_b) {
  if (a.at < 0 && b.at < 0) return {value};
  return tracing->add(value, {{a.at, b.at}, {by_a, by_b}});
}

Traced::Traced(const BoundCall& call, Exact& exact) : call_(call), exact_(exact), outer_(tracing) {
  tracing = this;
}

Traced::~Traced() { tracing = outer_; }

TracedNumber Traced::add(double value, const Node& node) {
  nodes_.push_back(node);
  return {value, static_cast<std::int64_t>(nodes_.size()) - 1};
}

TracedNumber* Traced::data(const std::string& tensor) {
  const auto found = tensors_.find(tensor);
  if (found != tensors_.end()) return found->second.data();
  std::vector<TracedNumber>& numbers = tensors_[tensor];
  if (call_.schema().find_tensor(tensor) == nullptr) {
    numbers.resize(static_cast<std::size_t>(exact_["d" + tensor].nelements()));
  } else {
    const double* values = exact_.data(tensor);
    for (std::int64_t i = 0; i < exact_[tensor].nelements(); ++i)
      numbers.push_back(add(values[i], {{-1, -1}, {0, 0}}));
  }
  return numbers.data();
}

TracedNumber* Traced::data_if(const std::string& tensor) {
  const bool is_result = call_.schema().find_tensor(tensor) == nullptr;
  return call_.has(is_result ? "d" + tensor : tensor) ? data(tensor) : nullptr;
}

TracedNumber Traced::step(const TracedNumber& value) {
  const double rounded = exact_.rounded(value.value);
  return value.at < 0 ? TracedNumber(rounded) : add(rounded, {{value.at, -1}, {1, 0}, true});
}

void Traced::differentiate() {
  std::vector<double> gradients(nodes_.size(), 0);
  for (const auto& [name, numbers] : tensors_) {
    if (call_.schema().find_tensor(name) != nullptr) continue;
    const double* given = exact_.data("d" + name);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i].at >= 0) gradients[static_cast<std::size_t>(numbers[i].at)] += given[i];
  }
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const Node& node = nodes_[i];
    if (node.is_step) gradients[i] = exact_.rounded(gradients[i]);
    for (int argument : {0, 1})
      if (node.of[argument] >= 0)
        gradients[static_cast<std::size_t>(node.of[argument])] += gradients[i] * node.by[argument];
  }
  for (const auto& [name, numbers] : tensors_) {
    const TensorSpec* wanted = call_.schema().find_tensor("d" + name);
    if (wanted == nullptr || !wanted->output || !call_.has(wanted->name)) continue;
    double* result = exact_.data(wanted->name);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      result[i] = gradients[static_cast<std::size_t>(numbers[i].at)];
  }
}

}  // namespace tegula::ops
