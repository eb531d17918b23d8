#include "pictures.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "cuda_texts.hpp"
#include "layout_picture.hpp"
#include "runtime/files/file_io.hpp"
#include "schedule_picture.hpp"
#include "tegula/error.hpp"

namespace tegula::tool {

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
      "{} '{}': {}; name a folder for the pictures, which is made if there is none", option, folder, reason));
}

std::vector<std::string> write_layouts(const lang::Kernel& kernel, const passes::CudaTarget& target,
                                       const std::string& folder) {
  std::vector<std::string> lines;
  for (const GridLayouts& grid : grid_layouts(kernel, target)) {
    LayoutPage page{fmt::format("{}: {} threads", grid.name, grid.threads), {}, {}};
    for (const LayoutLine& line : grid.lines) {
      if (line.layout)
        page.add(line.words, *line.layout);
      else
        page.products.push_back(line.words);
    }
    lines.push_back(write_complete(folder, grid.name + ".layout.svg", layout_picture(page)));
  }
  return lines;
}

std::vector<std::string> write_schedules(const lang::Kernel& kernel, const passes::CudaTarget& target,
                                         const std::string& folder) {
  std::vector<std::string> lines;
  for (const GridSchedule& grid : grid_schedules(kernel, target)) {
    if (grid.schedule)
      lines.push_back(write_complete(folder, grid.name + ".schedule.svg", schedule_picture(*grid.schedule)));
    else
      lines.push_back(grid.without_roles());
  }
  return lines;
}

}  // namespace tegula::tool
