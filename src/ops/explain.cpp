#include "runtime/execution/explain.hpp"

#include "ops/pieces/moved_rows.hpp"
#include "ops/registry.hpp"
#include "ops/schema/functions.hpp"

namespace tegula {

std::vector<Explanation> explain(const std::string& name, const std::map<std::string, Tensor>& inputs,
                                 const std::map<std::string, std::string>& options, Target target) {
  const ops::Operator& op = ops::find_operator(name);
  ops::check_inputs(op, inputs);
  if (!inputs.empty()) target = ops::target_for(target, inputs.begin()->second.device());
  const ops::Options parsed = ops::Options::parse(op, options);
  const ops::ListedCall listed = op.listed(inputs, parsed, target);
  const ops::Tensors given = ops::tensors_of_programs(listed, inputs);
  std::vector<Explanation> result;
  for (const lang::Kernel& kernel : listed.kernels) result.push_back(explain_call(kernel, target, given));
  if (!result.empty())
    result.front().notes.insert(result.front().notes.end(), listed.notes.begin(), listed.notes.end());
  return result;
}

}  // namespace tegula
