// Pipelined loops in which a branch skips steps, or which end before a step.
//
// A loop  values; break_if(c); when(d) { step }  becomes
//   find the first step;  loop { leave if there is none; step, while finding the next one }
// where the search reads only tensors and numbers. The result is a loop in which all steps do the same. Both
// roles perform the search, so they agree without communicating, and slots count the steps that are taken.
#pragma once
#include <functional>

#include "passes/cuda/store_forms.hpp"

namespace tegula::passes {

// `is_given`: tensors that the grid does not write. Loops stay as they are where the choice needs anything
// else, or variables that a step changes. `forms` gets those of what the steps store, of which the step is
// now another variable.
ir::Body with_chosen_steps(const ir::Body& body, const std::function<bool(const ir::Buffer&)>& is_given,
                           StoreForms& forms);

// The variable that says whether a loop over chosen steps has another one; null for other loops.
ir::VariablePtr goes_on(const ir::For& loop);
// The statements of a chosen step, without those that leave the loop; of other loops all.
ir::Body without_leaving(const ir::For& loop, const ir::Body& begin_of_step);

// Whether the statement leaves tiles and tensors as they are, and computes nothing but variables.
bool is_of_variables(const ir::Stmt& s);
// Whether the body itself, without loops in it, leaves the loop around it.
bool has_break(const ir::Body& body);

}  // namespace tegula::passes
