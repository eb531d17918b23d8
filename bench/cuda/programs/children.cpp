#include "children.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <deque>
#include <list>
#include <stdexcept>
#include <string>

namespace programs {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

Json failure(const std::string& why) { return {{"failure", why}}; }

void write_line(int file, const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(file, text.data() + at, text.size() - at);
    if (n <= 0) _exit(1);
    at += static_cast<std::size_t>(n);
  }
}

[[noreturn]] void run_child(const std::vector<int>& items, const Work& work, int file) {
  for (const int item : items) {
    Json result;
    try {
      result = work.of(item);
    } catch (const std::exception& error) { result = failure(error.what()); }
    write_line(file, result);
    if (result.contains("failure")) break;
  }
  _exit(0);
}

// A process and what it has not yet answered.
class Child {
 public:
  Child(std::deque<int> items, const Work& work) : items_(std::move(items)), work_(work) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    std::fflush(nullptr);
    process_ = fork();
    if (process_ < 0) throw std::runtime_error("no process");
    if (process_ == 0) {
      close(ends[0]);
      run_child({items_.begin(), items_.end()}, work_, ends[1]);
    }
    close(ends[1]);
    file_ = ends[0];
  }
  int file() const { return file_; }
  const std::deque<int>& items() const { return items_; }

  // Reads what there is; false when the process is over.
  bool read_results() {
    char buffer[65536];
    const ssize_t n = read(file_, buffer, sizeof buffer);
    if (n <= 0) return finish();
    text_.append(buffer, static_cast<std::size_t>(n));
    for (std::size_t end; (end = text_.find('\n')) != std::string::npos; text_.erase(0, end + 1))
      answer(Json::parse(text_.substr(0, end)));
    return true;
  }
  // Ends a process whose item takes too long.
  bool is_in_time() {
    if (seconds() < work_.limit_s) return true;
    kill(process_, SIGKILL);
    late_ = true;
    return finish();
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  void answer(const Json& result) {
    const int item = items_.front();
    items_.pop_front();
    failed_ = result.contains("failure");
    began_ = Clock::now();
    work_.done(item, result);
  }
  bool finish() {
    close(file_);
    int status = 0;
    waitpid(process_, &status, 0);
    if (items_.empty() || failed_) return false;
    answer(failure(late_                 ? fmt::format("took longer than {:.0f} s", work_.limit_s)
                   : WIFSIGNALED(status) ? fmt::format("ended by signal {}", WTERMSIG(status))
                                         : fmt::format("ended with status {}", WEXITSTATUS(status))));
    return false;
  }

  std::deque<int> items_;
  const Work& work_;
  pid_t process_ = -1;
  int file_ = -1;
  bool late_ = false, failed_ = false;
  std::string text_;
  Clock::time_point began_ = Clock::now();
};

}  // namespace

void in_children(std::vector<std::vector<int>> lists, int processes, const Work& work) {
  std::deque<std::deque<int>> waiting;
  for (const auto& list : lists)
    if (!list.empty()) waiting.emplace_back(list.begin(), list.end());
  std::list<Child> running;
  while (!waiting.empty() || !running.empty()) {
    while (!waiting.empty() && static_cast<int>(running.size()) < processes) {
      running.emplace_back(std::move(waiting.front()), work);
      waiting.pop_front();
    }
    std::vector<pollfd> files;
    for (const Child& child : running) files.push_back({child.file(), POLLIN, 0});
    poll(files.data(), files.size(), 200);
    std::size_t at = 0;
    for (auto child = running.begin(); child != running.end(); ++at) {
      const bool goes_on = files[at].revents != 0 ? child->read_results() : child->is_in_time();
      if (goes_on) {
        ++child;
        continue;
      }
      if (!child->items().empty()) waiting.push_front(child->items());
      child = running.erase(child);
    }
  }
}

}  // namespace programs
