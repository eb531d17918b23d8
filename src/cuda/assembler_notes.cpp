#include "cuda/assembler_notes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/compile.hpp"

namespace tegula::cuda {
namespace {

constexpr const char* fewer_registers =
    "use smaller tiles, fewer fragments at a time, more threads, for example .threads = 256, or fewer blocks "
    "of a processor, .blocks_per_processor = 1";

struct Remark {
  std::string_view words;  // of ptxas' words
  std::string_view text, remedy;
};

// The first that fits explains.
constexpr Remark remarks[] = {
    {"insufficient register",
     "serialised products: the products of this grid run one after another, because their sums and "
     "operands do not fit the registers of a thread",
     fewer_registers},
    {"are serialized",
     "serialised products: the products of this grid run one after another, because ptxas assumes that their "
     "registers are used in between",
     "read and write sums before the products of a step, or after the statement that uses the last of them"},
    {"warpgroup.wait is injected",
     "added wait: ptxas makes the code wait for all products in flight before it accesses a sum",
     "access that sum before the products of a step"},
    {"warpgroup.arrive is injected",
     "added fence: ptxas fences registers again before a product, which costs a few cycles",
     "let a product add to a sum in the body that starts the sum, not in a branch of it"},
};

// `C7518`; empty: the line is none of these remarks.
std::string code_of(const std::string& line) {
  const std::size_t begin = line.find("(C75");
  const std::size_t end = begin == std::string::npos ? begin : line.find(')', begin);
  return end == std::string::npos ? "" : line.substr(begin + 1, end - begin - 1);
}

std::string words_of(const std::string& line, const std::string& code) {
  for (const Remark& remark : remarks) {
    if (line.find(remark.words) == std::string::npos) continue;
    return fmt::format("{} (ptxas {}); {}", remark.text, code, remark.remedy);
  }
  const std::size_t begin = line.find(") ", line.find(code));
  return fmt::format("products: ptxas {} says: {}", code, line.substr(begin + 2));
}

void add(std::vector<std::string>& notes, const std::string& note) {
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

// Whether the line names the function, which ptxas puts between quotes.
bool is_of(const std::string& line, const std::string& function) {
  return line.find("'" + function + "'") != std::string::npos;
}

}  // namespace

std::vector<std::string> assembler_notes(const std::string& log, const ir::Kernel& kernel,
                                         const codegen::CudaProgram& program) {
  std::vector<std::string> notes;
  const std::vector<std::string> lines = read_remarks(log);
  const std::vector<Resources> resources = read_resources(log);
  for (std::size_t grid = 0; grid < program.kernels.size(); ++grid) {
    const std::string& function = program.kernels[grid].function;
    const std::string place = short_location(kernel.grids[grid].at);
    for (const std::string& line : lines) {
      const std::string code = code_of(line);
      if (!code.empty() && is_of(line, function))
        add(notes, fmt::format("{}: {}", place, words_of(line, code)));
    }
    for (const Resources& r : resources) {
      if (r.function != function || r.spilled_bytes() == 0) continue;
      add(notes, fmt::format(
                     "{}: spills: {} bytes of a thread's {} registers are kept in memory and read back; {}",
                     place, r.spilled_bytes(), r.registers, fewer_registers));
    }
  }
  return notes;
}

}  // namespace tegula::cuda
