// The work of kernel calls, and the minimum time that a machine needs for it.
#pragma once
#include <string>
#include <vector>

#include "call.hpp"
#include "cli/cli.hpp"
#include "runtime/execution/recorded.hpp"
#include "tegula/analyze.hpp"

namespace tegula::tool {

// One analysis per recorded call, in order.
std::vector<Analysis> analyses_of(const RecordedCalls& recorded, const Machine& machine);
// Of the kernels that a call of an operator would run on that machine; nothing runs.
std::vector<Analysis> analyses_of(const Call& call, const Machine& machine);

// The machine on which the target runs here: by the GPU's name, h100 where that is none of the table's.
const Machine& machine_of(Target target);

// The option --extent, for kernels of a source file.
void add_extents(cli::Command& command, std::vector<std::string>& extents);
// h100, h200, a100, cpu
std::string names_of_machines();
// tegula::analyze(KERNEL, {{"M", 4096}}, …) for extents such as M=4096.
std::string statement_of_analysis(const std::string& kernel, const std::vector<std::string>& extents,
                                  const Machine& machine);

}  // namespace tegula::tool
