// Results of tuning, in a file of lines with key, candidate and seconds, separated by tabs.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "tegula/runtime.hpp"

namespace tegula::measure {

struct Best {
  std::string candidate;  // its text
  double seconds = 0;
};

class TunedCache {
 public:
  explicit TunedCache(std::string path) : path_(std::move(path)) {}

  std::map<std::string, Best> read() const;
  std::optional<Best> find(const std::string& key) const;
  void put(const std::string& key, const Best& best) const;
  void remove(const std::string& key) const;
  // The entries of the file are taken over; how many.
  std::size_t merge(const std::string& file) const;
  void write(const std::map<std::string, Best>& all, const std::string& path) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// In the directory of compiled kernels.
TunedCache tuned_cache();

// Part of a key: the target and the GPU's name, or the model of the CPU and the number of its processors.
std::string device_words(Target target, const Device& device);

}  // namespace tegula::measure
