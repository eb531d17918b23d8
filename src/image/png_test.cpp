// PNG files: what is written is read again, every kind of PNG is taken, and damage is refused by name.
#include "image/png.hpp"

#include <gtest/gtest.h>
#include <png.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "runtime/files/file_io.hpp"
#include "runtime/testing/expect_error.hpp"
#include "tegula/error.hpp"

namespace tegula::image {
namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void put(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // some file systems flush a file that is overwritten
  std::ofstream(path, std::ios::binary) << bytes;
}

// A file of any of libpng's formats.
void encode(const std::string& path, png_uint_32 width, png_uint_32 height, png_uint_32 format,
            const void* pixels, const void* colors = nullptr, png_uint_32 count = 0) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width, image.height = height, image.format = format, image.colormap_entries = count;
  ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, pixels, 0, colors), 0) << image.message;
}

std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 255);
  return text;
}

// Bitwise CRC-32 of the format's appendix: independent of what the library links.
std::uint32_t checksum(const std::string& bytes) {
  std::uint32_t crc = ~0u;
  for (unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

std::string chunk(const std::string& name, const std::string& data) {
  return big_endian(static_cast<std::uint32_t>(data.size())) + name + data +
         big_endian(checksum(name + data));
}

std::string header(std::uint32_t width, std::uint32_t height, int depth = 8, int color = 2) {
  std::string data = big_endian(width) + big_endian(height);
  for (int byte : {depth, color, 0, 0, 0}) data += static_cast<char>(byte);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", data);
}

class Png : public testing::Test {
 protected:
  std::string path(const std::string& name = "picture.png") const { return folder.file(name); }
  std::string sample() const {
    write_png(path(), Tensor::random_integers({13, 11, 3}, u8, 7, 0, 256));
    return contents(path());
  }
  TemporaryDirectory folder;
};

TEST_F(Png, ReadsWhatItWrote) {
  for (const Shape& shape : {Shape{1, 1, 1}, {1, 1, 3}, {7, 5, 1}, {8, 300, 3}, {257, 3, 3}}) {
    const Tensor pixels = Tensor::random_integers(shape, u8, 1, 0, 256);
    write_png(path(), pixels);
    EXPECT_TRUE(equal(read_png(path()), pixels)) << describe(shape);
  }
}

TEST_F(Png, WritesAnyStrides) {
  const Tensor pixels = Tensor::random_integers({6, 9, 3}, u8, 2, 0, 256);
  for (const Tensor& view : {pixels.transpose(0, 1), pixels.flip(1), pixels.slice(0, 0, 6, 2)}) {
    write_png(path(), view);
    EXPECT_TRUE(equal(read_png(path()), view)) << describe(view);
  }
}

TEST_F(Png, TakesPalettes) {
  const std::uint8_t colors[] = {9, 8, 7, 250, 128, 3}, at[] = {0, 1, 1, 0};
  encode(path(), 2, 2, PNG_FORMAT_RGB_COLORMAP, at, colors, 2);
  EXPECT_EQ(read_png(path()).values<std::uint8_t>(),
            (std::vector<std::uint8_t>{9, 8, 7, 250, 128, 3, 250, 128, 3, 9, 8, 7}));
}

TEST_F(Png, LaysTransparentPixelsOverWhite) {
  const std::uint8_t pixels[] = {10, 20, 30, 0, 10, 20, 30, 255};
  encode(path(), 2, 1, PNG_FORMAT_RGBA, pixels);
  EXPECT_EQ(read_png(path()).values<std::uint8_t>(), (std::vector<std::uint8_t>{255, 255, 255, 10, 20, 30}));
}

TEST_F(Png, TakesSixteenBits) {
  const std::uint16_t pixels[] = {0, 65535};
  encode(path(), 2, 1, PNG_FORMAT_LINEAR_Y, pixels);
  EXPECT_EQ(read_png(path()).values<std::uint8_t>(), (std::vector<std::uint8_t>{0, 255}));
}

TEST_F(Png, RefusesTruncationAtEveryByte) {
  const std::string whole = sample();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(path(), whole.substr(0, size));
    EXPECT_ERROR(ArgumentError, path(), read_png(path()));
  }
}

TEST_F(Png, RefusesWhatItCannotTake) {
  const std::string whole = sample(), end = chunk("IEND", "");
  const struct {
    std::string bytes, words;
  } table[] = {
      {"", "not a PNG"},
      {"\xff\xd8\xff\xe0 a photograph of another format", "not a PNG"},
      {whole.substr(0, 8), "truncated"},
      {whole.substr(0, whole.size() - 1), "truncated"},
      {header(4, 4) + big_endian(0x7fffffff) + "IDAT", "truncated"},
      {header(4, 4) + big_endian(0xffffffff) + "IDAT????", "but 0 remain"},
      // Larger than is read, and larger than the compressed bytes can stand for.
      {header(1'000'000, 1'000'000) + chunk("IDAT", "x") + end, "at most 67108864 are read"},
      {header(8000, 8000) + chunk("IDAT", "x") + end, "cannot be in 1 bytes"},
      {header(4, 4) + end, "header"},
      {header(0, 4) + chunk("IDAT", "x") + end, "header"},
      {header(4, 4, 3) + chunk("IDAT", "x") + end, "header"},
      {header(4, 4) + chunk("IDAT", "no deflate") + end, "pixels"},
      {whole.substr(0, 16) + "\x7f" + whole.substr(17), "header"},  // the width, not its checksum
  };
  for (const auto& row : table) {
    put(path(), row.bytes);
    EXPECT_ERROR(ArgumentError, path(), read_png(path()));
    EXPECT_ERROR(ArgumentError, row.words, read_png(path()));
  }
  EXPECT_ERROR(ArgumentError, "missing.png", read_png(path("missing.png")));
  EXPECT_ERROR(ArgumentError, folder.path(), read_png(folder.path()));
}

// Each damaged file is read or refused, never anything else; the sanitizers see the rest.
TEST_F(Png, SurvivesDamage) {
  const std::string whole = sample();
  std::mt19937 random(20'250'611);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes = whole;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes)
      bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.erase(random() % bytes.size(), random() % 16);
    put(path(), bytes);
    try {
      EXPECT_EQ(read_png(path()).rank(), 3);
    } catch (const ArgumentError& error) {
      EXPECT_NE(std::string(error.what()).find(path()), std::string::npos) << error.what();
    }
  }
}

TEST_F(Png, WritesOnlyPictures) {
  for (const Tensor& wrong : {Tensor::zeros({4, 4}, u8), Tensor::zeros({4, 4, 3}, f32),
                              Tensor::zeros({4, 4, 2}, u8), Tensor::zeros({0, 4, 3}, u8)})
    EXPECT_ERROR(ArgumentError, "[height, width, 1 or 3]", (write_png(path("wrong.png"), wrong), 0));
  EXPECT_ERROR(ArgumentError, "none/picture.png",
               (write_png(folder.file("none/picture.png"), Tensor::zeros({4, 4, 3}, u8)), 0));
}

}  // namespace
}  // namespace tegula::image
