#include "passes/by_any_name.hpp"

namespace tegula::passes {

Tensors by_any_name(Tensors tensors, const ir::Kernel& kernel) {
  for (bool more = true; more;) {
    more = false;
    for (const auto& [a, b] : kernel.may_alias)
      if (tensors.contains(a.get()) != tensors.contains(b.get()))
        more = tensors.insert(a.get()).second | tensors.insert(b.get()).second;
  }
  return tensors;
}

}  // namespace tegula::passes
