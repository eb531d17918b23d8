// Tensors of the command line: `file.npy`, `file.safetensors` and `file.safetensors:tensor`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "ops/registry.hpp"

namespace tegula::tool {

// A tensor of an archive is known by its name; unless one is given, by `fallback`.
Tensor read_tensor(const std::string& place, const std::string& fallback);

// Where a result goes. Without a tensor's name an archive keeps it under the name of the output.
struct Destination {
  std::string output, path;
  std::string tensor;   // in an archive; empty: the file is .npy
  bool by_name = true;  // whether this output was asked for, rather than all
};

// `name=place` each. `file.npy` alone stands for the first output, `file.safetensors` alone for all of them.
// Unknown outputs and kinds of files are an ArgumentError, before anything is computed.
std::vector<Destination> destinations(const ops::Operator& op, const std::vector<std::string>& texts);
// Those of the outputs that the call has. One that was asked for by name and that it lacks is an
// ArgumentError.
std::vector<Destination> existing(const std::vector<Destination>& destinations,
                                  const std::vector<std::string>& results);
// Archives are written once, with all their tensors.
void write_outputs(const ops::Tensors& results, const std::vector<Destination>& destinations);

}  // namespace tegula::tool
