#include "emulation/emulated_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "codegen/cpu.hpp"
#include "codegen/cuda_program.hpp"
#include "device/embedded.hpp"
#include "emulation/fibers.hpp"
#include "runtime/block_order.hpp"
#include "runtime/host_compiler.hpp"

namespace tegula::emulation {
namespace {

// The memory that a kernel has not asked for holds this.
constexpr unsigned char untouched = 0xff;

std::string entry_of(const std::string& function) { return "emulate_" + function; }

// The printed text, and for each kernel a function that takes the address of the parameter.
SharedObject compile_text(const codegen::CudaProgram& program) {
  auto* compiler = host_compiler();
  if (!compiler)
    throw DeviceError(
        "no C++ compiler was found for emulated kernels; install g++ or name one in TEGULA_CXX");
  HostCompiler::Source source{codegen::without_comments(program.text), {}, {}};
  for (const auto& kernel : program.kernels)
    source.text += fmt::format("extern \"C\" void {}(const void* call) {{ {}(*(const Call*)call); }}\n",
                               entry_of(kernel.function), kernel.function);
  source.flags = {"-std=c++17", "-O1", "-w", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing"};
  for (auto* files : {&embedded::cuda_headers(), &embedded::emulation_headers()}) {
    for (auto& file : *files) {
      std::erase_if(source.headers, [&](auto& known) { return known.name == file.name; });
      source.headers.push_back({std::string(file.name), std::string(file.text)});
    }
  }
  return compiler->load(source, kernel_cache());
}

class EmulatedExecutor : public Executable {
 public:
  EmulatedExecutor(std::shared_ptr<const Signature> signature, const passes::CudaTarget& target)
      : signature_(std::move(signature)),
        program_(codegen::print_cuda(*signature_, target)),
        object_(compile_text(program_)),
        printed_((*object_.function<TegulaBind>("tegula_bind"))(&Fibers::functions())) {
    for (auto& grid : signature_->kernel().grids) orders_.emplace_back(grid, *signature_);
  }

  void run(const Binding& binding) const override {
    std::lock_guard lock(mutex_);
    clear_zeroed(*signature_, binding);
    std::vector<std::int64_t> call;
    for (auto& tensor : binding.tensors) call.push_back(reinterpret_cast<std::intptr_t>(tensor.data));
    for (auto& tensor : binding.tensors)
      call.insert(call.end(), tensor.strides.begin(), tensor.strides.end());
    for (auto& value : binding.values) call.push_back(word_of(value));
    std::uint64_t status = 0;
    int counters[2] = {};
    call.push_back(reinterpret_cast<std::intptr_t>(&status));
    call.push_back(reinterpret_cast<std::intptr_t>(counters));
    for (std::size_t grid = 0; grid < program_.kernels.size(); ++grid) {
      run_grid(grid, call, binding);
      if (status == 0) continue;
      auto& assertion = program_.assertions[static_cast<std::uint32_t>(status) - 1];
      throw ProgramError("assertion failed: " + assertion.message, assertion.at);
    }
  }

 private:
  void run_grid(std::size_t grid, const std::vector<std::int64_t>& call, const Binding& binding) const {
    const auto& kernel = program_.kernels[grid];
    auto* function = object_.function<TegulaKernel>(entry_of(kernel.function));
    Fibers fibers(kernel.threads);
    const auto extents = orders_[grid].extents(binding);
    const std::int64_t blocks = extents[0] * extents[1] * extents[2];
    for (std::int64_t block = 0; block < blocks; ++block) {
      std::memset(printed_.shared, untouched, printed_.shared_bytes);
      *printed_.block = {static_cast<unsigned>(block), 0, 0};
      fibers.run(function, call.data(), printed_, static_cast<std::uint32_t>(block));
      check_shared(kernel);
    }
  }

  void check_shared(const codegen::CudaProgram::Kernel& kernel) const {
    const unsigned char* const begin = printed_.shared + kernel.shared_bytes;
    const unsigned char* const end = printed_.shared + printed_.shared_bytes;
    const bool clean = std::all_of(begin, end, [](unsigned char byte) { return byte == untouched; });
    if (!clean)
      throw InternalError(
          fmt::format("{} wrote behind its {} bytes of shared memory", kernel.function, kernel.shared_bytes));
  }

  std::shared_ptr<const Signature> signature_;
  codegen::CudaProgram program_;
  SharedObject object_;
  TegulaPrinted printed_;
  std::vector<BlockOrder> orders_;
  mutable std::mutex mutex_;  // the text has one running thread and one shared memory
};

}  // namespace

std::unique_ptr<const Executable> make_emulated_executor(const std::shared_ptr<const Signature>& signature,
                                                         const passes::CudaTarget& target) {
  return std::make_unique<EmulatedExecutor>(signature, target);
}

}  // namespace tegula::emulation
