#include "gpu_rivals.hpp"

#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tegula::tool {

namespace {

struct Close {
  void operator()(FILE* pipe) const { pclose(pipe); }
};

}  // namespace

GpuRivals read_gpu_rivals(std::istream& lines) {
  GpuRivals result;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("workload") || !json.contains("ms") || !json.contains("tflops"))
      continue;
    result[json["workload"]] = {json["ms"], json["tflops"]};
  }
  return result;
}

GpuRivals measure_gpu_rivals(const std::vector<std::string>& words) {
  std::string command = "python3 '" TEGULA_RIVALS "'";
  for (const std::string& word : words) command += " '" + word + "'";
  const std::unique_ptr<FILE, Close> pipe(popen((command + " 2>/dev/null").c_str(), "r"));
  if (!pipe) return {};
  std::stringstream lines;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    lines.write(buffer.data(), static_cast<std::streamsize>(count));
  return read_gpu_rivals(lines);
}

}  // namespace tegula::tool
