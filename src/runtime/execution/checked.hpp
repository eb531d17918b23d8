// TEGULA_CHECK: an executable whose first call is compared with the interpreter.
#pragma once
#include <memory>

#include "runtime/execution/executable.hpp"

namespace tegula {

// The executable of that target, compared once where the environment asks for it, else itself.
std::unique_ptr<const Executable> checked_if_asked(std::shared_ptr<const Signature> signature, Target target,
                                                   std::unique_ptr<const Executable> own);

}  // namespace tegula
