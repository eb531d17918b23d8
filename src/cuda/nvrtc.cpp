#include "cuda/nvrtc.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "cuda/driver.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

constexpr int quoted_lines = 12;
constexpr int compilation_failed = 6;

std::string first_lines(const std::string& text, int count) {
  std::istringstream in(text);
  std::string result, line;
  for (int i = 0; i < count && std::getline(in, line); ++i) result += "\n  " + line;
  return result;
}

// Keeps the texts for whoever looks into a failure; where the main one is.
std::string keep(const Nvrtc::Source& source) {
  TemporaryDirectory directory;
  for (const Nvrtc::Header& header : source.headers)
    std::ofstream(directory.file(header.name)) << header.text;
  std::ofstream(directory.file("kernel.cu")) << source.text;
  return kept_text(directory, "kernel.cu");
}

std::string size_of_file(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? "unknown" : fmt::format("{}", size);
}

}  // namespace

// One compilation. A failure other than of the text is a DeviceError with NVRTC's code.
class Nvrtc::Program {
 public:
  Program(const Nvrtc& nvrtc, const Source& source) : nvrtc_(nvrtc) {
    std::vector<const char*> names, texts;
    for (const Header& header : source.headers) {
      names.push_back(header.name.c_str());
      texts.push_back(header.text.c_str());
    }
    call(nvrtc.CreateProgram, &handle_, source.text.c_str(), "kernel.cu", static_cast<int>(names.size()),
         texts.data(), names.data());
  }
  ~Program() { nvrtc_.DestroyProgram(&handle_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  bool compile(const std::vector<std::string>& options) {
    std::vector<const char*> given;
    for (const std::string& option : options) given.push_back(option.c_str());
    const int code = nvrtc_.CompileProgram(handle_, static_cast<int>(given.size()), given.data());
    if (code != 0 && code != compilation_failed) refuse(nvrtc_.CompileProgram.name(), code);
    return code == 0;
  }
  std::string log() {
    std::string text = read(nvrtc_.GetProgramLogSize, nvrtc_.GetProgramLog);
    return text.substr(0, text.find('\0'));
  }
  std::string cubin() { return read(nvrtc_.GetCUBINSize, nvrtc_.GetCUBIN); }

 private:
  template <class... Args, class... Given>
  void call(const Function<Args...>& function, Given... given) const {
    if (const int code = function(given...)) refuse(function.name(), code);
  }
  [[noreturn]] void refuse(const char* call, int code) const {
    throw DeviceError(fmt::format("{} of {} failed with code {}", call, nvrtc_.path(), code));
  }
  std::string read(const Function<void*, std::size_t*>& size_of, const Function<void*, char*>& get) const {
    std::size_t size = 0;
    call(size_of, handle_, &size);
    std::string text(size, '\0');
    call(get, handle_, text.data());
    return text;
  }
  const Nvrtc& nvrtc_;
  void* handle_ = nullptr;
};

Nvrtc::Nvrtc(Library library) : library_(std::move(library)) {
  int major = 0, minor = 0;
  Version(&major, &minor);
  version_ = major * 1000 + minor * 10;
  if (version_ < oldest_version) {
    throw DeviceError(
        fmt::format("{} belongs to CUDA {}, but {} or newer is needed; install a newer toolkit, or "
                    "name its directory in TEGULA_CUDA",
                    path(), version_text(version_), version_text(oldest_version)));
  }
  identity_ = fmt::format("nvrtc {} {}", version_text(version_), size_of_file(path()));
}

Nvrtc::Output Nvrtc::compile(const Source& source) const {
  Program program(*this, source);
  const bool compiled = program.compile(source.options);
  Output output{"", program.log()};
  if (compiled) output.cubin = program.cubin();
  if (!output.cubin.empty()) return output;
  throw DeviceError(fmt::format("NVRTC {} does not compile a kernel; {}{}", version_text(version_),
                                keep(source), first_lines(output.log, quoted_lines)));
}

std::vector<std::string> nvrtc_paths(int driver_version) {
  std::vector<std::string> names{"libnvrtc.so.13", "libnvrtc.so.12"};
  if (driver_version != 0 && driver_version < 13000) std::swap(names[0], names[1]);
  return library_paths(names);
}

Nvrtc load_nvrtc(const std::vector<std::string>& paths) {
  return Nvrtc(Library::open_first(paths, "NVRTC, the compiler of CUDA,",
                                   fmt::format("install the CUDA toolkit {} or newer, or name its directory "
                                               "in TEGULA_CUDA",
                                               version_text(oldest_version))));
}

const Nvrtc& nvrtc() {
  static const Nvrtc library = load_nvrtc(nvrtc_paths(is_driver_usable() ? driver().version() : 0));
  return library;
}

const Nvrtc* find_nvrtc() {
  try {
    return &nvrtc();
  } catch (const DeviceError&) { return nullptr; }
}

}  // namespace tegula::cuda
