// The header of a .safetensors file: JSON with the dtype, shape and position of every tensor.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/files.hpp"

namespace tegula {

class InputFile;

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // places count from the end of the header
  std::map<std::string, std::string> metadata;
};

// Reads the JSON without building a tree of it, so that a hostile text costs no more memory than itself.
// Errors are those of `file`.
SafetensorsHeader parse_safetensors_header(std::string_view text, const InputFile& file);
// Throws an ArgumentError for names that are not UTF-8.
std::string print_safetensors_header(const SafetensorsHeader& header);

}  // namespace tegula
