#include "runtime/files/npy_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "runtime/files/file_io.hpp"

namespace tegula {
namespace {

// Reads those of Python's literals of which headers consist.
class Parser {
 public:
  Parser(std::string_view text, const InputFile& file) : text_(text), file_(file) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(has_descr, key);
        descr(header);
      } else if (key == "fortran_order") {
        once(has_order, key);
        header.fortran_order = boolean_value();
      } else if (key == "shape") {
        once(has_shape, key);
        header.shape = shape();
      } else {
        refuse(fmt::format("unknown key '{}'", key));
      }
      if (!accept(',') && peek() != '}') refuse("',' or '}' is missing");
    }
    if (peek() != '\0' || at_ < text_.size()) refuse("text after the closing '}'");
    if (!has_descr || !has_order || !has_shape)
      refuse("one of the keys descr, fortran_order, shape is missing");
    return header;
  }

 private:
  [[noreturn]] void refuse(std::string_view offence) const {
    file_.refuse("header", fmt::format("{} at character {}", offence, at_));
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse(fmt::format("'{}' is missing", c));
  }
  void once(bool& seen, const std::string& key) const {
    if (seen) refuse(fmt::format("key '{}' appears twice", key));
    seen = true;
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') refuse("a string is missing");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) refuse("a string does not end");
    const std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }

  bool boolean_value() {
    peek();
    for (const bool value : {true, false}) {
      const std::string_view name = value ? "True" : "False";
      if (!text_.substr(at_).starts_with(name)) continue;
      at_ += name.size();
      return value;
    }
    refuse("True or False is missing");
  }

  std::int64_t extent() {
    peek();
    std::int64_t value = 0;
    const auto [stop, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) refuse("an extent is not a nonnegative 64-bit integer");
    at_ = static_cast<std::size_t>(stop - text_.data());
    return value;
  }

  Shape shape() {
    Shape result;
    expect('(');
    while (!accept(')')) {
      result.push_back(extent());
      if (!accept(',') && peek() != ')') refuse("',' or ')' is missing in the shape");
    }
    return result;
  }

  // A type name, or a record of one field.
  void descr(NpyHeader& header) {
    if (!accept('[')) {
      header.descr = string();
      return;
    }
    expect('(');
    header.field = string();
    expect(',');
    header.descr = string();
    accept(',');
    if (!accept(')')) refuse("fields that are arrays are not supported");
    accept(',');
    if (!accept(']')) refuse("records of several fields are not supported");
    if (header.field.empty()) refuse("a field has no name");
  }

  std::string_view text_;
  const InputFile& file_;
  std::size_t at_ = 0;
};

struct NpyType {
  DType dtype;
  std::string_view descr, field;
};
constexpr NpyType npy_types[] = {
    {boolean, "|b1", ""},
    {i8, "|i1", ""},
    {i16, "<i2", ""},
    {i32, "<i4", ""},
    {i64, "<i8", ""},
    {u8, "|u1", ""},
    {u32, "<u4", ""},
    {e4m3, "|u1", "float8_e4m3fn"},
    {e5m2, "|u1", "float8_e5m2"},
    {f16, "<f2", ""},
    {bf16, "<V2", ""},
    {f32, "<f4", ""},
    {f64, "<f8", ""},
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const InputFile& file) {
  return Parser(text, file).parse();
}

std::string print_npy_header(const NpyHeader& header) {
  const std::string descr = header.field.empty() ? fmt::format("'{}'", header.descr)
                                                 : fmt::format("[('{}', '{}')]", header.field, header.descr);
  const bool one = header.shape.size() == 1;  // (3,) is a tuple, (3) a number
  return fmt::format("{{'descr': {}, 'fortran_order': {}, 'shape': ({}{}), }}", descr,
                     header.fortran_order ? "True" : "False", fmt::join(header.shape, ", "), one ? "," : "");
}

DType npy_dtype(const NpyHeader& header, std::optional<DType> raw_as, const InputFile& file) {
  const std::string& descr = header.descr;
  const std::string shown = header.field.empty() ? descr : fmt::format("{} of field {}", descr, header.field);
  if (descr.size() < 3) file.refuse("descr", fmt::format("'{}' is not a type", shown));
  const std::string_view size = std::string_view(descr).substr(1);  // the type without the order of its bytes
  const bool raw = descr[1] == 'V';
  if (descr[0] == '>' && size.back() != '1') {
    file.refuse("descr", fmt::format("'{}' is big-endian; save it as little-endian, for example "
                                     "array.astype(array.dtype.newbyteorder('<'))",
                                     shown));
  }
  if (raw && raw_as && header.field.empty() && std::to_string(raw_as->bytes()) == size.substr(1))
    return *raw_as;
  for (const NpyType& row : npy_types) {
    if (row.descr.substr(1) == size && row.field == header.field) return row.dtype;
  }
  file.refuse("descr", raw ? fmt::format("'{}' is raw; specify the dtype of its elements", shown)
                           : fmt::format("no dtype corresponds to '{}'", shown));
}

void set_npy_dtype(NpyHeader& header, DType dtype) {
  const NpyType& row = npy_types[static_cast<int>(dtype.code)];
  header.descr = row.descr;
  header.field = row.field;
}

}  // namespace tegula
