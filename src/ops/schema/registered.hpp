// What the registry says of an operator that has a table.
#pragma once
#include "ops/registry.hpp"

namespace tegula::ops {

Operator registered(const OperatorSchema& schema);

}  // namespace tegula::ops
