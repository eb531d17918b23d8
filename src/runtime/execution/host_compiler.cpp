#include "runtime/execution/host_compiler.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/execution/process.hpp"
#include "runtime/files/file_io.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

constexpr std::string_view always[] = {"-x", "c++", "-std=c++20", "-shared", "-fPIC"};
constexpr std::string_view object_suffix = ".so";
constexpr int quoted_lines = 12;

std::string first_lines(const std::string& path, int count) {
  std::ifstream in(path);
  std::string text, line;
  for (int i = 0; i < count && std::getline(in, line); ++i) text += "\n  " + line;
  return text;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush())
    throw DeviceError(fmt::format("{} cannot be written: {}; name another directory in TMPDIR", path,
                                  std::strerror(errno)));
}

// The first line that the compiler says of itself; empty if it does not work.
std::string query_version(const std::string& path) {
  const TemporaryDirectory directory;
  const std::string output = directory.file("version");
  const ProcessResult result = run_process({path, "--version"}, output, std::chrono::seconds(20));
  std::ifstream in(output);
  std::string line;
  if (!result.succeeded() || !std::getline(in, line)) return "";
  return line;
}

std::vector<std::string> command(const std::string& compiler, const HostCompiler::Source& source,
                                 const TemporaryDirectory& directory, const std::string& output) {
  std::vector<std::string> arguments{compiler};
  arguments.insert(arguments.end(), std::begin(always), std::end(always));
  arguments.insert(arguments.end(), source.flags.begin(), source.flags.end());
  arguments.insert(arguments.end(), {"-I", directory.path(), "-o", output, directory.file("kernel.cpp")});
  return arguments;
}

// The key of everything that is compiled, by any compiler.
std::string key_of(const HostCompiler::Source& source) {
  KeyBuilder key;
  for (const std::string_view flag : always) key.add(flag);
  key.add("flags");
  for (const std::string& flag : source.flags) key.add(flag);
  key.add("headers");
  for (const HostCompiler::Source::Header& header : source.headers) key.add(header.name).add(header.text);
  return key.add("text").add(source.text).key();
}

// What a compiler cannot help.
void refuse_full_disk(const std::string& directory) {
  constexpr std::uint64_t least = 1 << 16;
  std::error_code error;
  const auto space = std::filesystem::space(directory, error);
  if (!error && space.available < least)
    throw DeviceError(fmt::format(
        "no space is left for compilers in {}; free some space, or name another directory in TMPDIR",
        directory));
}

std::string how_it_failed(const ProcessResult& result, std::chrono::milliseconds timeout) {
  if (!result.started) return "could not be started";
  if (result.timed_out) return fmt::format("was stopped after {} ms", timeout.count());
  if (result.exit_code != 0) return fmt::format("ended with status {}", result.exit_code);
  return "wrote nothing";
}

}  // namespace

SharedObject::SharedObject(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw DeviceError(fmt::format("{} cannot be loaded: {}", path, reason ? reason : "unknown reason"));
  }
  handle_ = std::shared_ptr<void>(handle, [](void* open) { dlclose(open); });
}

void* SharedObject::symbol(const std::string& name) const {
  void* address = dlsym(handle_.get(), name.c_str());
  if (address == nullptr) throw DeviceError(fmt::format("the compiled kernel has no function '{}'", name));
  return address;
}

std::optional<HostCompiler> HostCompiler::find() {
  if (const auto chosen = environment(Variable::cxx)) {
    if (*chosen == "none") return std::nullopt;
    const std::string path = find_program(*chosen);
    const std::string version = path.empty() ? "" : query_version(path);
    if (version.empty()) {
      throw ArgumentError(
          fmt::format("TEGULA_CXX={}: this is not a C++ compiler that runs here; give the path of one, or "
                      "'none' to use no compiler",
                      *chosen));
    }
    return HostCompiler(path, version);
  }
  for (const char* name : {"g++", "c++", "clang++"}) {
    const std::string path = find_program(name);
    const std::string version = path.empty() ? "" : query_version(path);
    if (!version.empty()) return HostCompiler(path, version);
  }
  return std::nullopt;
}

void HostCompiler::compile(const Source& source, const std::string& output) const {
  TemporaryDirectory directory;
  write_text(directory.file("kernel.cpp"), source.text);
  for (const Source::Header& header : source.headers) {
    internal_assert(header.name.find('/') == std::string::npos, "headers of kernels are plain file names");
    write_text(directory.file(header.name), header.text);
  }
  const std::string messages = directory.file("messages.txt");
  const ProcessResult result = run_process(command(path_, source, directory, output), messages, timeout_);
  if (result.succeeded() && std::ifstream(output).good()) return;
  refuse_full_disk(directory.path());
  throw DeviceError(fmt::format("the compiler {} {} on a kernel; {}{}", path_,
                                how_it_failed(result, timeout_), kept_text(directory, "kernel.cpp"),
                                first_lines(messages, quoted_lines)));
}

SharedObject HostCompiler::load(const Source& source, const KernelCache& cache) const {
  // Two names of one compiler differ: one may be a script that compiles in its own way.
  const std::string suffix = fmt::format(".{}{}", KeyBuilder().add(path_).add(version_).key(), object_suffix);
  std::optional<SharedObject> object;
  cache.load_or_build(
      key_of(source), suffix, [&](const std::string& output) { compile(source, output); },
      [&](const std::string& path) { object.emplace(path); });
  return *object;
}

const HostCompiler* host_compiler() {
  // Never destroyed: see thread_pool().
  static const auto& compiler = *new std::optional<HostCompiler>(HostCompiler::find());
  return compiler ? &*compiler : nullptr;
}

std::optional<SharedObject> load_compiled(const HostCompiler::Source& source, const KernelCache& cache) {
  if (const HostCompiler* compiler = host_compiler()) return compiler->load(source, cache);
  std::optional<SharedObject> object;
  cache.load_any(key_of(source), object_suffix, [&](const std::string& path) { object.emplace(path); });
  return object;
}

}  // namespace tegula
