// write_shipped FOLDER: writes the texts of all shipped kernels, a file each. scripts/compare-texts compares
// those of two commits.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/golden/shipped.hpp"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_shipped FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  std::size_t count = 0;
  for (const tegula::ops::OperatorSchema* schema : tegula::ops::operator_schemas())
    for (const golden::ShippedText& own : golden::shipped_texts(golden::shipped_calls(*schema))) {
      std::ofstream file(folder / own.name);
      if (!(file << own.text).flush()) {
        std::fprintf(stderr, "write_shipped: cannot write %s\n", (folder / own.name).c_str());
        return 1;
      }
      ++count;
    }
  std::printf("write_shipped: %zu texts in %s\n", count, folder.c_str());
}
