#include "passes/dump.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "runtime/environment.hpp"
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

}  // namespace tegula::passes
