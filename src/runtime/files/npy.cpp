#include <fmt/format.h>

#include <array>
#include <cstring>
#include <numeric>

#include "runtime/files/file_io.hpp"
#include "runtime/files/npy_header.hpp"
#include "runtime/files/row_major.hpp"
#include "tegula/error.hpp"
#include "tegula/files.hpp"

namespace tegula {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t most_npy_header_bytes = 1 << 20;
constexpr std::size_t data_alignment = 64;

// The text of the header, and where the elements begin.
std::pair<std::string, std::uint64_t> read_npy_header(const InputFile& file) {
  std::array<unsigned char, 12> start{};
  if (file.size() < 10) file.refuse("magic", "the file is too short for an .npy header");
  file.read_at(0, start.data(), 10);
  if (std::memcmp(start.data(), magic.data(), magic.size()) != 0)
    file.refuse("magic", "this is not an .npy file");
  const int major = start[6];
  if (major < 1 || major > 3 || start[7] != 0) {
    file.refuse("version", fmt::format("{}.{} is unknown; 1.0, 2.0 and 3.0 are supported", major, start[7]));
  }
  const std::uint64_t before = major == 1 ? 10 : 12;
  if (file.size() < before) file.refuse("header length", "the file ends within it");
  file.read_at(0, start.data(), before);
  std::uint64_t length = 0;
  for (std::uint64_t i = before; i-- > 8;) length = length << 8 | start[i];
  if (length > file.size() - before || length > most_npy_header_bytes) {
    file.refuse("header length", fmt::format("{} bytes, but {} remain in the file and at most {} are read",
                                             length, file.size() - before, most_npy_header_bytes));
  }
  std::string text(length, '\0');
  file.read_at(before, text.data(), text.size());
  return {std::move(text), before + length};
}

void check_size(const InputFile& file, const NpyHeader& header, DType dtype, std::uint64_t begin) {
  std::int64_t bytes = 0;
  bool too_large = false;
  try {
    too_large = __builtin_mul_overflow(nelements(header.shape), dtype.bytes(), &bytes);
  } catch (const ArgumentError& error) { file.refuse("shape", error.what()); }
  const std::uint64_t present = file.size() - begin;
  if (too_large || static_cast<std::uint64_t>(bytes) != present) {
    file.refuse("shape", fmt::format("{} {} does not match the {} bytes that follow the header", dtype.name(),
                                     describe(header.shape), present));
  }
}

}  // namespace

Tensor read_npy(const std::string& path, std::optional<DType> raw_as) {
  const InputFile file(path);
  const auto [text, begin] = read_npy_header(file);
  const NpyHeader header = parse_npy_header(text, file);
  const DType dtype = npy_dtype(header, raw_as, file);
  check_size(file, header, dtype, begin);
  Shape stored = header.shape;
  if (header.fortran_order) stored.assign(header.shape.rbegin(), header.shape.rend());
  const Tensor tensor = Tensor::empty(stored, dtype);
  file.read_at(begin, tensor.data(), tensor.nbytes());
  if (!header.fortran_order) return tensor;
  std::vector<int> reversed(stored.size());
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  return tensor.permute(reversed).contiguous();
}

void write_npy(const std::string& path, const TensorRef& tensor) {
  const Tensor elements = in_row_major_order(tensor);
  NpyHeader header;
  header.shape = tensor.shape;
  set_npy_dtype(header, tensor.dtype);
  std::string text = print_npy_header(header);
  const bool is_short = text.size() + data_alignment <= 0xffff;
  const std::size_t before = is_short ? 10 : 12;
  // The header ends with a newline where the elements are aligned.
  const std::size_t total = (before + text.size() + 1 + data_alignment - 1) / data_alignment * data_alignment;
  text.resize(total - before - 1, ' ');
  text += '\n';
  std::string start(magic);
  start += {is_short ? '\1' : '\2', '\0'};
  for (std::size_t i = 8; i < before; ++i) start += static_cast<char>(text.size() >> 8 * (i - 8) & 0xff);
  OutputFile file(path);
  file.write(start);
  file.write(text);
  file.write(elements.data(), elements.nbytes());
  file.commit();
}

}  // namespace tegula
