// Files that the user names: errors say which file and why, and a file is replaced in one step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tegula {

// A regular file opened for reading. Every failure is an ArgumentError that names it.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  // Reads exactly `bytes` from `position` on.
  void read_at(std::uint64_t position, void* to, std::size_t bytes) const;
  // Throws an ArgumentError: "PATH: field: offence".
  [[noreturn]] void refuse(std::string_view field, std::string_view offence) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// A file that appears under its name only when it is complete: written beside it, flushed to the disk and
// renamed. Without `commit` nothing remains. A failure is an ArgumentError that names the file.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  [[noreturn]] void fail(std::string_view what) const;
  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

// A directory of this process alone, removed with all its files at the end of the scope unless kept.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(std::string_view name) const { return path_ + "/" + std::string(name); }
  void keep() { keep_ = true; }

 private:
  std::string path_;
  bool keep_ = false;
};

// Keeps the directory where TEGULA_DUMP is set, and says of the file in it where it is, or how to get it.
std::string kept_text(TemporaryDirectory& directory, std::string_view name);

// A name that no other thread or process uses at this time.
std::string unique_suffix();
// Flushes a file or directory to the disk; false with errno if that failed.
bool flush_to_disk(const std::string& path);

}  // namespace tegula
