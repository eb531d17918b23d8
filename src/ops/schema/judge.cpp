#include "ops/schema/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <cmath>
#include <map>

#include "ops/schema/exact.hpp"

namespace tegula::ops {

ResultError error_of(const Tensor& result, const Tensor& exact) {
  const std::vector<double> a = result.values<double>(), b = exact.values<double>();
  double difference = 0, size = 0;
  ResultError error;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) || Exact::is_unspecified(b[i])) continue;
    // NaN, and an infinity on one side only, are as wrong as can be.
    const double distance = std::abs(a[i] - b[i]);
    const double one = std::isnan(distance) ? HUGE_VAL : distance;
    error.largest = std::max(error.largest, one);
    difference += one * one, size += b[i] * b[i];
  }
  error.norm = difference == 0 ? 0 : std::sqrt(difference / (size == 0 ? 1 : size));
  return error;
}

ResultError allowed_error(const Tensor& exact, const Tensor& plain, DType type, double times) {
  const ResultError own = error_of(plain, exact);
  // Exponentials and reciprocals of a GPU are right to 2^-22, and sums are formed in another order.
  const double unit = type == f16 ? 0x1p-11 : type == bf16 ? 0x1p-8 : 0x1p-24, few = 2 * unit + 96 * 0x1p-24;
  double top = 1;
  for (double x : exact.values<double>())
    if (std::isfinite(x)) top = std::max(top, std::abs(x));
  return {times * (2 * own.largest + few * top), times * (2 * own.norm + few)};
}

namespace {

// The element that is farthest from right: `1.5 at [0, 3], should be 1`.
std::string worst_element(const Tensor& result, const Tensor& exact) {
  const std::vector<double> x = result.values<double>(), y = exact.values<double>();
  const auto distance = [&](std::size_t i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])) || Exact::is_unspecified(y[i])) return 0.;
    const double error = std::abs(x[i] - y[i]);
    return std::isnan(error) ? HUGE_VAL : error;
  };
  std::size_t worst = 0;
  for (std::size_t i = 1; i < x.size(); ++i)
    if (distance(i) > distance(worst)) worst = i;
  Shape index(result.shape().size());
  auto position = static_cast<std::int64_t>(worst);
  for (std::size_t d = index.size(); d-- > 0; position /= result.shape()[d])
    index[d] = position % result.shape()[d];
  return fmt::format("{:.6g} at {}, should be {:.6g}", x[worst], describe(index), y[worst]);
}

Verdict verdict_of(const std::string& name, const Tensor& result, const Tensor& exact, const Tensor& plain,
                   double times) {
  const DType type = result.dtype().is_floating() ? result.dtype() : f32;
  Verdict verdict{name, HUGE_VAL, 0, judge(result, exact, plain, type, times).value_or("")};
  if (result.shape() != exact.shape()) return verdict;
  verdict.error = error_of(result, exact).largest;
  verdict.allowed = result.dtype().is_floating() ? allowed_error(exact, plain, type, times).largest : 0;
  if (!verdict.right()) verdict.wrong = worst_element(result, exact) + ": " + verdict.wrong;
  return verdict;
}

}  // namespace

std::optional<std::string> judge(const Tensor& result, const Tensor& exact, const Tensor& plain, DType type,
                                 double times) {
  if (result.shape() != exact.shape())
    return fmt::format("{} instead of {}", describe(result.shape()), describe(exact.shape()));
  if (!result.dtype().is_floating())
    return equal(result, exact.to(result.dtype())) ? std::nullopt
                                                   : std::optional<std::string>("other integers");
  const ResultError error = error_of(result, exact), allowed = allowed_error(exact, plain, type, times);
  if (error.largest <= allowed.largest && error.norm <= allowed.norm) return std::nullopt;
  return fmt::format("an error of {:.3g}, allowed {:.3g}; in norm {:.3g}, allowed {:.3g}", error.largest,
                     allowed.largest, error.norm, allowed.norm);
}

namespace {

std::vector<Verdict> judge_each(const Tensors& results, const Tensors& exact, const Tensors& plain,
                                const std::function<double(const std::string&)>& times) {
  std::vector<Verdict> verdicts;
  for (const auto& [name, right] : exact) {
    const auto found = results.find(name);
    if (found == results.end())
      verdicts.push_back({name, HUGE_VAL, 0, "missing"});
    else
      verdicts.push_back(verdict_of(name, found->second, right, plain.at(name), times(name)));
  }
  for (const auto& [name, result] : results)
    if (!exact.contains(name)) verdicts.push_back({name, HUGE_VAL, 0, "the formula does not have it"});
  return verdicts;
}

}  // namespace

std::vector<Verdict> judge_all(const Tensors& results, const Tensors& exact, const Tensors& plain) {
  return judge_each(results, exact, plain, [](const std::string&) { return 1.; });
}

std::vector<Verdict> judge_call(const OperatorSchema& schema, const Tensors& inputs,
                                const OptionValues& options, const Tensors& results) {
  std::map<std::string, Tensors> by_steps;
  Tensors plain;
  const Tensors exact = formula_by_name(schema, inputs, options);
  const CheckedCall call(schema, inputs, options);
  for (const auto& [name, output] : call.bound.outputs()) {
    const DType steps = plain_steps(schema, name, output.dtype(), inputs);
    Tensors& rounded = by_steps[std::string(steps.name())];
    if (rounded.empty()) rounded = formula_by_name(schema, inputs, options, steps);
    plain.emplace(name, rounded.at(name).to(output.dtype()));
  }
  return judge_each(results, exact, plain, [&](const std::string& name) {
    const auto& cancels = schema.find_tensor(name)->cancels;
    return cancels && cancels->evaluate(call.bound.values()) != 0 ? of_differences : 1;
  });
}

std::string faults_of(const std::vector<Verdict>& verdicts) {
  std::string faults;
  for (const Verdict& verdict : verdicts)
    if (!verdict.right()) faults += verdict.output + ": " + verdict.wrong + "\n";
  return faults;
}

}  // namespace tegula::ops
