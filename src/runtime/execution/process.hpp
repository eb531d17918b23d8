// Runs a program without a shell and waits for it.
#pragma once
#include <chrono>
#include <string>
#include <vector>

namespace tegula {

struct ProcessResult {
  bool started = false;
  bool timed_out = false;
  int exit_code = -1;  // or 128 + signal
  bool succeeded() const { return started && !timed_out && exit_code == 0; }
};

// arguments[0] is the path of the program. What it prints goes to the file `output`. When the time is over,
// it is killed with all processes that it has started.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& output,
                          std::chrono::milliseconds timeout);

// The path of a program: `name` itself if it has a slash, else the first match in PATH; empty if none.
std::string find_program(const std::string& name);

}  // namespace tegula
