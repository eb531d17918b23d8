#include "runtime/files/safetensors_header.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "runtime/files/file_io.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

using Json = nlohmann::json;

constexpr std::string_view metadata_key = "__metadata__";
constexpr std::size_t most_dimensions = 64;

// In the order of TypeCode.
constexpr std::string_view type_names[] = {"BOOL",    "I8",      "I16", "I32",  "I64", "U8", "U32",
                                           "F8_E4M3", "F8_E5M2", "F16", "BF16", "F32", "F64"};

// Receives the events of the JSON parser and accepts nothing but the form that the format prescribes.
class Handler : public nlohmann::json_sax<Json> {
 public:
  explicit Handler(const InputFile& file) : file_(file) {}

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a fraction"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (!in_array_) unexpected("a number");
    std::vector<std::uint64_t>& array = key_ == "shape" ? shape_ : offsets_;
    const std::size_t most = key_ == "shape" ? most_dimensions : 2;
    if (array.size() == most) refuse(fmt::format("{} has more than {} numbers", key_, most));
    array.push_back(value);
    return true;
  }

  bool string(string_t& text) override {
    if (depth_ == 2 && in_metadata_) {
      if (!result_.metadata.emplace(key_, text).second) refuse(fmt::format("key '{}' appears twice", key_));
    } else if (depth_ == 2 && key_ == "dtype" && !in_array_) {
      set_dtype(text);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_array_ || depth_ == 2) unexpected("an object");
    ++depth_;
    seen_.clear();
    shape_.clear();
    offsets_.clear();
    return true;
  }

  bool key(string_t& text) override {
    key_ = text;
    if (depth_ == 1) {
      name_ = text;
      in_metadata_ = text == metadata_key;
      if (!names_.insert(text).second) refuse("the name appears twice");
    } else if (!in_metadata_) {
      if (text != "dtype" && text != "shape" && text != "data_offsets")
        refuse(fmt::format("unknown key '{}'", text));
      if (!seen_.insert(text).second) refuse(fmt::format("key '{}' appears twice", text));
    }
    return true;
  }

  bool end_object() override {
    if (depth_-- == 2 && !in_metadata_) finish_entry();
    if (depth_ == 0) complete_ = true;
    return true;
  }

  bool start_array(std::size_t) override {
    const bool expected = depth_ == 2 && !in_metadata_ && !in_array_ && key_ != "dtype";
    if (!expected) unexpected("an array");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception&) override {
    file_.refuse("header", fmt::format("is not JSON at character {}", position));
  }

  SafetensorsHeader take() {
    if (!complete_) file_.refuse("header", "is not an object");
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view offence) const {
    file_.refuse(depth_ == 0 ? "header" : fmt::format("tensor '{}'", name_), offence);
  }
  [[noreturn]] void unexpected(std::string_view what) const {
    refuse(depth_ == 2 ? fmt::format("{} as {}", what, key_) : fmt::format("{} instead of an object", what));
  }

  void set_dtype(const std::string& text) {
    for (const DType type : all_dtypes) {
      if (type_names[static_cast<int>(type.code)] != text) continue;
      dtype_ = type;
      return;
    }
    refuse(fmt::format("no dtype corresponds to {}", text));
  }

  void finish_entry() {
    if (seen_.size() != 3)
      file_.refuse(fmt::format("tensor '{}'", name_), "dtype, shape or data_offsets is missing");
    if (offsets_.size() != 2)
      file_.refuse(fmt::format("tensor '{}'", name_), "data_offsets are not two numbers");
    Shape shape;
    for (const std::uint64_t extent : shape_) {
      if (extent > INT64_MAX) file_.refuse(fmt::format("tensor '{}'", name_), "an extent is beyond 64 bits");
      shape.push_back(static_cast<std::int64_t>(extent));
    }
    result_.entries.push_back({name_, dtype_, std::move(shape), offsets_[0], offsets_[1]});
  }

  const InputFile& file_;
  SafetensorsHeader result_;
  std::set<std::string> names_, seen_;
  std::string name_, key_;
  DType dtype_ = f32;
  std::vector<std::uint64_t> shape_, offsets_;
  int depth_ = 0;
  bool in_array_ = false, in_metadata_ = false, complete_ = false;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const InputFile& file) {
  Handler handler(file);
  Json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

std::string print_safetensors_header(const SafetensorsHeader& header) {
  auto json = nlohmann::ordered_json::object();
  if (!header.metadata.empty()) json[std::string(metadata_key)] = header.metadata;
  for (const SafetensorsFile::Entry& entry : header.entries) {
    const bool taken = entry.name == metadata_key || json.contains(entry.name);
    if (taken)
      throw ArgumentError(fmt::format("tensor '{}': the name is taken in a .safetensors file", entry.name));
    json[entry.name] = {{"dtype", type_names[static_cast<int>(entry.dtype.code)]},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  try {
    return json.dump();
  } catch (const Json::exception&) {
    throw ArgumentError("a tensor's name or metadata for a .safetensors file is not UTF-8");
  }
}

}  // namespace tegula
