#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace tegula::tool {

namespace {
constexpr int width = 30;
}

Progress::Progress(std::string stage) : stage_(std::move(stage)), terminal_(isatty(STDERR_FILENO) != 0) {
  if (terminal_) draw(false);
}

Progress::~Progress() { draw(true); }

void Progress::update(double share) {
  share_ = std::clamp(share, 0.0, 1.0);
  if (terminal_) draw(false);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void Progress::draw(bool last) const {
  if (!terminal_) return fmt::print(stderr, "{}: {:.0f} %, {:.2f} s\n", stage_, 100 * share_, seconds());
  const int full = static_cast<int>(width * share_);
  fmt::print(stderr, "\r{:<20} [{:#<{}}{:<{}}] {:3.0f} % {:7.2f} s{}", stage_, "", full, "", width - full,
             100 * share_, seconds(), last ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace tegula::tool
