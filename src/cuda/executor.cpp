#include "cuda/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "codegen/cuda/program_lines.hpp"
#include "codegen/cuda_program.hpp"
#include "cuda/assembler_notes.hpp"
#include "cuda/compile.hpp"
#include "cuda/memory.hpp"
#include "cuda/module.hpp"
#include "cuda/streams.hpp"
#include "cuda/tensor_maps.hpp"
#include "cuda/workspaces.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

constexpr int hopper = 90, common_instructions = 80;

// A printed program with its code on each GPU that has run it.
class Variant {
 public:
  Variant(const Signature& signature, const passes::CudaTarget& target)
      : program_(codegen::print_cuda(signature, target)),
        text_(environment_integer(Variable::cuda_lines, 0, 1).value_or(0) == 1
                  ? codegen::with_program_lines(program_.text, signature.kernel())
                  : program_.text),
        name_(signature.kernel().name),
        maps_(program_.maps.size()) {}

  const codegen::CudaProgram& program() const { return program_; }
  // Whether blocks take tiles in turn, from a counter.
  bool has_counters() const {
    return std::any_of(program_.kernels.begin(), program_.kernels.end(),
                       [](const auto& kernel) { return kernel.is_persistent; });
  }
  bool has_pairs() const {
    return std::any_of(program_.kernels.begin(), program_.kernels.end(),
                       [](const auto& kernel) { return kernel.cluster() > 1; });
  }
  TensorMap map(std::size_t i, const TensorMapRequest& request) const { return maps_[i].get(request); }

  const Module& on(const Gpu& gpu) const {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<const Module>& module = modules_[&gpu];
    if (!module)
      module = std::make_unique<const Module>(gpu, program_, name_, code_for(gpu.architecture()).cubin);
    return *module;
  }
  // The assembler's remarks on the code for that GPU.
  std::vector<std::string> notes(const ir::Kernel& kernel, const Gpu& gpu) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all = passes::format(program_.notes);
    for (std::string& own : assembler_notes(code_for(gpu.architecture()).log, kernel, program_))
      all.push_back(std::move(own));
    return all;
  }

 private:
  const MachineCode& code_for(int architecture) const {
    MachineCode& code = codes_[architecture];
    if (code.cubin.empty())
      code = compile_code(nvrtc(), text_, device_headers(), architecture, kernel_cache());
    return code;
  }

  codegen::CudaProgram program_;
  std::string text_, name_;
  mutable std::vector<TensorMapCache> maps_;
  mutable std::mutex mutex_;
  mutable std::map<const Gpu*, std::unique_ptr<const Module>> modules_;
  mutable std::map<int, MachineCode> codes_;
};

// How many tiles each grid has.
class Extents {
 public:
  explicit Extents(const Signature& signature) {
    for (const ir::Grid& grid : signature.kernel().grids) {
      grids_.emplace_back();
      for (const ir::Expr& extent : grid.extents) grids_.back().emplace_back(extent, signature);
    }
  }
  std::int64_t tiles(std::size_t grid, const Binding& binding, const std::string& kernel) const {
    std::int64_t product = 1;
    for (const HostExpr& extent : grids_[grid]) {
      const ir::Value value = extent(binding.values);
      if (value.invalid || value.integer <= 0) return 0;
      if (__builtin_mul_overflow(product, value.integer, &product) || product > INT32_MAX) {
        throw ArgumentError(fmt::format(
            "grid {} of kernel '{}' has more than 2^31 - 1 blocks; split the call", grid, kernel));
      }
    }
    return product;
  }
  std::int64_t extent(std::size_t grid, int index, const Binding& binding) const {
    return grids_[grid][static_cast<std::size_t>(index)](binding.values).integer;
  }
  std::size_t count() const { return grids_.size(); }

 private:
  std::vector<std::vector<HostExpr>> grids_;
};

class CudaExecutor : public Executable {
 public:
  CudaExecutor(std::shared_ptr<const Signature> signature, int instructions)
      : signature_(std::move(signature)),
        instructions_(instructions),
        first_(*signature_, {instructions, true}),
        extents_(*signature_) {
    first_.on(Gpu::get(0));
    for (std::size_t i = 0; i < signature_->buffers().size(); ++i) {
      if (signature_->buffers()[i]->zero) zeroed_.push_back(i);
    }
  }

  void run(const Binding& binding) const override {
    const Gpu& gpu = Gpu::get(binding.device.index);
    const CurrentContext current(gpu);
    const StreamHandle stream = handle_of(current_stream(binding.device));
    Call call{*this, gpu, stream, binding, binding.tensors, {}, {}, {}};
    call.place_workspaces();
    call.clear();
    call.launch();
  }

  std::vector<std::string> notes() const override { return first_.notes(signature_->kernel(), Gpu::get(0)); }

 private:
  // One call on its way.
  struct Call {
    const CudaExecutor& executor;
    const Gpu& gpu;
    StreamHandle stream;
    const Binding& binding;
    std::vector<TensorRef> tensors;  // workspaces with their addresses
    Workspaces::Lease lease;
    std::vector<TensorMapRequest> maps;
    std::vector<std::uint64_t> words;

    void place_workspaces();
    void clear() const;
    // Whether tensor maps describe all tensors that the program wants to copy by them, and the others lie as
    // it supposes.
    bool request_maps(const Variant& variant);
    bool pays_in_pairs(const Variant& variant) const;
    const Variant& choose();
    void write_words(const Variant& variant, const Module& module);
    void launch();
  };

  const Variant& without_maps() const {
    std::call_once(second_made_, [this] {
      second_ = std::make_unique<const Variant>(*signature_, passes::CudaTarget{instructions_, false});
    });
    return *second_;
  }

  // Where two blocks share what they load; the usual program if none can.
  const Variant& in_pairs() const {
    std::call_once(pairs_made_, [this] {
      pairs_ = std::make_unique<const Variant>(*signature_, passes::CudaTarget{instructions_, true, true});
      if (!pairs_->has_pairs()) pairs_.reset();
    });
    return pairs_ ? *pairs_ : first_;
  }

  std::shared_ptr<const Signature> signature_;
  int instructions_;
  Variant first_;
  mutable std::once_flag second_made_, pairs_made_;
  mutable std::unique_ptr<const Variant> pairs_;
  mutable std::unique_ptr<const Variant> second_;
  Extents extents_;
  std::vector<std::size_t> zeroed_;
};

void CudaExecutor::Call::place_workspaces() {
  if (binding.workspace_bytes == 0 && !executor.first_.has_counters()) return;
  lease = gpu.workspaces().lease(stream, binding.workspace_bytes);
  if (PoisonedAllocations::active() && binding.workspace_bytes > 0) {
    const Driver& d = driver();
    d(d.MemsetD8Async, lease.memory, static_cast<unsigned char>(0xff), binding.workspace_bytes, stream);
  }
  DeviceAddress next = lease.memory;
  const std::size_t unit = workspace_alignment(DeviceKind::cuda);
  for (std::size_t w = executor.signature_->parameter_tensors(); w < tensors.size(); ++w) {
    tensors[w].data = reinterpret_cast<void*>(next);
    tensors[w].device = binding.device;
    const auto bytes = static_cast<std::size_t>(nelements(tensors[w]) * tensors[w].dtype.bytes());
    next += (bytes + unit - 1) / unit * unit;
  }
}

void CudaExecutor::Call::clear() const {
  for (const std::size_t i : executor.zeroed_) cuda::clear(tensors[i]);
}

bool CudaExecutor::Call::request_maps(const Variant& variant) {
  maps.clear();
  for (const auto& plan : variant.program().maps) {
    const auto request = request_map(plan, tensors[static_cast<std::size_t>(plan.tensor)]);
    if (!request) return false;
    maps.push_back(*request);
  }
  for (const auto& [tensor, bytes] : variant.program().aligned) {
    if (!has_aligned_rows(tensors[static_cast<std::size_t>(tensor)], bytes)) return false;
  }
  return true;
}

// Where few blocks have no partner.
bool CudaExecutor::Call::pays_in_pairs(const Variant& variant) const {
  constexpr std::int64_t many = 8;
  for (std::size_t grid = 0; grid < variant.program().kernels.size(); ++grid) {
    const int index = variant.program().kernels[grid].pair_index;
    if (index < 0) continue;
    const std::int64_t extent = executor.extents_.extent(grid, index, binding);
    if (extent % 2 != 0 && extent < many) return false;
  }
  return variant.has_pairs();
}

const Variant& CudaExecutor::Call::choose() {
  if (request_maps(executor.first_)) {
    const bool off_sectors = std::any_of(maps.begin(), maps.end(), is_off_sectors);
    if (!off_sectors || !pays_in_pairs(executor.in_pairs())) return executor.first_;
    if (request_maps(executor.in_pairs())) return executor.in_pairs();
    request_maps(executor.first_);
    return executor.first_;
  }
  const Variant& plain = executor.without_maps();
  internal_assert(request_maps(plain), "a program without the copy engine has no tensor maps");
  return plain;
}

// The parameter of the functions.
void CudaExecutor::Call::write_words(const Variant& variant, const Module& module) {
  words.reserve(8 * tensors.size() + binding.values.size() + 16 * maps.size() + 8);
  for (const TensorRef& tensor : tensors) words.push_back(address_of(tensor.data));
  for (const TensorRef& tensor : tensors)
    words.insert(words.end(), tensor.strides.begin(), tensor.strides.end());
  for (const ir::Value& value : binding.values) words.push_back(static_cast<std::uint64_t>(word_of(value)));
  words.push_back(module.report());
  words.push_back(lease.counters);
  if (!maps.empty()) words.resize((words.size() + 7) / 8 * 8);
  for (std::size_t i = 0; i < maps.size(); ++i) {
    const TensorMap map = variant.map(i, maps[i]);
    words.insert(words.end(), std::begin(map.words), std::end(map.words));
  }
}

void CudaExecutor::Call::launch() {
  const Variant& variant = choose();
  const Module& module = variant.on(gpu);
  write_words(variant, module);
  bool follows = false;
  for (std::size_t grid = 0; grid < executor.extents_.count(); ++grid) {
    const std::int64_t tiles = executor.extents_.tiles(grid, binding, executor.signature_->kernel().name);
    if (tiles > 0) module.launch(grid, tiles, words.data(), stream, follows);
    follows = tiles > 0;
  }
}

}  // namespace

std::unique_ptr<const Executable> make_executor(const std::shared_ptr<const Signature>& signature,
                                                int instructions) {
  if (Gpu::get(0).architecture() != hopper) instructions = std::min(instructions, common_instructions);
  return std::make_unique<CudaExecutor>(signature, instructions);
}

}  // namespace tegula::cuda
