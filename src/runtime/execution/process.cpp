#include "runtime/execution/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <thread>

extern char** environ;

namespace tegula {
namespace {

// The child gets its own process group, an empty input, and one file for all that it prints.
bool spawn(const std::vector<std::string>& arguments, const std::string& output, pid_t& child) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&child, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  return error == 0;
}

int exit_code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& output,
                          std::chrono::milliseconds timeout) {
  ProcessResult result;
  pid_t child = 0;
  result.started = spawn(arguments, output, child);
  if (!result.started) return result;
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::chrono::microseconds nap{200};
  int status = 0;
  while (true) {
    const pid_t done = waitpid(child, &status, WNOHANG);
    if (done == child) break;
    // A host program that ignores SIGCHLD has its children reaped by the kernel; their status is lost.
    if (done < 0 && errno == ECHILD) {
      result.exit_code = 0;
      return result;
    }
    if (std::chrono::steady_clock::now() >= end) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      result.timed_out = true;
      break;
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(nap * 2, std::chrono::microseconds{2000});
  }
  result.exit_code = exit_code_of(status);
  return result;
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_program(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::string_view remaining = path ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!remaining.empty()) {
    const std::size_t colon = std::min(remaining.find(':'), remaining.size());
    const std::string candidate = std::string(remaining.substr(0, colon)) + "/" + name;
    // A relative or empty entry of PATH would search the working directory.
    if (candidate.front() == '/' && colon > 0 && is_program(candidate)) return candidate;
    remaining.remove_prefix(std::min(colon + 1, remaining.size()));
  }
  return "";
}

}  // namespace tegula
