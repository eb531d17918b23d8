#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "runtime/files/file_io.hpp"
#include "runtime/files/row_major.hpp"
#include "runtime/files/safetensors_header.hpp"
#include "tegula/error.hpp"
#include "tegula/files.hpp"

namespace tegula {
namespace {

using Entry = SafetensorsFile::Entry;

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t most_header_bytes = 100'000'000;  // the limit of the format

std::string read_header_text(const InputFile& file) {
  std::array<unsigned char, length_bytes> start{};
  if (file.size() < length_bytes) file.refuse("header length", "the file is too short for it");
  file.read_at(0, start.data(), start.size());
  std::uint64_t length = 0;
  for (std::size_t i = start.size(); i-- > 0;) length = length << 8 | start[i];
  if (length > most_header_bytes || length > file.size() - length_bytes) {
    file.refuse("header length", fmt::format("{} bytes, but {} remain in the file and the format allows {}",
                                             length, file.size() - length_bytes, most_header_bytes));
  }
  std::string text(length, '\0');
  file.read_at(length_bytes, text.data(), text.size());
  if (text.empty() || text.front() != '{') file.refuse("header", "does not begin with '{'");
  return text;
}

// The elements of all tensors must fill the rest of the file, each byte once.
void check_places(const InputFile& file, const std::vector<Entry>& entries, std::uint64_t available) {
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    const std::string field = fmt::format("tensor '{}'", entry.name);
    std::int64_t bytes = 0;
    bool too_large = false;
    try {
      too_large = __builtin_mul_overflow(nelements(entry.shape), entry.dtype.bytes(), &bytes);
    } catch (const ArgumentError& error) { file.refuse(field, error.what()); }
    if (entry.begin > entry.end || entry.end > available) {
      file.refuse(field, fmt::format("data_offsets [{}, {}] are not within the {} bytes after the header",
                                     entry.begin, entry.end, available));
    }
    if (too_large || static_cast<std::uint64_t>(bytes) != entry.end - entry.begin) {
      file.refuse(field, fmt::format("{} {} does not match the {} bytes of its data_offsets",
                                     entry.dtype.name(), describe(entry.shape), entry.end - entry.begin));
    }
    if (entry.begin != expected) {
      file.refuse(field,
                  fmt::format("begins at {} while the tensor before it ends at {}", entry.begin, expected));
    }
    expected = entry.end;
  }
  if (expected != available) {
    file.refuse("elements",
                fmt::format("the tensors take {} bytes, but {} follow the header", expected, available));
  }
}

}  // namespace

struct SafetensorsFile::State {
  explicit State(const std::string& path) : file(path) {
    const std::string text = read_header_text(file);
    header = parse_safetensors_header(text, file);
    std::sort(header.entries.begin(), header.entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    const std::uint64_t begin = length_bytes + text.size();
    check_places(file, header.entries, file.size() - begin);
    for (Entry& entry : header.entries) {
      entry.begin += begin;
      entry.end += begin;
    }
  }

  const Entry* find(const std::string& name) const {
    const auto same = [&](const Entry& entry) { return entry.name == name; };
    const auto found = std::find_if(header.entries.begin(), header.entries.end(), same);
    return found == header.entries.end() ? nullptr : &*found;
  }

  Tensor read(const Entry& entry) const {
    const Tensor tensor = Tensor::empty(entry.shape, entry.dtype);
    file.read_at(entry.begin, tensor.data(), tensor.nbytes());
    return tensor;
  }

  InputFile file;
  SafetensorsHeader header;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : state_(std::make_unique<State>(path)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::vector<SafetensorsFile::Entry>& SafetensorsFile::entries() const { return state_->header.entries; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return state_->header.metadata;
}
bool SafetensorsFile::contains(const std::string& name) const { return state_->find(name) != nullptr; }

Tensor SafetensorsFile::read(const std::string& name) const {
  const Entry* entry = state_->find(name);
  if (entry != nullptr) return state_->read(*entry);
  std::vector<std::string> names;
  for (const Entry& each : entries()) names.push_back(each.name);
  state_->file.refuse(fmt::format("tensor '{}'", name),
                      fmt::format("is not in the file, which has: {}", fmt::join(names, ", ")));
}

std::vector<NamedTensor> SafetensorsFile::read_all() const {
  std::vector<NamedTensor> tensors;
  for (const Entry& entry : entries()) tensors.push_back({entry.name, state_->read(entry)});
  return tensors;
}

void write_safetensors(const std::string& path, const std::vector<NamedRef>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  SafetensorsHeader header{{}, metadata};
  std::uint64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t begin = end;
    end += static_cast<std::uint64_t>(nelements(tensor)) * tensor.dtype.bytes();
    header.entries.push_back({name, tensor.dtype, tensor.shape, begin, end});
  }
  std::string text = print_safetensors_header(header);
  text.resize((text.size() + length_bytes - 1) / length_bytes * length_bytes, ' ');
  std::string start;
  for (std::uint64_t i = 0; i < length_bytes; ++i) start += static_cast<char>(text.size() >> 8 * i & 0xff);
  OutputFile file(path);
  file.write(start);
  file.write(text);
  for (const NamedRef& named : tensors) {
    const Tensor elements = in_row_major_order(named.tensor);
    file.write(elements.data(), elements.nbytes());
  }
  file.commit();
}

}  // namespace tegula
