#include "tegula/analyze.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "analyze/count.hpp"
#include "codegen/cuda_program.hpp"
#include "passes/cuda/cuda_plan.hpp"
#include "passes/cuda/registers.hpp"
#include "tegula/error.hpp"

namespace tegula {

namespace {

using analyzed::Values, analyzed::Work;

Values values_of(const Signature& signature, const std::map<std::string, double>& extents,
                 const Machine& machine) {
  Values values;
  std::vector<std::string> missing;
  for (const ir::VariablePtr& variable : signature.variables()) {
    const bool is_processors = variable->kind == ir::VariableKind::processors;
    const auto found = extents.find(variable->name);
    if (!is_processors && found == extents.end()) {
      missing.push_back(variable->name);
      continue;
    }
    const double number = is_processors ? machine.processors : found->second;
    const bool is_dim = variable->kind == ir::VariableKind::dim;
    if (!variable->type.is_floating() && (number != std::round(number) || (is_dim && number < 0)))
      throw ArgumentError(fmt::format("analyze: {} = {} in kernel '{}'; give a whole number{}",
                                      variable->name, number, signature.kernel().name,
                                      is_dim ? " from 0 on" : ""));
    values[variable.get()] = variable->type.is_floating()
                                 ? ir::float_value(variable->type, number)
                                 : ir::integer_value(variable->type, std::llround(number));
  }
  if (!missing.empty())
    throw ArgumentError(
        fmt::format("analyze: kernel '{}' needs the values of {}; give each by its name, such as {} = 4096",
                    signature.kernel().name, fmt::join(missing, ", "), missing.front()));
  return values;
}

// Parameters once; what is read and written counts twice.
double tensor_bytes(const Signature& signature, const Values& values) {
  double bytes = 0;
  for (std::size_t i = 0; i < signature.parameter_tensors(); ++i) {
    const ir::Buffer& buffer = *signature.buffers()[i];
    double own = buffer.type.bytes() * (buffer.role == ir::Role::inout ? 2 : 1);
    for (const ir::Expr& e : buffer.shape) {
      const ir::Value extent = ir::evaluate(e, [&](const ir::VariablePtr& v) { return values.at(v.get()); });
      own *= extent.invalid ? 0 : static_cast<double>(extent.integer);
    }
    bytes += own;
  }
  return bytes;
}

// Of a thread at launch, in the multiples of 8 in which a processor gives them.
int registers_of(const passes::CudaPlan& plan, std::size_t grid) {
  if (const auto& roles = plan.grids[grid].roles) return passes::registers_of(*roles).launch;
  constexpr int most = 255, unit = 8;
  const passes::RegisterNeeds needs =
      passes::register_needs(plan.computing(grid), plan.computing_threads(grid), plan.target);
  const int used = static_cast<int>(needs.live) + passes::to_work_with / 2;
  return std::min(most, (used + unit - 1) / unit * unit);
}

// Blocks that a processor holds at once.
int resident(const Machine& machine, const Analysis::Grid& grid) {
  const int threads = std::max(grid.threads, 1);
  int blocks = std::min(machine.blocks, machine.threads / threads);
  if (grid.shared_bytes > 0)
    blocks = std::min(blocks, static_cast<int>(machine.shared_bytes / (grid.shared_bytes + 1024)));
  if (grid.registers > 0) blocks = std::min(blocks, machine.registers / (grid.registers * threads));
  return std::max(blocks, 1);
}

void occupy(Analysis::Grid& grid, const codegen::CudaProgram& program, std::size_t number,
            const Machine& machine) {
  const auto& printed = program.kernels[number];
  grid.name = printed.function, grid.threads = printed.threads;
  grid.shared_bytes = static_cast<std::int64_t>(printed.shared_bytes);
  grid.registers = registers_of(*program.plan, number);
  grid.blocks_per_processor = resident(machine, grid);
  grid.occupancy = static_cast<double>(grid.blocks_per_processor) * grid.threads / machine.threads;
}

// The slowest of what must be done; a wave that is not full takes as long for its arithmetic as one that is.
void predict(Analysis::Grid& grid, const Work& work, double memory_bytes, const Machine& machine) {
  const double places = static_cast<double>(machine.processors) * grid.blocks_per_processor;
  grid.waves = grid.blocks / places;
  const double idle = grid.waves > 0 ? std::ceil(grid.waves) / grid.waves : 1;
  const double stretched = machine.is_gpu ? idle : 1;
  double products = 0, others = 0, specials = 0;
  for (auto& [type, count] : work.flops)
    (type == "other" ? others : type == "special" ? specials : products) += count / machine.rate_of(type);
  const std::pair<const char*, double> all[] = {{"launch", 0},
                                                {"products", products * stretched},
                                                {"special functions", specials * stretched},
                                                {"other arithmetic", others * stretched},
                                                {"memory", memory_bytes / machine.memory_bytes},
                                                {"second-level cache", work.copied_bytes / machine.l2_bytes}};
  const auto longest = std::ranges::max_element(all, {}, [](auto& own) { return own.second; });
  grid.seconds = machine.launch_seconds + longest->second;
  grid.bound = longest->second < machine.launch_seconds ? "launch" : longest->first;
}

}  // namespace

double Machine::rate_of(const std::string& type) const {
  if (type == "other") return other_flops;
  if (type == "special") return special_functions;
  // Three products, of the rate of half as many bits.
  if (type == "tf32" || type == "tf32x3")
    return flops_16 == 0 ? flops_32 : flops_16 / (type == "tf32" ? 2 : 6);
  const bool is_8 = type == "e4m3" || type == "e5m2" || type == "i8" || type == "u8",
             is_16 = type == "bf16" || type == "f16";
  if (is_8 && flops_8 > 0) return flops_8;
  return (is_8 || is_16) && flops_16 > 0 ? flops_16 : flops_32;
}

Analysis analyze(const lang::Kernel& kernel, const std::map<std::string, double>& extents,
                 const Machine& machine) {
  const Signature signature(kernel.ir());
  const Values values = values_of(signature, extents, machine);
  codegen::CudaProgram program;
  if (machine.is_gpu) program = codegen::print_cuda(signature, {machine.architecture});
  Analysis result;
  result.kernel = kernel.name(), result.machine = machine;
  result.memory_bytes = tensor_bytes(signature, values);
  std::vector<Work> works;
  for (const ir::Grid& grid : kernel.ir()->grids) {
    works.push_back(analyzed::work_of(grid, values));
    result.copied_bytes += works.back().copied_bytes;
    for (auto& [type, count] : works.back().flops) result.flops[type] += count;
    if (works.back().is_estimated)
      result.notes.push_back(
          fmt::format("{}: loops or conditions depend on elements of tensors; each loop is counted as one "
                      "step, each condition as true",
                      short_location(grid.at)));
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    const ir::Grid& ir = kernel.ir()->grids[i];
    Analysis::Grid grid;
    grid.name = fmt::format("{}_{}", kernel.name(), i), grid.blocks = analyzed::blocks_of(ir, values);
    if (machine.is_gpu) occupy(grid, program, i, machine);
    // The tensors of the call are shared out by what the grids copy.
    const double share = result.copied_bytes > 0 ? works[i].copied_bytes / result.copied_bytes : 1;
    predict(grid, works[i], share * result.memory_bytes, machine);
    result.seconds += grid.seconds;
    result.grids.push_back(grid);
  }
  const auto longest = std::ranges::max_element(result.grids, {}, [](auto& grid) { return grid.seconds; });
  if (longest != result.grids.end()) result.bound = longest->bound;
  double flops = 0;
  for (auto& [type, count] : result.flops) flops += count;
  result.intensity = result.memory_bytes > 0 ? flops / result.memory_bytes : 0;
  return result;
}

std::string Analysis::text() const {
  std::string words;
  for (auto& [type, count] : flops) words += fmt::format("{:<22} {:.4g}\n", "operations, " + type, count);
  words +=
      fmt::format("{:<22} {:.4g} of memory, {:.4g} copied by blocks\n", "bytes", memory_bytes, copied_bytes);
  words += fmt::format("{:<22} {:.4g} operations per byte of memory\n", "intensity", intensity);
  for (auto& grid : grids) {
    words += fmt::format("{}: {:.0f} blocks", grid.name, grid.blocks);
    if (grid.threads > 0)
      words += fmt::format(
          " of {} threads, {} registers a thread and {} bytes of shared memory; {} a processor, occupancy "
          "{:.2f}, {:.2f} waves",
          grid.threads, grid.registers, grid.shared_bytes, grid.blocks_per_processor, grid.occupancy,
          grid.waves);
    words += fmt::format("; at least {:.4g} us, bound by {}\n", 1e6 * grid.seconds, grid.bound);
  }
  words += fmt::format("{:<22} {:.4g} us, bound by {}\n", "at least", 1e6 * seconds, bound);
  for (auto& note : notes) words += note + "\n";
  return words;
}

}  // namespace tegula
