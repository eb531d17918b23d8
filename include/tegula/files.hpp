// Tensors in files: NumPy's .npy (one tensor) and .safetensors (tensors by name).
//
// A file is checked against its size before anything is allocated. A truncated, inconsistent or hostile
// file is an ArgumentError that names the file, the field and the offence. Writing goes to a temporary file
// beside the target which then replaces it, so that no reader ever sees half a file.
//
// .npy has no names for bf16 and fp8. bf16 is the raw type '<V2', as NumPy itself writes arrays of ml_dtypes;
// fp8 is a record of one field that bears the name of the type: [('float8_e4m3fn', '|u1')] or
// [('float8_e5m2', '|u1')], which NumPy reads. The raw type '|V1' could be either: the caller says which.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tegula/tensor.hpp"

TEGULA_API_BEGIN
namespace tegula {

// `raw_as` is the dtype of elements of a raw type ('<V2', '|V1'). The result is contiguous, also where the
// file is in Fortran's order.
Tensor read_npy(const std::string& path, std::optional<DType> raw_as = std::nullopt);
void write_npy(const std::string& path, const TensorRef& tensor);

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// What the header of a .safetensors file says; reading the elements comes after.
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

  const std::vector<Entry>& entries() const;  // in the order of their elements in the file
  const std::map<std::string, std::string>& metadata() const;
  bool contains(const std::string& name) const;
  // An unknown name is an ArgumentError that lists the names of the file.
  Tensor read(const std::string& name) const;
  std::vector<NamedTensor> read_all() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tensors are written in the given order, one at a time; two of one name are an ArgumentError.
struct NamedRef {
  std::string name;
  TensorRef tensor;
};
void write_safetensors(const std::string& path, const std::vector<NamedRef>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tegula
TEGULA_API_END
