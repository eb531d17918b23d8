#include "tensor_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "call.hpp"
#include "tegula/error.hpp"
#include "tegula/files.hpp"

namespace tegula::tool {

namespace {

constexpr std::string_view archive = ".safetensors";

struct Place {
  std::string path, tensor;
  bool in_archive;
};

// `file.safetensors:tensor` cut at the colon after the file; a path may have colons of its own.
Place parse_place(const std::string& text) {
  auto at = text.find(std::string(archive) + ":");
  if (at != std::string::npos) {
    auto end = at + archive.size();
    return {text.substr(0, end), text.substr(end + 1), true};
  }
  return {text, "", text.ends_with(archive)};
}

const ops::OutputInfo& find_output(const ops::Operator& op, const std::string& name) {
  std::string names;
  for (auto& output : op.outputs) {
    if (output.name == name) return output;
    names += (names.empty() ? "" : ", ") + output.name;
  }
  throw ArgumentError(fmt::format("--output {}: {} has no such output; it has {}", name, op.name, names));
}

Destination destination(const std::string& output, const Place& place) {
  if (!place.in_archive && !place.path.ends_with(".npy"))
    throw ArgumentError(fmt::format(
        "--output {}: the format of '{}' is unknown; use .npy, .safetensors or .safetensors:tensor", output,
        place.path));
  std::string tensor;
  if (place.in_archive) tensor = place.tensor.empty() ? output : place.tensor;
  return {output, place.path, tensor};
}

void check_once(const std::vector<Destination>& all) {
  for (auto& one : all)
    for (auto& other : all)
      if (&one < &other && one.path == other.path && one.tensor == other.tensor)
        throw ArgumentError(fmt::format("--output: {} and {} both go to {}{}{}", one.output, other.output,
                                        one.path, one.tensor.empty() ? "" : ":", one.tensor));
}

// Before anything is computed, which may take long.
void check_folder(const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::is_directory(path))
    throw ArgumentError(fmt::format("--output {}: is a folder; name a file in it", path));
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder))
    throw ArgumentError(
        fmt::format("--output {}: there is no folder {}; create it first", path, folder.string()));
}

void report(const Destination& to, const Tensor& tensor) {
  fmt::print("{}: {} -> {}{}{}\n", to.output, describe(tensor.ref()), to.path, to.tensor.empty() ? "" : ":",
             to.tensor);
}

}  // namespace

Tensor read_tensor(const std::string& place, const std::string& fallback) {
  auto [path, tensor, in_archive] = parse_place(place);
  if (!in_archive) return read_npy(path);
  return SafetensorsFile(path).read(tensor.empty() ? fallback : tensor);
}

std::vector<Destination> destinations(const ops::Operator& op, const std::vector<std::string>& texts) {
  std::vector<Destination> result;
  for (auto& text : texts) {
    if (text.find('=') != std::string::npos) {
      auto [name, place] = split_pair("--output", text);
      result.push_back(destination(find_output(op, name).name, parse_place(place)));
      continue;
    }
    auto place = parse_place(text);
    bool all = place.in_archive && place.tensor.empty();
    for (auto& output : op.outputs) {
      result.push_back(destination(output.name, place));
      result.back().by_name = !all;
      if (!all) break;
    }
  }
  check_once(result);
  for (auto& one : result) check_folder(one.path);
  return result;
}

std::vector<Destination> existing(const std::vector<Destination>& destinations,
                                  const std::vector<std::string>& results) {
  std::vector<Destination> kept;
  for (auto& to : destinations) {
    if (std::find(results.begin(), results.end(), to.output) != results.end())
      kept.push_back(to);
    else if (to.by_name)
      throw ArgumentError(fmt::format("--output {}: this call has no such result; it has {}", to.output,
                                      fmt::join(results, ", ")));
  }
  return kept;
}

void write_outputs(const ops::Tensors& results, const std::vector<Destination>& destinations) {
  std::map<std::string, std::vector<NamedRef>> archives;
  for (auto& to : destinations) {
    const Tensor& result = results.at(to.output);
    if (to.tensor.empty())
      write_npy(to.path, result);
    else
      archives[to.path].push_back({to.tensor, result.ref()});
  }
  for (auto& [path, tensors] : archives) write_safetensors(path, tensors);
  for (auto& to : destinations) report(to, results.at(to.output));
}

}  // namespace tegula::tool
