#include "runtime/execution/explain.hpp"

#include "ops/registry.hpp"
#include "ops/schema/functions.hpp"

namespace tegula {

std::vector<Explanation> explain(const std::string& name, const std::map<std::string, Tensor>& inputs,
                                 const std::map<std::string, std::string>& options, Target target) {
  const ops::Operator& op = ops::find_operator(name);
  ops::check_inputs(op, inputs);
  if (!inputs.empty()) target = ops::target_for(target, inputs.begin()->second.device());
  const ops::Options parsed = ops::Options::parse(op, options);
  std::vector<Explanation> result;
  for (const lang::Kernel& kernel : op.kernels(inputs, parsed, target))
    result.push_back(explain_call(kernel, target, inputs));
  if (!result.empty())
    for (const std::string& note : op.notes(inputs, parsed, target)) result.front().notes.push_back(note);
  return result;
}

}  // namespace tegula
