#include "cuda/compile.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "codegen/cpu.hpp"
#include "device/embedded.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula::cuda {
namespace {

constexpr int first_with_cache = 12090;  // version of NVRTC

std::vector<std::string> options_for(int architecture, int version) {
  // Resources come from the assembler's statements; line numbers cost nothing and serve profilers.
  std::vector<std::string> result{fmt::format("--gpu-architecture={}", architecture_name(architecture)),
                                  "--std=c++17", "--generate-line-info", "--ptxas-options=-v"};
  // What comes from NVRTC's own cache has no statements.
  if (version >= first_with_cache) result.push_back("--no-cache");
  const auto checks = environment_integer(Variable::cuda_checks, 0, 2).value_or(0);
  if (checks == 1) result.push_back("--define-macro=TG_CHECKED");
  if (checks == 2) result.push_back("--define-macro=TG_EVERY_THREAD_ARRIVES");
  return result;
}

// An entry of the cache: the lengths of the machine code and of the log, then both.
void write_entry(const std::string& path, const Nvrtc::Output& output) {
  std::ofstream out(path, std::ios::binary);
  out << output.cubin.size() << ' ' << output.log.size() << '\n' << output.cubin << output.log;
  if (!out.flush()) throw DeviceError(fmt::format("{} cannot be written", path));
}

MachineCode read_entry(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::size_t cubin_size = 0, log_size = 0;
  in >> cubin_size >> log_size;
  in.get();
  MachineCode code{std::string(cubin_size, '\0'), std::string(log_size, '\0')};
  in.read(code.cubin.data(), static_cast<std::streamsize>(cubin_size));
  if (!in.read(code.log.data(), static_cast<std::streamsize>(log_size))) {
    throw DeviceError(fmt::format("{} cannot be read", path));
  }
  return code;
}

// The integer that stands before `unit` in a line, 0 if there is none.
int number_before(const std::string& line, const std::string& unit) {
  const std::size_t end = line.find(" " + unit);
  if (end == std::string::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

bool has(const std::string& line, const char* wanted) { return line.find(wanted) != std::string::npos; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

const std::vector<Nvrtc::Header>& device_headers() {
  static const std::vector<Nvrtc::Header> headers = [] {
    std::vector<Nvrtc::Header> result;
    for (const embedded::File& file : embedded::cuda_headers())
      result.push_back({std::string(file.name), std::string(file.text)});
    return result;
  }();
  return headers;
}

std::string architecture_name(int architecture) {
  return fmt::format("sm_{}{}", architecture, architecture == 90 ? "a" : "");
}

MachineCode compile_code(const Nvrtc& nvrtc, const std::string& text,
                         const std::vector<Nvrtc::Header>& headers, int architecture,
                         const KernelCache& cache) {
  const Nvrtc::Source source{text, headers, options_for(architecture, nvrtc.version())};
  KeyBuilder key;
  key.add("cuda").add(nvrtc.identity());
  for (const std::string& option : source.options) key.add(option);
  for (const Nvrtc::Header& header : headers) key.add(header.name).add(header.text);
  key.add("text").add(codegen::without_comments(text));
  MachineCode code;
  cache.load_or_build(
      key.key(), ".cubin", [&](const std::string& output) { write_entry(output, nvrtc.compile(source)); },
      [&](const std::string& path) { code = read_entry(path); });
  return code;
}

std::vector<Resources> read_resources(const std::string& log) {
  std::vector<Resources> result;
  for (const std::string& line : lines_of(log)) {
    if (has(line, "Compiling entry function '")) {
      const std::size_t begin = line.find('\'') + 1;
      result.push_back({line.substr(begin, line.find('\'', begin) - begin)});
    }
    if (result.empty()) continue;
    Resources& last = result.back();
    if (has(line, "bytes stack frame")) {
      last.stack_bytes = number_before(line, "bytes stack frame");
      last.spill_store_bytes = number_before(line, "bytes spill stores");
      last.spill_load_bytes = number_before(line, "bytes spill loads");
    }
    if (has(line, ": Used ")) {
      last.registers = number_before(line, "registers");
      last.static_shared_bytes = number_before(line, "bytes smem");
    }
  }
  return result;
}

std::vector<std::string> read_remarks(const std::string& log) {
  constexpr const char* statements[] = {"Compiling entry function",
                                        "Function properties for",
                                        "bytes stack frame",
                                        ": Used ",
                                        "bytes gmem",
                                        "Compile time ="};
  std::vector<std::string> remarks;
  for (const std::string& line : lines_of(log)) {
    bool known = line.find_first_not_of(" \t\r") == std::string::npos;
    for (const char* statement : statements) known = known || has(line, statement);
    if (!known) remarks.push_back(line);
  }
  return remarks;
}

}  // namespace tegula::cuda
