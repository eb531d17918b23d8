// Prints the kernels of ops::pregenerated for the build: PARTS sources for each instruction set and the
// table of their functions. Those of sets that are not built are empty.
//
//   tegula_pregenerate DIRECTORY PARTS every|machine
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "builtin/builtin.hpp"
#include "codegen/cpu.hpp"
#include "ops/pregenerated.hpp"

namespace {

using namespace tegula;

struct Printed {
  std::string text, key;
  std::vector<std::string> blocks, apply;  // names of functions in the text
};

Printed print(const lang::Kernel& kernel) {
  const Signature signature(kernel.ir());
  const codegen::CpuProgram program = codegen::print_cpu(signature);
  if (!program.prints.empty() || !program.assertions.empty())
    throw std::runtime_error(kernel.name() + " reports, which built-in kernels do not");
  Printed result{codegen::without_comments(program.text), {}, {}, {}};
  result.key = builtin::key_of(result.text);
  for (const auto& block : program.blocks) result.blocks.push_back(block.function);
  for (const auto& ordered : program.ordered) result.apply.push_back(ordered.function);
  return result;
}

std::string name_in(Isa isa, const std::string& function) {
  return fmt::format("{}_{}", function, isa_name(isa));
}

// Every file gets about the same amount of text, and neighbours, which share most of the functions that they
// call.
std::vector<std::vector<Printed>> divided(std::vector<Printed> kernels, std::size_t count) {
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const Printed& a, const Printed& b) { return a.blocks < b.blocks; });
  std::size_t total = 0, before = 0;
  for (const Printed& kernel : kernels) total += kernel.text.size();
  std::vector<std::vector<Printed>> files(count);
  for (Printed& kernel : kernels) {
    const std::size_t middle = before + kernel.text.size() / 2;
    before += kernel.text.size();
    files[middle * count / total].push_back(std::move(kernel));
  }
  return files;
}

// Functions get the name of the instruction set after theirs, so that all sets fit in one library.
std::string source(const std::vector<Printed>& file, Isa isa) {
  std::string text;
  for (const Printed& kernel : file) {
    for (const auto* names : {&kernel.blocks, &kernel.apply})
      for (const std::string& name : *names) text += fmt::format("#define {} {}\n", name, name_in(isa, name));
    text += kernel.text;
  }
  return text;
}

std::string pointers(const std::vector<std::string>& names, Isa isa, std::string_view type,
                     std::string_view array) {
  if (names.empty()) return "";
  std::string declared, listed;
  for (const std::string& name : names) {
    declared += fmt::format("extern \"C\" {} {};\n", type, name_in(isa, name));
    listed += fmt::format("{}{}", listed.empty() ? "" : ", ", name_in(isa, name));
  }
  return fmt::format("{}static {}* const {}[] = {{{}}};\n", declared, type, array, listed);
}

using Files = std::vector<std::vector<Printed>>;

std::string table(const std::map<Isa, Files>& files) {
  std::string functions, rows;
  int number = 0;
  for (const auto& [isa, of_isa] : files) {
    for (const auto& file : of_isa) {
      for (const Printed& kernel : file) {
        const std::string blocks = fmt::format("blocks_{}", number), apply = fmt::format("apply_{}", number);
        ++number;
        functions += pointers(kernel.blocks, isa, "TegulaBlock", blocks);
        functions += pointers(kernel.apply, isa, "TegulaApply", apply);
        rows += fmt::format("      {{\"{}\", Isa::{}, {}, {}}},\n", kernel.key, isa_name(isa), blocks,
                            kernel.apply.empty() ? "{}" : apply);
      }
    }
  }
  return fmt::format(
      "#include \"builtin/builtin.hpp\"\n\n{}\nnamespace tegula::builtin {{\n\n"
      "std::span<const Compiled> table() {{\n  static const Compiled rows[] = {{\n{}  }};\n  return "
      "rows;\n}}\n\n"
      "}}  // namespace tegula::builtin\n",
      functions, rows);
}

// Left alone if nothing changed, so that nothing is compiled again.
void write(const std::string& path, const std::string& text) {
  std::ifstream existing(path);
  if (existing && std::string(std::istreambuf_iterator<char>(existing), {}) == text) return;
  std::ofstream file(path);
  file << text;
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

using ByName = std::map<std::string, Printed>;

std::vector<Printed> kernels_of(Isa isa, ByName& printed) {
  std::vector<Printed> kernels;
  for (const lang::Kernel& kernel : ops::pregenerated(isa)) {
    if (!printed.contains(kernel.name())) printed.emplace(kernel.name(), print(kernel));
    kernels.push_back(printed.at(kernel.name()));
  }
  return kernels;
}

void generate(const std::string& directory, std::size_t count, bool every_set) {
  ByName printed;  // the sets share most kernels
  std::map<Isa, Files> files;
  for (const Isa isa : all_isas) {
    const bool is_built = every_set || isa == best_isa();
    files.emplace(isa, divided(is_built ? kernels_of(isa, printed) : std::vector<Printed>{}, count));
    for (std::size_t i = 0; i < count; ++i)
      write(fmt::format("{}/{}_{}.cpp", directory, isa_name(isa), i), source(files.at(isa)[i], isa));
  }
  write(directory + "/table.cpp", table(files));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string sets = argc == 4 ? argv[3] : "";
    if (argc != 4 || std::atoi(argv[2]) < 1 || (sets != "every" && sets != "machine"))
      throw std::runtime_error("usage: DIRECTORY PARTS every|machine");
    generate(argv[1], static_cast<std::size_t>(std::atoi(argv[2])), sets == "every");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tegula_pregenerate: {}\n", error.what());
    return 1;
  }
}
