// A call on a CUDA device: its work is queued on the stream.
#pragma once
#include <algorithm>
#include <map>
#include <mutex>

#include "driver.hpp"
#include "grid_size.hpp"

namespace bundle {

struct LoadedGrid {
  void* function = nullptr;
  std::int64_t most_blocks = INT32_MAX;
  bool is_even = false;
};

struct Gpu {
  void* context = nullptr;
  int processors = 0, architecture = 0;
};

inline const Gpu& gpu_of(std::int32_t device) {
  static std::mutex mutex;
  static std::map<std::int32_t, Gpu> gpus;
  const std::lock_guard<std::mutex> lock(mutex);
  Gpu& gpu = gpus[device];
  if (gpu.context) return gpu;
  const Driver& d = driver();
  int handle = 0, major = 0, minor = 0;
  d.Init(0);
  d.DeviceGet(&handle, device);
  d.DeviceGetAttribute(&gpu.processors, 16, handle);
  d.DeviceGetAttribute(&major, 75, handle);
  d.DeviceGetAttribute(&minor, 76, handle);
  gpu.architecture = 10 * major + minor;
  d.DevicePrimaryCtxRetain(&gpu.context, handle);
  return gpu;
}

struct Current {
  explicit Current(const Gpu& gpu) { driver().CtxPushCurrent(gpu.context); }
  ~Current() {
    void* before = nullptr;
    try {
      driver().CtxPopCurrent(&before);
    } catch (const Failure&) {}
  }
};

inline LoadedGrid load(const CudaGrid& grid, void* module, const Gpu& gpu) {
  const Driver& d = driver();
  LoadedGrid result;
  d.ModuleGetFunction(&result.function, module, grid.function);
  const int shared = static_cast<int>(grid.shared_bytes);
  if (shared > 0) d.FuncSetAttribute(result.function, 8, shared);
  if (shared >= 32 * 1024) d.FuncSetAttribute(result.function, 9, 100);
  if (!grid.persistent) return result;
  int resident = 0;
  d.OccupancyMaxActiveBlocks(&resident, result.function, grid.threads, grid.shared_bytes);
  result.most_blocks = std::int64_t{std::max(resident, 1)} * gpu.processors;
  result.is_even = grid.even && resident <= 1;
  return result;
}

inline const std::vector<LoadedGrid>& loaded(const Kernel& kernel, const CudaProgram& program,
                                             std::int32_t device, const Gpu& gpu) {
  static std::mutex mutex;
  static std::map<std::pair<const CudaProgram*, std::int32_t>, std::vector<LoadedGrid>> all;
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<LoadedGrid>& grids = all[{&program, device}];
  if (!grids.empty()) return grids;
  void* module = nullptr;
  std::vector<LoadedGrid> made;
  driver().ModuleLoadData(&module, program.cubin);
  for (std::int32_t g = 0; g < kernel.grid_count; ++g) made.push_back(load(program.grids[g], module, gpu));
  return grids = std::move(made);
}

inline int map_type(int type) {
  switch (type) {
    case tegula_f16:
      return 6;
    case tegula_bf16:
      return 9;
    case tegula_f32:
      return 7;
    case tegula_f64:
      return 8;
    default:
      break;
  }
  const std::int64_t bytes = bytes_of(type);
  return bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 4;
}

// False if no map describes the tensor: see the rules of the copy engine.
inline bool describe(const CudaMap& map, const View& v, TensorMap* result) {
  constexpr std::int64_t unit = 16, longest = std::int64_t{1} << 40;
  const std::int64_t bytes = bytes_of(v.type), rank = static_cast<std::int64_t>(v.shape.size());
  std::uint64_t extents[5] = {}, strides[5] = {};
  std::uint32_t box[5] = {};
  bool empty = false;
  if (reinterpret_cast<std::uintptr_t>(v.data) % unit != 0) return false;
  for (std::int64_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<std::size_t>(rank - 1 - i);
    const std::int64_t usual = i == 0 ? bytes : unit,
                       stride = v.shape[dim] == 1 ? usual : v.strides[dim] * bytes;
    if (i == 0 ? stride != bytes : stride % unit != 0) return false;
    if (stride < 0 || stride >= longest) return false;
    extents[i] = static_cast<std::uint64_t>(v.shape[dim]), strides[i] = static_cast<std::uint64_t>(stride);
    box[i] = static_cast<std::uint32_t>(i == 0 ? map.columns : map.box[dim]);
    if (i == 1 && map.rest && extents[i] % box[i] != 0)
      box[i] = static_cast<std::uint32_t>(extents[i] % box[i]);
    empty |= v.shape[dim] == 0;
  }
  *result = {};
  if (empty) return true;
  const std::int64_t row = map.columns * bytes;
  const int swizzle = !map.swizzled ? 0 : row == 32 ? 1 : row == 64 ? 2 : 3;
  constexpr std::uint32_t ones[5] = {1, 1, 1, 1, 1};
  driver().TensorMapEncodeTiled(result, map_type(v.type), static_cast<std::uint32_t>(rank), v.data, extents,
                                strides + 1, box, ones, 0, swizzle, 2, 0);
  return true;
}

inline bool has_aligned_rows(const View& v, std::int32_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(v.data) % static_cast<std::uintptr_t>(bytes) != 0) return false;
  for (std::size_t d = 0; d < v.shape.size(); ++d) {
    const bool is_last = d + 1 == v.shape.size();
    if (v.shape[d] == 1 && !is_last) continue;
    if (d + 3 >= v.shape.size() && v.strides[d] != static_cast<std::int32_t>(v.strides[d])) return false;
    if (is_last ? v.strides[d] != 1 : v.strides[d] * bytes_of(v.type) % bytes != 0) return false;
  }
  return true;
}

// Memory of one call, in the order of its stream.
struct DeviceMemory {
  DeviceMemory(std::size_t bytes, void* on) : stream(on) { driver().MemAllocAsync(&address, bytes, stream); }
  ~DeviceMemory() {
    try {
      driver().MemFreeAsync(address, stream);
    } catch (const Failure&) {}
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::uint64_t address = 0;
  void* stream;
};

inline std::size_t aligned(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 255) / 256 * 256; }

// Workspaces after the status word and the counters, which are 0.
inline constexpr std::size_t head_bytes = 256, status_at = 0, counters_at = 64;

inline std::size_t workspace_bytes(const Call& call) {
  std::size_t bytes = head_bytes;
  for (auto t = static_cast<std::size_t>(call.kernel.parameters); t < call.tensors.size(); ++t)
    bytes += aligned(call.tensors[t].elements() * bytes_of(call.tensors[t].type));
  return bytes;
}

inline void place(Call& call, std::uint64_t memory, void* stream) {
  driver().MemsetD8Async(memory, 0, head_bytes, stream);
  std::uint64_t next = memory + head_bytes;
  for (auto t = static_cast<std::size_t>(call.kernel.parameters); t < call.tensors.size(); ++t) {
    call.tensors[t].data = reinterpret_cast<char*>(next);
    next += aligned(call.tensors[t].elements() * bytes_of(call.tensors[t].type));
  }
  for (std::int32_t t = 0; t < call.kernel.buffer_count; ++t) {
    const View& view = call.tensors[static_cast<std::size_t>(t)];
    if (!call.kernel.buffers[t].zero || view.elements() == 0) continue;
    if (!view.contiguous())
      call.refuse(std::string(", argument '") + call.kernel.buffers[t].name +
                  "': it is cleared first, and must be contiguous");
    driver().MemsetD8Async(reinterpret_cast<std::uint64_t>(view.data), 0,
                           static_cast<std::size_t>(view.elements() * bytes_of(view.type)), stream);
  }
}

// The program for the tensors of the call; `maps` are theirs.
inline const CudaProgram& chosen(const Call& call, std::vector<TensorMap>& maps) {
  const CudaProgram& first = call.kernel.cuda[0];
  bool fits = true;
  maps.resize(static_cast<std::size_t>(first.map_count));
  for (std::int32_t m = 0; m < first.map_count && fits; ++m)
    fits = describe(first.maps[m], call.tensors[static_cast<std::size_t>(first.maps[m].tensor)],
                    &maps[static_cast<std::size_t>(m)]);
  for (std::int32_t a = 0; a < first.aligned_count && fits; ++a)
    fits = has_aligned_rows(call.tensors[static_cast<std::size_t>(first.aligned[a].tensor)],
                            first.aligned[a].bytes);
  if (fits) return first;
  maps.clear();
  return call.kernel.cuda[1];
}

inline std::vector<std::uint64_t> parameter_of(const Call& call, std::uint64_t memory,
                                               const std::vector<TensorMap>& maps) {
  std::vector<std::uint64_t> words;
  for (const View& view : call.tensors) words.push_back(reinterpret_cast<std::uint64_t>(view.data));
  for (const View& view : call.tensors) words.insert(words.end(), view.strides.begin(), view.strides.end());
  for (const std::int64_t value : words_of(call)) words.push_back(static_cast<std::uint64_t>(value));
  words.push_back(memory + status_at);
  words.push_back(memory + counters_at);
  if (!maps.empty()) words.resize((words.size() + 7) / 8 * 8);
  for (const TensorMap& map : maps) words.insert(words.end(), map.words, map.words + 16);
  return words;
}

inline void launch(const LoadedGrid& grid, const CudaGrid& plan, std::int64_t tiles, void* words,
                   void* stream, bool follows) {
  LaunchConfig config;
  LaunchAttribute early;
  early.id = 6, early.value.integer = 1;
  config.grid[0] = static_cast<unsigned>(ctas_of_grid(tiles * plan.ctas, grid.most_blocks, grid.is_even));
  config.block[0] = static_cast<unsigned>(plan.threads);
  config.shared_bytes = plan.shared_bytes;
  config.stream = stream;
  config.attributes = &early;
  config.attribute_count = follows && plan.waits ? 1 : 0;
  void* parameters[] = {words};
  driver().LaunchKernelEx(&config, grid.function, parameters, nullptr);
}

// Waits, for what the kernel asserts.
inline void check_status(const Call& call, const CudaProgram& program, std::uint64_t memory, void* stream) {
  std::uint64_t status = 0;
  driver().MemcpyDtoHAsync(&status, memory + status_at, 8, stream);
  driver().StreamSynchronize(stream);
  const auto number = static_cast<std::uint32_t>(status);
  if (number != 0 && static_cast<std::int32_t>(number) <= program.assertion_count)
    throw Failure{tegula_assertion, std::string("kernel '") + call.kernel.name +
                                        "': assertion failed: " + program.assertions[number - 1]};
}

inline void run_on_cuda(Call& call, void* stream) {
  const Kernel& k = call.kernel;
  const Gpu& gpu = gpu_of(call.device);
  if (!k.cuda[0].cubin ||
      (k.architecture == 90 ? gpu.architecture != 90 : gpu.architecture / 10 != k.architecture / 10))
    throw Failure{tegula_no_device,
                  std::string("kernel '") + k.name + "' was not built for GPUs of compute capability " +
                      std::to_string(gpu.architecture / 10) + "." + std::to_string(gpu.architecture % 10)};
  const Current current(gpu);
  finish(call, gpu.processors);
  const DeviceMemory memory(workspace_bytes(call), stream);
  place(call, memory.address, stream);
  std::vector<TensorMap> maps;
  const CudaProgram& program = chosen(call, maps);
  const std::vector<LoadedGrid>& grids = loaded(k, program, call.device, gpu);
  std::vector<std::uint64_t> words = parameter_of(call, memory.address, maps);
  bool follows = false;
  for (std::int32_t g = 0; g < k.grid_count; ++g) {
    const std::int64_t tiles =
        extent_of(call, k.grids[g], 0) * extent_of(call, k.grids[g], 1) * extent_of(call, k.grids[g], 2);
    if (tiles > INT32_MAX) call.refuse(": a grid has more than 2^31 - 1 blocks");
    if (tiles > 0)
      launch(grids[static_cast<std::size_t>(g)], program.grids[g], tiles, words.data(), stream, follows);
    follows = tiles > 0;
  }
  if (program.assertion_count > 0) check_status(call, program, memory.address, stream);
}

}  // namespace bundle
