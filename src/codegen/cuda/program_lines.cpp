#include "codegen/cuda/program_lines.hpp"

#include <fmt/format.h>

#include <sstream>
#include <unordered_map>

#include "codegen/cuda/step_writer.hpp"
#include "ir/visit.hpp"

namespace tegula::codegen {

using namespace ir;

namespace {

// Locations by their text in comments.
using Places = std::unordered_map<std::string, Loc>;

Places places_of(const Kernel& kernel) {
  Places places;
  const auto add = [&](const Loc& at) { places.emplace(location_in_folder(at), at); };
  add(kernel.at);
  for (const Grid& grid : kernel.grids) add(grid.at);
  for_each_stmt(kernel, [&](const Stmt& s) { add(s->at); });
  return places;
}

// `softmax/row.cpp:12` of a line that ends with `// softmax/row.cpp:12` or has `// softmax/row.cpp:12:
// words`.
std::string place_in(const std::string& line) {
  const std::size_t comment = line.rfind("// ");
  if (comment == std::string::npos) return "";
  std::string place = line.substr(comment + 3, line.find(' ', comment + 3) - comment - 3);
  if (place.ends_with(":")) place.pop_back();
  return place;
}

}  // namespace

std::string with_program_lines(const std::string& text, const Kernel& kernel) {
  const Places places = places_of(kernel);
  std::string result, directive;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    const auto found = places.find(place_in(line));
    if (found != places.end())
      directive = fmt::format("#line {} \"{}\"\n", found->second.line(), found->second.file_name());
    result += directive + line + "\n";
  }
  return result;
}

}  // namespace tegula::codegen
