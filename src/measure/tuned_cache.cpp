#include "measure/tuned_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cuda/gpu.hpp"
#include "runtime/execution/kernel_cache.hpp"
#include "runtime/machine/processors.hpp"
#include "tegula/error.hpp"
#include "tegula/tune.hpp"

namespace tegula::measure {

namespace {

std::map<std::string, Best> read_file(const std::string& path) {
  std::map<std::string, Best> all;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t first = line.find('\t'), second = line.find('\t', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    all[line.substr(0, first)] = {line.substr(first + 1, second - first - 1),
                                  std::strtod(line.c_str() + second + 1, nullptr)};
  }
  return all;
}

std::string model_of_cpu() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "cpu";
}

}  // namespace

std::string device_words(Target target, const Device& device) {
  const std::string own = device.kind == DeviceKind::cuda
                              ? cuda::Gpu::get(device.index).name()
                              : fmt::format("{} x {}", model_of_cpu(), processors_of(device));
  return fmt::format("{} {}", target.name(), own);
}

std::map<std::string, Best> TunedCache::read() const { return read_file(path_); }

std::optional<Best> TunedCache::find(const std::string& key) const {
  const auto all = read();
  const auto found = all.find(key);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

// Writes a new file that replaces the old one, so readers see either.
void TunedCache::write(const std::map<std::string, Best>& all, const std::string& path) const {
  const std::string temporary = fmt::format("{}.{}", path, getpid());
  std::ofstream out(temporary);
  for (const auto& [key, best] : all)
    out << fmt::format("{}\t{}\t{:.9g}\n", key, best.candidate, best.seconds);
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(temporary, path, error);
  if (!out || error) throw Error(fmt::format("{} cannot be written", path));
}

void TunedCache::put(const std::string& key, const Best& best) const {
  auto all = read();
  all[key] = best;
  write(all, path_);
}

void TunedCache::remove(const std::string& key) const {
  auto all = read();
  if (all.erase(key) > 0) write(all, path_);
}

std::size_t TunedCache::merge(const std::string& file) const {
  if (!std::filesystem::exists(file))
    throw ArgumentError(fmt::format("import_tuned: there is no file {}", file));
  const auto more = read_file(file);
  auto all = read();
  for (const auto& [key, best] : more) all[key] = best;
  write(all, path_);
  return more.size();
}

TunedCache tuned_cache() { return TunedCache(kernel_cache().directory() + "/tuned.tsv"); }

}  // namespace tegula::measure

namespace tegula {

std::size_t export_tuned(const std::string& path) {
  const measure::TunedCache cache = measure::tuned_cache();
  const auto all = cache.read();
  cache.write(all, path);
  return all.size();
}

std::size_t import_tuned(const std::string& path) { return measure::tuned_cache().merge(path); }

}  // namespace tegula
