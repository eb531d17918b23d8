#include "show/folders.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"

namespace tegula::shown {

std::string write_complete(const std::string& folder, const std::string& name, const std::string& text) {
  const std::string path = (std::filesystem::path(folder) / name).string();
  OutputFile file(path);
  file.write(text);
  file.commit();
  return path;
}

void prepare_folder(const std::string& option, const std::string& folder) {
  std::error_code failure, unknown;
  std::filesystem::create_directories(folder, failure);
  if (std::filesystem::is_directory(folder, unknown)) return;
  const bool exists = std::filesystem::exists(folder, unknown);
  const std::string reason = exists ? "is no folder" : folder.empty() ? "names none" : failure.message();
  throw ArgumentError(fmt::format(
      "{} '{}': {}; name a folder for the pictures, which is created if necessary", option, folder, reason));
}

}  // namespace tegula::shown
