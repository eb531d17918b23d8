// Tensors in files: NumPy's .npy (one tensor) and .safetensors (tensors by name).
//
// The contents of a file are checked against its size before anything is allocated. A truncated, inconsistent
// or malicious file causes an ArgumentError that names the file, the field and the problem. Files are written
// to a temporary file in the same folder, which then replaces the target, so no reader ever sees half a file.
//
// .npy has no names for bf16 and fp8. bf16 is stored as the raw type '<V2', as NumPy itself stores arrays of
// ml_dtypes; fp8 is stored as a record with one field that has the name of the type: [('float8_e4m3fn',
// '|u1')] or [('float8_e5m2', '|u1')], which NumPy reads. The raw type '|V1' could be either, so the caller
// chooses.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tegula/tensor.hpp"

TEGULA_API_BEGIN
namespace tegula {

// `raw_as` is the dtype of elements of a raw type ('<V2', '|V1'). The result is contiguous even if the file
// is in Fortran order.
Tensor read_npy(const std::string& path, std::optional<DType> raw_as = std::nullopt);
void write_npy(const std::string& path, const TensorRef& tensor);

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// The header of a .safetensors file; the elements are read later.
class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    std::uint64_t begin;  // of the elements, in bytes from the start of the file
    std::uint64_t end;
  };

  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::vector<Entry>& entries() const;  // in the order of their data in the file
  const std::map<std::string, std::string>& metadata() const;
  bool contains(const std::string& name) const;
  // Throws an ArgumentError that lists the names in the file if there is no such name.
  Tensor read(const std::string& name) const;
  std::vector<NamedTensor> read_all() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tensors are written in the given order, one at a time. Throws an ArgumentError if two have the same name.
struct NamedRef {
  std::string name;
  TensorRef tensor;
};
void write_safetensors(const std::string& path, const std::vector<NamedRef>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tegula
TEGULA_API_END
