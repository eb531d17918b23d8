// check: every operator against its formula in double precision.
#include <fmt/format.h>

#include <cmath>

#include "calls.hpp"
#include "commands.hpp"

namespace tegula::tool {

namespace {

// The largest |out − reference| as a part of what the tolerance allows there; above 1 is wrong.
double worst_share(const Tensor& out, const Tensor& reference, const ops::Operator::Tolerance& tolerance) {
  if (out.shape() != reference.shape()) return INFINITY;
  auto x = out.values<double>(), y = reference.values<double>();
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i]) continue;
    double share = std::abs(x[i] - y[i]) / (tolerance.absolute + tolerance.relative * std::abs(y[i]));
    worst = std::isnan(share) ? INFINITY : std::max(worst, share);
  }
  return worst;
}

bool check_case(const ops::Operator& op, const ops::Case& example, Target target) {
  auto inputs = example.inputs(1);
  auto options = ops::Options::parse(op, example.options);
  auto results = op.run(inputs, options, target), expected = op.reference(inputs, options);
  auto tolerance = op.tolerance(inputs, options);
  double worst = 0;
  for (auto& [name, reference] : expected)
    worst = std::max(worst, worst_share(results.at(name), reference, tolerance));
  bool right = worst <= 1;
  fmt::print("{:<24} {:<44} {:>8.3f}  {}\n", op.name, example.name, worst, right ? "ok" : "WRONG");
  return right;
}

}  // namespace

void add_check(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("check", "Compares operators with their formulas in double precision");
  auto name = std::make_shared<std::string>(), target = std::make_shared<std::string>("auto");
  command->add_option("operator", *name, "Name of the operator; all of them unless given");
  command->add_option("--target", *target, "auto, interpreter or cpu")
      ->check(CLI::IsMember({"auto", "interpreter", "cpu"}))
      ->capture_default_str();
  command->callback([name, target, &exit_code] {
    fmt::print("{:<24} {:<44} {:>8}\n", "operator", "case", "error / allowed");
    for (auto& op : ops::operators()) {
      if (!name->empty() && op.name != ops::find_operator(*name).name) continue;
      for (auto& example : op.check_cases)
        if (!check_case(op, example, target_named(*target))) exit_code = 1;
    }
  });
}

}  // namespace tegula::tool
