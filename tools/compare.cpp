#include "compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tegula::tool {

namespace {

// Row-major position as indices: `[0, 3, 5]`.
std::string position_text(std::size_t flat, const Shape& shape) {
  Shape index(shape.size());
  auto rest = static_cast<std::int64_t>(flat);
  for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
  return describe(index);
}

OutputVerdict compare(const std::string& name, const Tensor& out, const Tensor& reference,
                      const ops::Operator::Tolerance& tolerance) {
  OutputVerdict verdict{name, 0, tolerance.absolute, ""};
  if (out.shape() != reference.shape()) {
    verdict.error = INFINITY;
    verdict.wrong = fmt::format("shape {}, should be {}", describe(out.shape()), describe(reference.shape()));
    return verdict;
  }
  auto x = out.values<double>(), y = reference.values<double>();
  double worst = -1;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    double error = std::abs(x[i] - y[i]), bound = tolerance.absolute + tolerance.relative * std::abs(y[i]);
    // Infinities of the formula have no neighbourhood.
    double share = std::isfinite(error) && std::isfinite(bound) ? error / bound : INFINITY;
    if (share <= worst) continue;
    worst = share;
    verdict.error = std::isnan(error) ? INFINITY : error;
    verdict.bound = bound;
    if (share > 1)
      verdict.wrong =
          fmt::format("{:.6g} at {}, should be {:.6g}", x[i], position_text(i, out.shape()), y[i]);
  }
  return verdict;
}

}  // namespace

std::vector<OutputVerdict> compare_outputs(const ops::Tensors& results, const ops::Tensors& expected,
                                           const ops::Operator::Tolerance& tolerance) {
  std::vector<OutputVerdict> verdicts;
  for (auto& [name, reference] : expected) {
    auto found = results.find(name);
    if (found == results.end())
      verdicts.push_back({name, INFINITY, 0, "missing"});
    else
      verdicts.push_back(compare(name, found->second, reference, tolerance));
  }
  for (auto& [name, result] : results)
    if (!expected.count(name)) verdicts.push_back({name, INFINITY, 0, "the formula does not have it"});
  return verdicts;
}

bool CaseVerdict::right() const {
  return failure.empty() && !outputs.empty() &&
         std::all_of(outputs.begin(), outputs.end(), [](auto& o) { return o.right(); });
}

CaseVerdict check_case(const ops::Operator& op, const ops::Case& example, Target target, std::uint64_t seed) {
  CaseVerdict verdict;
  try {
    auto inputs = example.inputs(seed);
    auto options = ops::Options::parse(op, example.options);
    verdict.outputs = compare_outputs(ops::run_from_host(op, inputs, options, target),
                                      op.reference(inputs, options), op.tolerance(inputs, options));
  } catch (const std::exception& error) { verdict.failure = error.what(); }
  return verdict;
}

}  // namespace tegula::tool
