#include "tegula/build.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "ahead/header.hpp"
#include "ahead/tables.hpp"
#include "cuda/compile.hpp"
#include "device/embedded.hpp"
#include "runtime/execution/cpu_executor.hpp"
#include "runtime/execution/host_compiler.hpp"
#include "runtime/execution/process.hpp"
#include "runtime/files/file_io.hpp"
#include "runtime/machine/cpu_features.hpp"
#include "show/folders.hpp"
#include "tegula/error.hpp"

namespace tegula {

namespace {

using ahead::BundledKernel, ahead::CudaCode;
using Arguments = std::vector<std::string>;
constexpr std::chrono::minutes patience{10};

bool is_identifier(const std::string& name) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; };
  const auto inner = [&](char c) { return letter(c) || std::isdigit(static_cast<unsigned char>(c)); };
  return !name.empty() && letter(name[0]) && std::ranges::all_of(name, inner);
}

void check(std::span<const lang::Kernel> kernels, const BuildOptions& options) {
  if (!is_identifier(options.name))
    throw ArgumentError(
        fmt::format("build: '{}' cannot be the name of a bundle; use letters, digits and _", options.name));
  if (kernels.empty()) throw ArgumentError("build: there is no kernel; list at least one");
  std::set<std::string> names;
  for (auto& kernel : kernels) {
    if (!names.insert(kernel.name()).second)
      throw ArgumentError(fmt::format(
          "build: two kernels are named '{}'; put their parameters into the names", kernel.name()));
  }
  int gpus = 0;
  for (const Target target : options.targets) {
    const bool gpu = target == Target::cuda() || target == Target::cuda_sm80();
    gpus += gpu;
    if (!gpu && !(target == Target::cpu()))
      throw ArgumentError(fmt::format(
          "build: there is no code for target '{}'; choose cpu, cuda or cuda_sm80", target.name()));
  }
  if (gpus > 1) throw ArgumentError("build: a bundle has code for one kind of GPU; choose cuda or cuda_sm80");
  if (options.targets.empty())
    throw ArgumentError("build: there is no target; choose cpu, cuda or cuda_sm80");
}

// A bundle on its way: sources in a folder of their own, what is kept in the user's.
class Bundle {
 public:
  Bundle(const std::string& folder, const BuildOptions& options) : folder_(folder), options_(options) {
    compiler_ = host_compiler();
    if (!compiler_)
      throw DeviceError("build: no C++ compiler was found; install g++, or name one in TEGULA_CXX");
    for (auto* files : {&embedded::cpu_headers(), &embedded::bundle_headers()}) {
      for (auto& file : *files) write_source(std::string(file.name), std::string(file.text));
    }
  }

  Arguments make(std::span<const lang::Kernel> kernels) {
    for (auto& kernel : kernels) kernels_.push_back({Signature(kernel.ir()), {}, {}, {}, 90});
    for (const Target target : options_.targets) {
      if (target == Target::cpu()) compile_for_cpus();
      if (target == Target::cuda()) compile_for_gpus(90);
      if (target == Target::cuda_sm80()) compile_for_gpus(80);
    }
    write_glue();
    link();
    keep("tegula_bundle.h", source_text("tegula_bundle.h"));
    keep(options_.name + ".h", ahead::header(kernels_, options_.name));
    return std::move(written_);
  }

 private:
  void write_source(const std::string& name, const std::string& text) const {
    std::ofstream out(sources_.file(name), std::ios::binary);
    out << text;
    if (!out.flush())
      throw DeviceError("build: " + sources_.file(name) +
                        " cannot be written; name another directory in TMPDIR");
  }
  std::string source_text(const std::string& name) const {
    std::ifstream in(sources_.file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void keep(const std::string& name, const std::string& text) {
    written_.push_back(shown::write_complete(folder_, name, text));
  }
  std::string kept(const std::string& name) {
    written_.push_back((std::filesystem::path(folder_) / name).string());
    return written_.back();
  }

  void run(Arguments arguments) const {
    arguments.insert(arguments.begin(), compiler_->path());
    arguments.insert(arguments.end(), {"-I", sources_.path()});
    const ProcessResult result = run_process(arguments, sources_.file("messages"), patience);
    if (!result.succeeded())
      throw DeviceError(
          fmt::format("build: {}\nfailed:\n{}", fmt::join(arguments, " "), source_text("messages")));
  }

  void compile_for_cpus() {
    std::string text;
    Arguments functions;
    for (BundledKernel& kernel : kernels_) {
      kernel.cpu = codegen::print_cpu(kernel.signature);
      text += codegen::without_comments(kernel.cpu->text);
      for (auto& block : kernel.cpu->blocks) functions.push_back(block.function);
      for (auto& ordered : kernel.cpu->ordered) functions.push_back(ordered.function);
    }
    write_source("cpu.cpp", text);
    for (const Isa isa : all_isas) {
      objects_.push_back(kept(fmt::format("{}_{}.o", options_.name, isa_name(isa))));
      Arguments arguments = cpu_flags(isa);
      for (auto& function : functions)
        arguments.push_back(fmt::format("-D{}={}", function, ahead::function_for(function, isa_name(isa))));
      for (const std::string& last :
           {std::string("-w"), std::string("-fPIC"), std::string("-fvisibility=hidden"), std::string("-c"),
            sources_.file("cpu.cpp"), std::string("-o"), objects_.back()})
        arguments.push_back(last);
      run(std::move(arguments));
    }
  }

  CudaCode code_of(const BundledKernel& kernel, const passes::CudaTarget& target) {
    CudaCode code{codegen::print_cuda(kernel.signature, target), {}};
    const std::string name =
        fmt::format("{}{}.{}", kernel.signature.kernel().name, target.copy_engine ? "" : ".by_threads",
                    cuda::architecture_name(target.architecture));
    code.symbol = fmt::format("{}_code_{}", options_.name, cubins_.size());
    keep(name + ".cubin", cuda::compile_code(cuda::nvrtc(), code.program.text, cuda::device_headers(),
                                             target.architecture, kernel_cache())
                              .cubin);
    cubins_.push_back({code.symbol, std::filesystem::absolute(written_.back()).string()});
    return code;
  }
  void compile_for_gpus(int architecture) {
    for (BundledKernel& kernel : kernels_) {
      kernel.architecture = architecture;
      kernel.cuda = code_of(kernel, {architecture, true});
      if (!kernel.cuda->program.maps.empty() || !kernel.cuda->program.aligned.empty())
        kernel.cuda_by_threads = code_of(kernel, {architecture, false});
    }
  }

  // The tables, the functions of the header, and the machine code for GPUs.
  void write_glue() const {
    std::string text = "#include \"loader.hpp\"\n\nnamespace {\nusing namespace bundle;\n";
    for (auto& [symbol, path] : cubins_)
      text += fmt::format(
          "__asm__(\".section .rodata\\n.balign 64\\n{0}:\\n.incbin \\\"{1}\\\"\\n.previous\\n\");\n", symbol,
          path);
    for (std::size_t i = 0; i < kernels_.size(); ++i)
      text += ahead::tables(kernels_[i], fmt::format("kernel_{}", i));
    text += "}  // namespace\n\nextern \"C\" {\n" + ahead::definitions(kernels_, options_.name) + "}\n";
    write_source("glue.cpp", text);
  }

  void link() {
    write_source("exported.map", fmt::format("{{ global: {}_*; local: *; }};\n", options_.name));
    Arguments arguments{"-std=c++17", "-O1",
                        "-fPIC",      "-fvisibility=hidden",
                        "-shared",    "-Wl,--version-script=" + sources_.file("exported.map")};
    for (const char* source : {"glue.cpp", "loader.cpp"}) arguments.push_back(sources_.file(source));
    arguments.insert(arguments.end(), objects_.begin(), objects_.end());
    const std::string library = "lib" + options_.name + ".so";
    arguments.push_back("-Wl,-soname," + library);
    for (const std::string& last :
         {std::string("-lpthread"), std::string("-ldl"), std::string("-o"), kept(library)})
      arguments.push_back(last);
    run(std::move(arguments));
  }

  std::string folder_;
  const BuildOptions& options_;
  const HostCompiler* compiler_ = nullptr;
  TemporaryDirectory sources_;
  std::vector<BundledKernel> kernels_;
  Arguments objects_, written_;
  std::vector<std::pair<std::string, std::string>> cubins_;  // symbols and files
};

}  // namespace

std::vector<std::string> build(std::span<const lang::Kernel> kernels, const std::string& folder,
                               const BuildOptions& options) {
  check(kernels, options);
  shown::prepare_folder("build: --out", folder);
  return Bundle(folder, options).make(kernels);
}

}  // namespace tegula
