#include "passes/dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula::passes {
namespace {

void write_file(const std::string& directory, const std::string& name, const std::string& text) {
  std::error_code failed;
  std::filesystem::create_directories(directory, failed);
  std::ofstream file(std::filesystem::path(directory) / name);
  file << text;
  if (!file.flush())
    throw ArgumentError(
        fmt::format("TEGULA_DUMP={}: '{}' cannot be written there; name a directory of yours, "
                    "or stderr",
                    directory, name));
}

}  // namespace

Observer dumper(std::string target) {
  const auto where = environment(Variable::dump);
  if (!where) return {};
  return [where = *where, target = std::move(target), number = 0](const PassRun& own) mutable {
    ++number;
    if (own.after == own.before) return;
    if (where == "stderr")
      fmt::print(stderr, "---- {} after {} ({})\n{}\n", own.kernel, own.pass, target, own.after);
    else
      write_file(where, fmt::format("{}.{}.{}.{}.ir", own.kernel, target, number, own.pass), own.after);
  };
}

void dump_notes(const std::string& kernel, std::string target, const std::vector<std::string>& notes) {
  const auto where = environment(Variable::dump);
  if (!where || notes.empty()) return;
  std::replace(target.begin(), target.end(), ':', '_');
  std::string text;
  for (const std::string& note : notes) text += note + "\n";
  if (*where == "stderr")
    fmt::print(stderr, "---- notes on {} ({})\n{}\n", kernel, target, text);
  else
    write_file(*where, fmt::format("{}.{}.notes", kernel, target), text);
}

}  // namespace tegula::passes
