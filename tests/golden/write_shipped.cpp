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
  const auto texts = golden::shipped_texts(golden::shipped_calls());
  for (const golden::ShippedText& own : texts) {
    std::ofstream file(folder / own.name);
    if (!(file << own.text).flush()) {
      std::fprintf(stderr, "write_shipped: cannot write %s\n", (folder / own.name).c_str());
      return 1;
    }
  }
  std::printf("write_shipped: %zu texts in %s\n", texts.size(), folder.c_str());
}
