#include "calls.hpp"

#include "tegula/error.hpp"
#include "tegula/files.hpp"

namespace tegula::tool {

namespace {

Tensor read_tensor(const std::string& path) {
  const std::string archive = ".safetensors:";
  auto member = path.find(archive);
  if (member == std::string::npos) return read_npy(path);
  return SafetensorsFile(path.substr(0, member + archive.size() - 1))
      .read(path.substr(member + archive.size()));
}

}  // namespace

std::pair<std::string, std::string> split_pair(const std::string& option, const std::string& text) {
  auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw ArgumentError(option + " " + text + ": write it as name=value");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

ops::Tensors read_inputs(const std::vector<std::string>& texts) {
  ops::Tensors inputs;
  for (auto& text : texts) {
    auto [name, path] = split_pair("--input", text);
    if (!inputs.emplace(name, read_tensor(path)).second)
      throw ArgumentError("--input " + name + " is given twice");
  }
  return inputs;
}

ops::OptionTexts option_texts(const std::vector<std::string>& texts) {
  ops::OptionTexts options;
  for (auto& text : texts) {
    auto [name, value] = split_pair("--option", text);
    if (!options.emplace(name, value).second) throw ArgumentError("--option " + name + " is given twice");
  }
  return options;
}

Target target_named(const std::string& name) {
  if (name == "auto") return Target::automatic();
  if (name == "interpreter") return Target::interpreter();
  return Target::cpu();
}

}  // namespace tegula::tool
