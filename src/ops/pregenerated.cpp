#include "ops/pregenerated.hpp"

#include <set>

#include "ir/kernel.hpp"
#include "ops/schema/example.hpp"
#include "ops/schema/tile_registers.hpp"

namespace tegula::ops {

std::vector<lang::Kernel> pregenerated(Isa isa) {
  std::vector<lang::Kernel> kernels;
  std::set<std::string> names;
  const auto add = [&](const OperatorSchema& schema, const ExampleCall& call) {
    for (const lang::Kernel& kernel :
         kernels_by_name(schema, call.described(schema), call.options, Target::cpu()))
      if (names.insert(kernel.name()).second) kernels.push_back(kernel);
  };
  for (const bool tile_registers : {false, true}) {
    if (tile_registers && isa != Isa::avx512) continue;
    const SupposedTileRegisters supposed(tile_registers);
    for (const OperatorSchema* schema : operator_schemas())
      for (const std::string& calls : schema->built_in)
        for (const std::string& call : expanded(calls)) add(*schema, ExampleCall::parse(*schema, call));
  }
  return kernels;
}

}  // namespace tegula::ops
