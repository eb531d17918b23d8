#include "runtime/execution/children.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tegula/error.hpp"

namespace tegula {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  std::size_t number;
  pid_t pid;
  int from;  // end of the pipe that the child writes to
  Clock::time_point deadline;
  std::string output;
};

[[noreturn]] void work_and_leave(int to, const std::function<std::string()>& work) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody else would end an endless run
  std::string text;
  try {
    text = work();
  } catch (const std::exception& e) {
    fmt::print(stderr, "tegula: {}\n", e.what());
    _exit(1);
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = write(to, text.data() + at, text.size() - at);
    if (written <= 0) _exit(1);
    at += static_cast<std::size_t>(written);
  }
  _exit(0);
}

Child start(std::size_t number, std::chrono::milliseconds timeout, const std::function<std::string()>& work) {
  std::fflush(nullptr);
  int ends[2];
  if (pipe(ends) != 0) throw DeviceError("a pipe to a child process cannot be opened");
  const pid_t pid = fork();
  if (pid < 0) throw DeviceError("a child process cannot be started");
  if (pid == 0) {
    close(ends[0]);
    work_and_leave(ends[1], work);
  }
  close(ends[1]);
  return {number, pid, ends[0], Clock::now() + timeout, ""};
}

// Reads what there is; whether the child has closed its end.
bool read_some(Child& child) {
  char buffer[65536];
  const ssize_t size = read(child.from, buffer, sizeof buffer);
  if (size > 0) child.output.append(buffer, static_cast<std::size_t>(size));
  return size <= 0;
}

ChildResult finish(Child& child, bool timed_out) {
  if (timed_out) {
    kill(-child.pid, SIGKILL);
    kill(child.pid, SIGKILL);
  }
  int status = 0;
  waitpid(child.pid, &status, 0);
  close(child.from);
  if (timed_out) return {"", "time-out"};
  if (WIFSIGNALED(status)) return {"", fmt::format("signal {}", WTERMSIG(status))};
  if (WEXITSTATUS(status) != 0) return {"", fmt::format("exit {}", WEXITSTATUS(status))};
  return {std::move(child.output), ""};
}

void wait_for_output(const std::vector<Child>& children) {
  std::vector<pollfd> list;
  Clock::time_point first = children.front().deadline;
  for (const Child& child : children) {
    list.push_back({child.from, POLLIN, 0});
    first = std::min(first, child.deadline);
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(first - Clock::now()).count();
  poll(list.data(), list.size(), static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 1000)));
}

bool has_output(const Child& child) {
  pollfd one{child.from, POLLIN, 0};
  return poll(&one, 1, 0) > 0;
}

}  // namespace

void run_children(std::size_t count, int jobs, std::chrono::milliseconds timeout,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const ChildResult&)>& done,
                  const std::function<bool()>& go_on) {
  std::vector<Child> children;
  for (std::size_t next = 0;;) {
    while (next < count && children.size() < static_cast<std::size_t>(jobs) && go_on()) {
      children.push_back(start(next, timeout, [&work, next] { return work(next); }));
      ++next;
    }
    if (children.empty()) return;
    wait_for_output(children);
    for (std::size_t i = 0; i < children.size(); ++i) {
      const bool late = Clock::now() >= children[i].deadline;
      if (!late && !(has_output(children[i]) && read_some(children[i]))) continue;
      Child child = std::move(children[i]);
      children.erase(children.begin() + static_cast<std::ptrdiff_t>(i--));
      const ChildResult result = finish(child, late);
      done(child.number, result);
    }
  }
}

ChildResult run_child(std::chrono::milliseconds timeout, const std::function<std::string()>& work) {
  ChildResult result;
  run_children(
      1, 1, timeout, [&](std::size_t) { return work(); },
      [&](std::size_t, const ChildResult& r) { result = r; });
  return result;
}

}  // namespace tegula
