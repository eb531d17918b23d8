#include "kernel_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/execution/host_compiler.hpp"
#include "runtime/execution/process.hpp"
#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

namespace {

namespace fs = std::filesystem;
constexpr std::chrono::seconds building{120}, running{300};

std::string contents_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The headers and the shared library: those installed beside the tool, or those of its build.
struct Development {
  std::string include, libraries;
};

Development development() {
  std::error_code unknown;
  const fs::path prefix = fs::read_symlink("/proc/self/exe", unknown).parent_path().parent_path();
  if (fs::exists(prefix / "include/tegula/version.hpp", unknown))
    return {(prefix / "include").string(), (prefix / TEGULA_LIBRARY_FOLDER).string()};
  return {TEGULA_BUILD_INCLUDE, TEGULA_BUILD_LIBRARIES};
}

void check_file(const std::string& command, const std::string& file) {
  std::error_code unknown;
  if (!fs::is_regular_file(file, unknown))
    throw ArgumentError(fmt::format("{}: there is no file {}", command, file));
  if (contents_of(file).find("TEGULA_KERNELS") == std::string::npos)
    throw ArgumentError(
        fmt::format("{}: {} lists no kernels; add a line such as TEGULA_KERNELS(gemm_relu(128, 128, 64)) "
                    "outside its functions",
                    command, file));
}

// A program of the user's own may be in the file: its `main` gets another name.
std::string program_of(const std::string& file, const std::string& statements) {
  return fmt::format(
      "#define main tegula_main_of_the_file\n#include {0}\n#undef main\n"
      "#include <cstdio>\n#include <exception>\n#include <tegula/analyze.hpp>\n#include "
      "<tegula/build.hpp>\n#include <tegula/show.hpp>\n"
      "int main() {{\n  try {{\nconst auto kernels = tegula_kernels();\n{1}"
      "  }} catch (const std::exception& error) {{\n    std::fputs(error.what(), stderr);\n    return 1;\n  "
      "}}\n}}\n",
      literal(fs::absolute(file).string()), statements);
}

void compile_program(const std::string& command, const std::string& file,
                     const std::vector<std::string>& flags, const TemporaryDirectory& directory) {
  const HostCompiler* compiler = host_compiler();
  if (!compiler)
    throw DeviceError(fmt::format(
        "{}: no C++ compiler was found for {}; install g++, or name one in TEGULA_CXX", command, file));
  const Development own = development();
  std::vector<std::string> arguments{compiler->path(),  "-std=c++20", "-O0",
                                     "-DTEGULA_SHARED", "-I",         own.include};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  for (const std::string& last :
       {directory.file("program.cpp"), std::string("-o"), directory.file("program"), "-L" + own.libraries,
        "-Wl,-rpath," + own.libraries, std::string("-ltegula")})
    arguments.push_back(last);
  const ProcessResult result = run_process(arguments, directory.file("messages"), building);
  if (!result.succeeded())
    throw ArgumentError(
        fmt::format("{}: {} cannot be built:\n{}", command, file, contents_of(directory.file("messages"))));
}

}  // namespace

bool is_kernel_file(const std::string& argument) {
  return std::ranges::any_of(std::initializer_list<const char*>{".cpp", ".cc", ".cxx", ".hpp"},
                             [&](const char* end) { return argument.ends_with(end); });
}

std::string literal(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string run_kernel_file(const std::string& command, const std::string& file,
                            const std::string& statements, const std::vector<std::string>& flags) {
  check_file(command, file);
  TemporaryDirectory directory;
  std::ofstream(directory.file("program.cpp")) << program_of(file, statements);
  compile_program(command, file, flags, directory);
  const ProcessResult result = run_process({directory.file("program")}, directory.file("output"), running);
  const std::string output = contents_of(directory.file("output")), own = command + ": ";
  if (result.timed_out)
    throw Error(fmt::format("{}the kernels of {} took more than five minutes: {}", own, file, output));
  if (!result.succeeded() && output.empty())  // whatever it printed is lost if it crashes
    throw Error(fmt::format("{}the program of {} ended with status {}; above 128, it is 128 + a signal", own,
                            file, result.exit_code));
  // Functions of the library begin their messages with a name that is often the command's.
  if (!result.succeeded())
    throw Error(own + file + ": " + output.substr(output.starts_with(own) ? own.size() : 0));
  return output;
}

}  // namespace tegula::tool
