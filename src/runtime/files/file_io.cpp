#include "runtime/files/file_io.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

namespace tegula {
namespace {

// The kernel transfers at most 2 GiB at once.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

std::string directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // A named pipe would otherwise block until somebody writes to it.
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0)
    throw ArgumentError(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  struct stat status {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    throw ArgumentError(fmt::format("{}: is not a regular file", path));
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { close(descriptor_); }

void InputFile::read_at(std::uint64_t position, void* to, std::size_t bytes) const {
  auto* out = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, out, std::min(bytes, most_at_once), static_cast<off_t>(position));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse("reading", std::strerror(errno));
    if (got == 0) refuse("reading", fmt::format("the file ends {} bytes too early", bytes));
    out += got;
    position += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::size_t>(got);
  }
}

void InputFile::refuse(std::string_view field, std::string_view offence) const {
  throw ArgumentError(fmt::format("{}: {}: {}", path_, field, offence));
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    if (!std::filesystem::is_regular_file(path, ignored)) fail("is not a regular file");
    // Through a symbolic link the file it points to is replaced, not the link.
    path_ = std::filesystem::canonical(path, ignored).string();
  }
  temporary_ = path_ + ".part-" + unique_suffix();
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail(fmt::format("cannot be written: {}", std::strerror(errno)));
}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  while (bytes > 0) {
    const ssize_t put = ::write(descriptor_, from, std::min(bytes, most_at_once));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(fmt::format("cannot be written: {}", std::strerror(errno)));
    from += put;
    bytes -= static_cast<std::size_t>(put);
  }
}

void OutputFile::commit() {
  if (fsync(descriptor_) != 0) fail(fmt::format("cannot be flushed to the disk: {}", std::strerror(errno)));
  if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(fmt::format("cannot be replaced: {}", std::strerror(errno)));
  }
  close(descriptor_);
  descriptor_ = -1;
  flush_to_disk(directory_of(path_));
}

void OutputFile::fail(std::string_view what) const {
  throw ArgumentError(fmt::format("{}: {}", path_, what));
}

TemporaryDirectory::TemporaryDirectory() {
  std::error_code none;
  std::filesystem::path base = std::filesystem::temp_directory_path(none);
  if (none) base = "/tmp";
  path_ = (base / "tegula-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) {
    throw DeviceError(
        fmt::format("no temporary directory can be created in {}: {}; name another directory in TMPDIR",
                    base.string(), std::strerror(errno)));
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  if (keep_) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string kept_text(TemporaryDirectory& directory, std::string_view name) {
  if (!environment(Variable::dump)) return "with TEGULA_DUMP its text is kept";
  directory.keep();
  return "its text is kept in " + directory.file(name);
}

std::string unique_suffix() {
  static std::atomic<std::uint64_t> counter{0};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return fmt::format("{}-{:x}-{}", getpid(), now.tv_nsec, counter.fetch_add(1));
}

bool flush_to_disk(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool flushed = fsync(descriptor) == 0;
  close(descriptor);
  return flushed;
}

}  // namespace tegula
