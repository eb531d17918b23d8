// Work in child processes, so that a crash or an endless loop affects only the child.
#pragma once
#include <chrono>
#include <functional>
#include <string>

namespace tegula {

struct ChildResult {
  std::string output;  // what the work returned
  std::string end;     // why there is none: "signal 11", "time-out"; empty if all went well
};

// Runs work(0) … work(count - 1), `jobs` at a time, and calls done(i, result) here as each one ends. This
// process may have started threads: of the library, a child starts its own. `go_on` is asked before another
// child starts.
void run_children(
    std::size_t count, int jobs, std::chrono::milliseconds timeout,
    const std::function<std::string(std::size_t)>& work,
    const std::function<void(std::size_t, const ChildResult&)>& done,
    const std::function<bool()>& go_on = [] { return true; });

ChildResult run_child(std::chrono::milliseconds timeout, const std::function<std::string()>& work);

}  // namespace tegula
