#include "cuda/module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "device/bundle/grid_size.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

constexpr std::int64_t most_blocks_of_a_grid = std::numeric_limits<std::int32_t>::max();
// From this size on the first-level cache cedes all it can to shared memory.
constexpr unsigned much_shared_memory = 32 * 1024;

}  // namespace

Module::Module(const Gpu& gpu, const codegen::CudaProgram& program, const std::string& name,
               const std::string& cubin)
    : gpu_(gpu) {
  const CurrentContext current(gpu);
  const Driver& d = driver();
  d(d.ModuleLoadData, &module_, static_cast<const void*>(cubin.data()));
  try {
    for (const auto& kernel : program.kernels) functions_.push_back(load(kernel, name));
    std::vector<Report::Assertion> assertions;
    for (const auto& assertion : program.assertions) assertions.push_back({assertion.message, assertion.at});
    if (!assertions.empty()) report_ = gpu.reports().add(name, std::move(assertions));
  } catch (...) {
    d.ModuleUnload(module_);
    throw;
  }
}

Module::~Module() {
  try {
    const CurrentContext current(gpu_);
    gpu_.driver().ModuleUnload(module_);
  } catch (const Error&) {
    // The driver is gone, and the code with it.
  }
}

Module::Function Module::load(const codegen::CudaProgram::Kernel& kernel, const std::string& name) const {
  if (kernel.shared_bytes > gpu_.shared_limit()) {
    throw DeviceError(fmt::format(
        "kernel '{}' needs {} bytes of shared memory per block, but {} has {}; choose smaller tiles", name,
        kernel.shared_bytes, gpu_.name(), gpu_.shared_limit()));
  }
  const Driver& d = driver();
  Function result{nullptr, kernel.threads, static_cast<unsigned>(kernel.shared_bytes), most_blocks_of_a_grid};
  d(d.ModuleGetFunction, &result.handle, module_, kernel.function.c_str());
  if (kernel.shared_bytes > 0) {
    d(d.FuncSetAttribute, result.handle, FunctionAttribute::max_dynamic_shared_bytes,
      static_cast<int>(kernel.shared_bytes));
  }
  if (kernel.shared_bytes >= much_shared_memory) {
    d(d.FuncSetAttribute, result.handle, FunctionAttribute::shared_carveout, 100);
  }
  result.cluster = kernel.cluster(), result.ctas = kernel.ctas, result.waits = kernel.waits;
  if (kernel.is_persistent) {
    int resident = 0;
    d(d.OccupancyMaxActiveBlocks, &resident, result.handle, kernel.threads, kernel.shared_bytes);
    result.most_blocks = std::int64_t{std::max(resident, 1)} * gpu_.multiprocessors();
    result.is_even = kernel.is_even && resident <= 1;
  }
  return result;
}

void Module::launch(std::size_t grid, std::int64_t tiles, void* words, StreamHandle stream,
                    bool follows) const {
  const Function& function = functions_[grid];
  LaunchConfig config;
  const std::int64_t cluster = function.cluster;
  config.grid[0] =
      static_cast<unsigned>(bundle::ctas_of_grid((tiles * function.ctas + cluster - 1) / cluster,
                                                 function.most_blocks / cluster, function.is_even) *
                            cluster);
  LaunchAttribute attributes[2];
  config.attributes = attributes;
  if (cluster > 1) {
    LaunchAttribute& pairs = attributes[config.attribute_count++];
    pairs.id = LaunchAttribute::cluster_dimension;
    pairs.value.cluster[0] = static_cast<unsigned>(cluster);
    pairs.value.cluster[1] = pairs.value.cluster[2] = 1;
  }
  if (follows && function.waits) {
    LaunchAttribute& early = attributes[config.attribute_count++];
    early.id = LaunchAttribute::programmatic_stream_serialization;
    early.value.integer = 1;
  }
  config.block[0] = static_cast<unsigned>(function.threads);
  config.shared_bytes = function.shared_bytes;
  config.stream = stream;
  void* parameters[] = {words};
  const Driver& d = driver();
  d(d.LaunchKernelEx, static_cast<const LaunchConfig*>(&config), function.handle,
    static_cast<void**>(parameters), static_cast<void**>(nullptr));
}

}  // namespace tegula::cuda
