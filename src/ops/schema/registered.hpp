// The registry entry of an operator with a table.
#pragma once
#include "ops/registry.hpp"

namespace tegula::ops {

Operator registered(const OperatorSchema& schema);

}  // namespace tegula::ops
