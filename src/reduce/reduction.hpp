// Makes a kernel that fails small, step by step: without grids, statements, heads of loops, names,
// operations.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "ir/ir.hpp"

namespace tegula::reduce_kernels {

// The number of the first of the kernels that fails as the original does; nothing if none does.
using FirstFailing = std::function<std::optional<std::size_t>(std::span<const ir::Kernel> candidates)>;

// Whether the kernel keeps to the rules of the IR, and its loops still count what they ask for: a candidate
// that is endless costs a whole time-out.
bool is_well_formed(const ir::Kernel& kernel);

// True if some step made the kernel smaller; there may be more to do then.
bool reduce_once(ir::Kernel& kernel, const FirstFailing& first_failing);

}  // namespace tegula::reduce_kernels
