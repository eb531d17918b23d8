#include "emulation/emulated_executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <span>

#include "codegen/cpu.hpp"
#include "codegen/cuda_program.hpp"
#include "cuda/tensor_maps.hpp"
#include "device/embedded.hpp"
#include "emulation/fibers.hpp"
#include "runtime/execution/block_order.hpp"
#include "runtime/execution/host_compiler.hpp"

namespace tegula::emulation {
namespace {

// The memory that a kernel has not asked for holds this.
constexpr unsigned char untouched = 0xff;

std::string entry_of(const std::string& function) { return "emulate_" + function; }

// wgmma_n128_bf16_registers_tb(…) as the emulation has it.
std::string emulated_product(const std::string& name) {
  const auto has = [&](const char* wanted) { return name.find(wanted) != std::string::npos; };
  const std::string sizes = name.substr(std::string_view("wgmma_n").size());
  const int n = std::stoi(sizes);
  const std::size_t begin = sizes.find('_') + 1;
  const std::string type = sizes.substr(begin, sizes.find('_', begin) - begin);
  const bool in_words = has("_words");
  const std::string sum = type == "s8" || type == "u8" ? "int" : in_words ? "uint32_t" : "float";
  if (const std::size_t sparse = name.find("_sparse"); sparse != std::string::npos)
    return fmt::format(
        "TG_DEVICE void {0}({1} (&d)[{2}], uint64_t a, uint64_t b, uint32_t metadata, int add) {{\n"
        "  tg::sparse_wgmma<{3}, tg::{4}, {5}, {6}>(d, a, b, metadata, add);\n}}\n",
        name, sum, n / 2, n, type, has("_tb"), name.back());
  return fmt::format(
      "TG_DEVICE void {0}({7} (&d)[{1}], {2} a, uint64_t b, int add) {{\n"
      "  tg::wgmma<{3}, tg::{4}, {5}, {6}, {8}>(d, a, b, add);\n}}\n",
      name, in_words ? n / 4 : n / 2, has("_registers") ? "const uint32_t*" : "uint64_t", n, type, has("_ta"),
      has("_tb"), sum, in_words);
}

// The text with those functions of its instructions that are not `known` yet.
std::string emulated_text(const codegen::CudaProgram& program, std::set<std::string>& known) {
  std::string text = program.text;
  for (const auto& [name, instruction] : program.instructions) {
    const std::size_t at = text.find(instruction);
    internal_assert(at != std::string::npos && name.starts_with("wgmma_n"),
                    "the text holds its instructions");
    text.replace(at, instruction.size(), known.insert(name).second ? emulated_product(name) : "");
  }
  return codegen::without_comments(text);
}

// As src/device/emulation/asynchronous.cuh has it.
struct EmulatedMap {
  std::uint64_t address;
  std::uint32_t rank, element_bytes;
  std::uint64_t extents[5], strides[5];
  std::uint32_t box[5], swizzle;
};
constexpr std::size_t map_bytes = 128, line = 64, word = sizeof(std::int64_t);
static_assert(sizeof(EmulatedMap) <= map_bytes);

EmulatedMap emulated_map(const cuda::TensorMapRequest& request) {
  EmulatedMap map{request.address,
                  request.rank,
                  static_cast<std::uint32_t>(request.strides[0]),
                  {},
                  {},
                  {},
                  static_cast<std::uint32_t>(request.swizzle)};
  std::copy(request.extents.begin(), request.extents.end(), map.extents);
  std::copy(request.strides.begin(), request.strides.end(), map.strides);
  std::copy(request.box.begin(), request.box.end(), map.box);
  return map;
}

// Printed texts, and for each kernel a function that takes the address of the parameter.
std::string text_of(std::span<const codegen::CudaProgram> programs) {
  std::set<std::string> known;
  std::string text;
  for (const codegen::CudaProgram& program : programs) {
    std::string own = emulated_text(program, known);
    if (programs.size() > 1)  // below the header, which is the first line
      own.insert(own.find('\n') + 1, fmt::format("#define Call Call_{}\n", program.kernels.front().function));
    text += own;
    for (const auto& kernel : program.kernels)
      text += fmt::format("extern \"C\" void {}(const void* call) {{ {}(*(const Call*)call); }}\n",
                          entry_of(kernel.function), kernel.function);
    if (programs.size() > 1) text += "#undef Call\n";
  }
  return text;
}

SharedObject compile_text(std::span<const codegen::CudaProgram> programs) {
  HostCompiler::Source source{text_of(programs), {}, {}};
  source.flags = {"-std=c++17", "-O1", "-w", "-fno-math-errno", "-fwrapv", "-fno-strict-aliasing"};
  for (auto* files : {&embedded::cuda_headers(), &embedded::emulation_headers()}) {
    for (auto& file : *files) {
      std::erase_if(source.headers, [&](auto& known) { return known.name == file.name; });
      source.headers.push_back({std::string(file.name), std::string(file.text)});
    }
  }
  auto object = load_compiled(source, kernel_cache());
  if (!object)
    throw DeviceError(
        "no C++ compiler was found for emulated kernels; install g++ or name one in TEGULA_CXX");
  return *object;
}

// Compiled texts, which have one running thread and one shared memory.
struct Compiled {
  explicit Compiled(std::span<const codegen::CudaProgram> programs)
      : object(compile_text(programs)),
        printed((*object.function<TegulaBind>("tegula_bind"))(&Fibers::functions())) {}

  SharedObject object;
  TegulaPrinted printed;
  std::mutex mutex;
};

class EmulatedExecutor : public Executable {
 public:
  EmulatedExecutor(std::shared_ptr<const Signature> signature, const passes::CudaTarget& target,
                   codegen::CudaProgram program, std::shared_ptr<Compiled> compiled)
      : signature_(std::move(signature)), program_(std::move(program)), compiled_(std::move(compiled)) {
    for (auto& grid : signature_->kernel().grids) orders_.emplace_back(grid, *signature_);
    target_ = target;
  }

  void run(const Binding& binding) const override {
    std::lock_guard lock(compiled_->mutex);
    clear_zeroed(*signature_, binding);
    std::vector<std::int64_t> call;
    for (auto& tensor : binding.tensors) call.push_back(reinterpret_cast<std::intptr_t>(tensor.data));
    for (auto& tensor : binding.tensors)
      call.insert(call.end(), tensor.strides.begin(), tensor.strides.end());
    for (auto& value : binding.values) call.push_back(word_of(value));
    std::uint64_t status = 0;
    int counters[codegen::counter_words] = {};
    call.push_back(reinterpret_cast<std::intptr_t>(&status));
    call.push_back(reinterpret_cast<std::intptr_t>(counters));
    if (!append_maps(call, binding)) return plain().run(binding);
    for (std::size_t grid = 0; grid < program_.kernels.size(); ++grid) {
      run_grid(grid, call, binding);
      if (status == 0) {
        const bool are_reset =
            std::all_of(counters, counters + codegen::counter_words, [](int n) { return n == 0; });
        internal_assert(are_reset, "a grid resets its counters");
        continue;
      }
      auto& assertion = program_.assertions[static_cast<std::uint32_t>(status) - 1];
      throw ProgramError("assertion failed: " + assertion.message, assertion.at);
    }
  }

  std::vector<std::string> notes() const override { return passes::format(program_.notes); }

 private:
  // Whether maps describe all tensors that the program wants to copy by them.
  bool append_maps(std::vector<std::int64_t>& call, const Binding& binding) const {
    for (const auto& [tensor, bytes] : program_.aligned) {
      if (!cuda::has_aligned_rows(binding.tensors[static_cast<std::size_t>(tensor)], bytes)) return false;
    }
    if (!program_.maps.empty()) call.resize((call.size() * word + line - 1) / line * line / word);
    for (const auto& plan : program_.maps) {
      const auto request = cuda::request_map(plan, binding.tensors[static_cast<std::size_t>(plan.tensor)]);
      if (!request) return false;
      const EmulatedMap map = emulated_map(*request);
      call.resize(call.size() + map_bytes / word);
      std::memcpy(&call[call.size() - map_bytes / word], &map, sizeof(map));
    }
    return true;
  }

  // The same without the copy engine.
  const Executable& plain() const {
    std::call_once(plain_once_, [&] {
      passes::CudaTarget target = target_;
      target.copy_engine = false;
      plain_ = make_emulated_executor(signature_, target);
    });
    return *plain_;
  }

  void run_grid(std::size_t grid, const std::vector<std::int64_t>& call, const Binding& binding) const {
    const auto& kernel = program_.kernels[grid];
    auto* function = compiled_->object.function<TegulaKernel>(entry_of(kernel.function));
    const TegulaPrinted& printed = compiled_->printed;
    Fibers fibers(kernel.threads, kernel.ctas);
    const std::size_t shared = printed.shared_bytes * static_cast<std::size_t>(kernel.ctas);
    // The maps of a parameter are at multiples of 64 bytes.
    std::vector<std::int64_t> copy(call.size() + line / word);
    void* parameter = copy.data();
    std::size_t space = copy.size() * word;
    std::align(line, call.size() * word, parameter, space);
    std::copy(call.begin(), call.end(), static_cast<std::int64_t*>(parameter));
    const auto extents = orders_[grid].extents(binding);
    const std::int64_t tiles = extents[0] * extents[1] * extents[2],
                       blocks = kernel.is_persistent ? std::min<std::int64_t>(tiles, 1) : tiles;
    for (std::int64_t block = 0; block < blocks; ++block) {
      std::memset(printed.shared, untouched, shared);
      fibers.run(function, parameter, printed, static_cast<std::uint32_t>(block));
      check_shared(kernel);
    }
  }

  void check_shared(const codegen::CudaProgram::Kernel& kernel) const {
    const TegulaPrinted& printed = compiled_->printed;
    bool clean = true;
    for (int cta = 0; cta < kernel.ctas; ++cta) {
      const unsigned char* const own = printed.shared + printed.shared_bytes * static_cast<std::size_t>(cta);
      clean &= std::all_of(own + kernel.shared_bytes, own + printed.shared_bytes,
                           [](unsigned char byte) { return byte == untouched; });
    }
    if (!clean)
      throw InternalError(
          fmt::format("{} wrote past its {} bytes of shared memory", kernel.function, kernel.shared_bytes));
  }

  std::shared_ptr<const Signature> signature_;
  codegen::CudaProgram program_;
  std::shared_ptr<Compiled> compiled_;
  std::vector<BlockOrder> orders_;
  passes::CudaTarget target_;
  mutable std::once_flag plain_once_;
  mutable std::unique_ptr<const Executable> plain_;
};

}  // namespace

std::unique_ptr<const Executable> make_emulated_executor(const std::shared_ptr<const Signature>& signature,
                                                         const passes::CudaTarget& target) {
  return std::move(make_emulated_executors(std::span(&signature, 1), target).front());
}

std::vector<std::unique_ptr<const Executable>> make_emulated_executors(
    std::span<const std::shared_ptr<const Signature>> signatures, const passes::CudaTarget& target) {
  std::vector<codegen::CudaProgram> programs;
  for (const auto& signature : signatures) programs.push_back(codegen::print_cuda(*signature, target));
  const auto compiled = std::make_shared<Compiled>(programs);
  std::vector<std::unique_ptr<const Executable>> result;
  for (std::size_t i = 0; i < signatures.size(); ++i)
    result.push_back(
        std::make_unique<EmulatedExecutor>(signatures[i], target, std::move(programs[i]), compiled));
  return result;
}

}  // namespace tegula::emulation
