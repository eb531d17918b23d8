// write_program_table PAGE JSON [--beside EARLIER COMMIT] [NAME…]: what the compiler and NVRTC make of every
// program, or of those whose names are given, with the tiles that it is meant for. The table of the page and
// the list after it are replaced; with names, both are printed instead. After them comes what differs from
// the page of an earlier commit.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "codegen/cuda_program.hpp"
#include "cuda/compile.hpp"
#include "show/cuda_texts.hpp"
#include "tests/programs/earlier_table.hpp"
#include "tests/programs/program.hpp"

namespace programs {
namespace {

using Json = nlohmann::json;

// Holds what is compiled last, as a user's cache does; emptied before, so that times are without a cache.
const tegula::KernelCache& cache() {
  static const tegula::KernelCache own(
      (std::filesystem::temp_directory_path() / fmt::format("tegula-programs-{}", getuid())).string(),
      1 << 30);
  return own;
}

// Equal words once, with their number: `2 of wgmma, 1 x 2`.
std::vector<std::string> counted(const std::vector<std::string>& words) {
  std::vector<std::string> result, seen;
  for (const std::string& word : words) {
    if (std::ranges::find(seen, word) != seen.end()) continue;
    seen.push_back(word);
    const auto count = std::ranges::count(words, word);
    result.push_back(count == 1 ? word : fmt::format("{} of {}", count, word));
  }
  return result;
}

// `gemm(s0, s1, f0): wgmma, 1 x 2` without the compiler's names of tiles.
std::vector<std::string> products_of(const tegula::shown::GridLayouts& grid) {
  std::vector<std::string> result;
  for (const auto& line : grid.lines)
    if (line.words.starts_with("gemm(")) result.push_back(line.words.substr(line.words.find("): ") + 3));
  return counted(result);
}

std::vector<std::string> rings_of(const tegula::schedule::Schedule& schedule) {
  std::vector<std::string> result;
  for (const auto& ring : schedule.rings) {
    int bytes = 0;
    for (const int buffer : ring.buffers) {
      const auto& own = schedule.buffers[static_cast<std::size_t>(buffer)];
      if (own.space == tegula::schedule::Space::shared) bytes += own.bytes;
    }
    if (bytes == 0) continue;
    result.push_back(
        fmt::format("{} x {:.3g} KB{}", ring.depth, bytes / 1024.0, ring.barriers ? "" : " by threads"));
  }
  return counted(result);
}

Json grid_of(const tegula::codegen::CudaProgram::Kernel& kernel, const tegula::shown::GridLayouts& layouts,
             const tegula::shown::GridSchedule& schedule) {
  return {{"function", kernel.function},
          {"threads", kernel.threads},
          {"shared_bytes", kernel.shared_bytes},
          {"roles", schedule.schedule && schedule.schedule->roles.size() > 1},
          {"rings", schedule.schedule ? rings_of(*schedule.schedule) : std::vector<std::string>{}},
          {"products", products_of(layouts)},
          {"way", kernel.way}};
}

// Notes without the folder of their file.
std::vector<std::string> notes_of(const tegula::codegen::CudaProgram& program) {
  std::vector<std::string> result;
  for (const std::string& note : tegula::passes::format(program.notes)) {
    const auto colon = note.find(':'), slash = note.rfind('/', colon);
    result.push_back(slash == std::string::npos ? note : note.substr(slash + 1));
  }
  return result;
}

std::vector<std::string> kinds_of(const tegula::codegen::CudaProgram& program) {
  std::vector<std::string> result;
  for (const auto& note : program.notes)
    for (const auto& info : tegula::passes::note_kinds())
      if (info.kind == note.kind) result.emplace_back(info.name);
  return counted(result);
}

void assemble(const std::string& text, Json& row) {
  const auto* nvrtc = tegula::cuda::find_nvrtc();
  if (!nvrtc) return;
  cache().clear();  // forms with equal texts have times of their own
  const std::clock_t start = std::clock();
  const auto code = tegula::cuda::compile_code(*nvrtc, text, tegula::cuda::device_headers(), 90, cache());
  row["seconds"] =
      static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;  // of this process, whoever else runs
  row["remarks"] = tegula::cuda::read_remarks(code.log);
  for (const auto& own : tegula::cuda::read_resources(code.log)) {
    for (Json& grid : row["grids"]) {
      if (grid["function"] != own.function) continue;
      grid["registers"] = own.registers;
      grid["stack_bytes"] = own.stack_bytes;
      grid["spill_bytes"] = own.spill_store_bytes + own.spill_load_bytes;
    }
  }
}

Json row_of(const Program& program, const Form& form) {
  Json row{{"family", program.family}, {"program", program.name}, {"form", form.name}};
  try {
    const Kernel kernel = form.kernel();
    const tegula::passes::CudaTarget target{};
    const auto printed = tegula::codegen::print_cuda(tegula::Signature(kernel.ir()), target);
    const auto layouts = tegula::shown::grid_layouts(kernel, target);
    const auto schedules = tegula::shown::grid_schedules(kernel, target);
    row["grids"] = Json::array();
    for (std::size_t i = 0; i < printed.kernels.size(); ++i)
      row["grids"].push_back(grid_of(printed.kernels[i], layouts[i], schedules[i]));
    row["notes"] = notes_of(printed);
    row["note_kinds"] = kinds_of(printed);
    row["text_bytes"] = printed.text.size();
    assemble(printed.text, row);
  } catch (const std::exception& error) { row["refused"] = error.what(); }
  return row;
}

std::string joined(const Json& words) {
  return fmt::format("{}", fmt::join(words.get<std::vector<std::string>>(), "; "));
}

// A row of the table for each grid; what holds for the whole program stands in the first.
std::string table_rows(const Json& row) {
  const std::string name = fmt::format("`{}`", row["program"].get<std::string>());
  const std::string form = row["form"].get<std::string>();
  if (!row.contains("grids")) return fmt::format("| {} | {} | refused | | | | | | |\n", name, form);
  std::string text;
  for (const Json& grid : row["grids"]) {
    const bool first = &grid == &row["grids"][0];
    const int spilled = grid.value("spill_bytes", 0);
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} x {} | {} | {} | {} |\n", first ? name : "", first ? form : "",
        grid["roles"].get<bool>() ? "yes" : "no", joined(grid["rings"]), joined(grid["products"]),
        grid["threads"].get<int>(),
        grid.contains("registers") ? std::to_string(grid["registers"].get<int>()) : "–",
        spilled ? fmt::format("**{}**", spilled) : "",
        first && row.contains("seconds") ? fmt::format("{:.2f}", row["seconds"].get<double>()) : "",
        first ? joined(row["note_kinds"]) : "");
  }
  return text;
}

// What the table has no room for.
std::string words_on(const Json& row) {
  std::string text;
  const auto add = [&](const char* key, const char* before) {
    for (const auto& line : row.value(key, std::vector<std::string>{}))
      text += fmt::format("  - {}{}\n", before, line);
  };
  if (row.contains("refused")) text += fmt::format("  - refused: {}\n", row["refused"].get<std::string>());
  add("notes", "");
  add("remarks", "ptxas: ");
  if (text.empty()) return "";
  return fmt::format("- `{}`, {}\n{}", row["program"].get<std::string>(), row["form"].get<std::string>(),
                     text);
}

std::string page_section(const std::vector<Json>& rows) {
  std::map<std::string, std::string> tables, words;
  for (const Json& row : rows) {
    tables[row["family"]] += table_rows(row);
    words[row["family"]] += words_on(row);
  }
  std::string text;
  for (const auto& [family, table] : tables) {
    text += fmt::format(
        "\n### {}\n\n"
        "| program | form | roles | rings | products | threads x registers | spilled bytes | NVRTC s | notes "
        "|\n"
        "|---|---|---|---|---|---|---|---|---|\n{}",
        family, table);
    if (!words[family].empty()) text += fmt::format("\nNotes and remarks in full:\n\n{}", words[family]);
  }
  return text;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream stream;
  stream << file.rdbuf();
  return stream.str();
}

// What differs from the page at that path.
std::string compared(const std::string& section, const std::string& path, const std::string& commit) {
  return fmt::format(
      "\n## Before and after\n\n<!-- beside {0} -->\n"
      "The programs above that commit `{0}` executed in another way, with what they were then: `before → "
      "now`. "
      "Programs without a row there have none here.\n\n{1}",
      commit, side_by_side(read_table(contents(path)), read_table(section)));
}

bool replace_section(const std::string& path, const std::string& section) {
  std::string page = contents(path);
  const std::string begin = "<!-- scripts/programs-table writes what follows -->\n";
  const auto at = page.find(begin);
  if (at == std::string::npos) return false;
  page.resize(at + begin.size());
  return static_cast<bool>((std::ofstream(path) << page << section).flush());
}

std::vector<Json> rows_of(const std::vector<std::string>& names) {
  std::vector<Json> rows;
  for (const Program& program : all_programs()) {
    if (!names.empty() && std::ranges::find(names, program.name) == names.end()) continue;
    for (const Form& form : program.forms) {
      std::fprintf(stderr, "%s, %s\n", program.name.c_str(), form.name.c_str());
      rows.push_back(row_of(program, form));
    }
  }
  return rows;
}

}  // namespace
}  // namespace programs

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: write_program_table PAGE JSON [--beside EARLIER COMMIT] [NAME…]\n");
    return 2;
  }
  const bool beside = argc > 5 && std::string(argv[3]) == "--beside";
  const int names = beside ? 6 : 3;
  // What only the first compilation pays.
  programs::Json first;
  programs::assemble("#include \"kernel.cuh\"\n", first);
  const auto rows = programs::rows_of({argv + names, argv + argc});
  std::string section = programs::page_section(rows);
  if (beside) section += programs::compared(section, argv[4], argv[5]);
  if (argc > names) {
    std::fputs(section.c_str(), stdout);
    return 0;
  }
  const bool written = programs::replace_section(argv[1], section) &&
                       static_cast<bool>((std::ofstream(argv[2]) << programs::Json(rows).dump(1)).flush());
  if (!written) std::fprintf(stderr, "write_program_table: cannot write %s and %s\n", argv[1], argv[2]);
  return written ? 0 : 1;
}
