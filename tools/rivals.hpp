// The competitor of an operator: another library's product, or the dense form of a sparse operator.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "call.hpp"

namespace tegula::tool {

struct Rival {
  std::string name;
  std::function<void()> work;
};

// Nothing if there is no rival for such a call, or it is not installed.
std::optional<Rival> rival_of(const Call& call);

}  // namespace tegula::tool
