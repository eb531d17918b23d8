#include "image/png.hpp"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/files/file_io.hpp"
#include "runtime/files/row_major.hpp"
#include "tegula/error.hpp"

namespace tegula::image {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::uint64_t most_file_bytes = std::uint64_t{1} << 29;
constexpr std::uint64_t chunk_frame = 12;  // length, type and checksum
// Deflate makes at most 1032 bytes of one.
constexpr std::uint64_t most_expansion = 1032;

std::uint64_t big_endian(const std::uint8_t* at) {
  return std::uint64_t{at[0]} << 24 | std::uint64_t{at[1]} << 16 | std::uint64_t{at[2]} << 8 | at[3];
}

// Names of chunks are letters; others would garble the message.
std::string chunk_name(const std::uint8_t* at) {
  const bool letters = std::all_of(
      at, at + 4, [](std::uint8_t c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); });
  return letters ? std::string(at, at + 4) : "without a name";
}

Bytes read_whole(const InputFile& file) {
  Bytes bytes(std::min<std::uint64_t>(file.size(), sizeof signature));
  file.read_at(0, bytes.data(), bytes.size());
  if (!std::equal(bytes.begin(), bytes.end(), std::begin(signature), std::end(signature)))
    file.refuse("signature", "this is not a PNG file; convert it to PNG");
  if (file.size() > most_file_bytes)
    file.refuse("size",
                fmt::format("{} bytes; at most {} are read: reduce it", file.size(), most_file_bytes));
  bytes.resize(file.size());
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

// libpng stops where the last row is complete, so the file's frame is walked here: every chunk must be in
// the file, and the last be IEND. The result is how many bytes of pixels are there, compressed.
std::uint64_t check_chunks(const InputFile& file, const Bytes& bytes) {
  std::uint64_t at = sizeof signature, pixels = 0;
  while (true) {
    const std::uint64_t left = bytes.size() - at;
    if (left < chunk_frame)
      file.refuse("chunks",
                  fmt::format("the file ends at byte {} before an IEND chunk: it is truncated", at));
    const std::uint64_t length = big_endian(&bytes[at]);
    const std::string name = chunk_name(&bytes[at + 4]);
    if (length > left - chunk_frame) {
      file.refuse("chunks", fmt::format("chunk {} at byte {} has {} bytes, but {} remain: it is truncated",
                                        name, at, length, left - chunk_frame));
    }
    if (name == "IEND") return pixels;
    if (name == "IDAT") pixels += length;
    at += chunk_frame + length;
  }
}

// Frees what libpng holds, also where this throws.
struct Reader {
  png_image image{};
  Reader() { image.version = PNG_IMAGE_VERSION; }
  ~Reader() { png_image_free(&image); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
};

// Bits of a pixel in the file, at offset 24 of every PNG; libpng has checked that the combination exists.
std::uint64_t stored_bits(const Bytes& bytes) {
  static constexpr int channels[] = {1, 0, 3, 1, 2, 0, 4};
  const int depth = bytes[24], color = bytes[25];
  return static_cast<std::uint64_t>(depth) * channels[color];
}

void check_size(const InputFile& file, const Bytes& bytes, const png_image& image, std::uint64_t compressed) {
  const std::uint64_t width = image.width, height = image.height;
  if (width * height > static_cast<std::uint64_t>(most_pixels)) {
    file.refuse("size",
                fmt::format("{} x {} pixels; at most {} are read: reduce it", width, height, most_pixels));
  }
  const std::uint64_t raw = width * height * stored_bits(bytes) / 8;
  if (raw / most_expansion > compressed) {
    file.refuse("size", fmt::format("{} x {} pixels cannot be in {} bytes of compressed data", width, height,
                                    compressed));
  }
}

}  // namespace

Tensor read_png(const std::string& path) {
  const InputFile file(path);
  const Bytes bytes = read_whole(file);
  const std::uint64_t compressed = check_chunks(file, bytes);
  Reader reader;
  png_image& image = reader.image;
  if (png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()) == 0)
    file.refuse("header", image.message);
  check_size(file, bytes, image, compressed);
  const bool color = (image.format & PNG_FORMAT_FLAG_COLOR) != 0;
  image.format = color ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  Tensor pixels = Tensor::empty({image.height, image.width, color ? 3 : 1}, u8);
  const png_color white{255, 255, 255};
  if (png_image_finish_read(&image, &white, pixels.data(), 0, nullptr) == 0)
    file.refuse("pixels", image.message);
  return pixels;
}

void write_png(const std::string& path, const TensorRef& pixels) {
  const bool fits = pixels.dtype == u8 && pixels.rank() == 3 && pixels.size(0) > 0 && pixels.size(1) > 0 &&
                    (pixels.size(2) == 1 || pixels.size(2) == 3) &&
                    pixels.size(0) <= most_pixels / pixels.size(1);
  if (!fits) {
    throw ArgumentError(fmt::format("{}: {}: a picture is u8 [height, width, 1 or 3] of at most {} pixels",
                                    path, describe(pixels), most_pixels));
  }
  const Tensor rows = in_row_major_order(pixels);
  Reader writer;
  png_image& image = writer.image;
  image.height = static_cast<png_uint_32>(pixels.size(0));
  image.width = static_cast<png_uint_32>(pixels.size(1));
  image.format = pixels.size(2) == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  Bytes bytes(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, rows.data(), 0, nullptr) == 0)
    throw ArgumentError(fmt::format("{}: cannot be encoded: {}", path, image.message));
  OutputFile file(path);
  file.write(bytes.data(), size);
  file.commit();
}

}  // namespace tegula::image
