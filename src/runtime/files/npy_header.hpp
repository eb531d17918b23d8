// The header of an .npy file: a Python dictionary such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "tegula/tensor.hpp"

namespace tegula {

class InputFile;

struct NpyHeader {
  // The type as written, '<f4', or the only field of a record, whose name is then in `field`.
  std::string descr;
  std::string field;
  bool fortran_order = false;
  Shape shape;
};

// Errors are those of `file`.
NpyHeader parse_npy_header(std::string_view text, const InputFile& file);
std::string print_npy_header(const NpyHeader& header);

// The dtype of the elements and the header's names for it.
DType npy_dtype(const NpyHeader& header, std::optional<DType> raw_as, const InputFile& file);
void set_npy_dtype(NpyHeader& header, DType dtype);

}  // namespace tegula
