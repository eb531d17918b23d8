// What `run` and `show` are told on the command line, as arguments of an operator.
#pragma once
#include <string>
#include <vector>

#include "ops/registry.hpp"

namespace tegula::tool {

// `name=value`; without `=` an ArgumentError that names the option.
std::pair<std::string, std::string> split_pair(const std::string& option, const std::string& text);
// `name=file.npy` or `name=file.safetensors:tensor`.
ops::Tensors read_inputs(const std::vector<std::string>& texts);
ops::OptionTexts option_texts(const std::vector<std::string>& texts);
Target target_named(const std::string& name);

}  // namespace tegula::tool
