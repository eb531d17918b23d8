// The built tool, called as a user calls it. TEGULA_TOOL is its path.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tegula/files.hpp"

namespace tegula {

struct Outcome {
  int status;  // 124: it did not end in time
  std::string out, err;
};

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// A test with a folder of its own.
class Tool : public testing::Test {
 protected:
  Tool() : folder(std::filesystem::temp_directory_path() / ("tegula_tool_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder);
  }
  ~Tool() override { std::filesystem::remove_all(folder); }

  std::string file(const std::string& name) const { return (folder / name).string(); }

  // `arguments` as for a shell; `before` is put in front of the command: variables of the environment.
  Outcome tool(const std::string& arguments, const std::string& before = "") const {
    const std::string command = before + " timeout 110 '" TEGULA_TOOL "' " + arguments + " >'" + file("out") +
                                "' 2>'" + file("err") + "' </dev/null";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), contents(file("out")), contents(file("err"))};
  }

  std::filesystem::path folder;
};

inline bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

}  // namespace tegula
