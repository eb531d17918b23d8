// Progress of long work on the standard error stream: bars on a terminal, elsewhere a line for each stage.
#pragma once
#include <chrono>
#include <string>

namespace tegula::tool {

class Progress {
 public:
  explicit Progress(std::string stage);
  ~Progress();  // ends the line, also where the work failed
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(double share);  // of the work, from 0 to 1
  double seconds() const;     // since the stage began

 private:
  void draw(bool last) const;
  std::string stage_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double share_ = 0;
  bool terminal_;
};

}  // namespace tegula::tool
