#include "runtime/execution/kernel_cache.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "runtime/files/file_io.hpp"
#include "runtime/machine/environment.hpp"
#include "tegula/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tegula {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t key_length = 32;
constexpr std::string_view temporary_prefix = ".tegula-part-";
constexpr std::uint64_t default_limit = 1ull << 30;

// Stands at the end of an entry, after what was built: loaders of shared objects ignore what follows them.
struct Footer {
  std::array<char, 8> magic;
  std::uint64_t size;
  std::array<unsigned char, 16> hash;
};
constexpr std::array<char, 8> footer_magic = {'t', 'e', 'g', 'u', 'l', 'a', '0', '1'};

class Hasher {
 public:
  Hasher() { XXH3_128bits_reset(&state_); }
  void add(const void* data, std::size_t bytes) { XXH3_128bits_update(&state_, data, bytes); }
  std::array<unsigned char, 16> result() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_));
    std::array<unsigned char, 16> bytes;
    std::copy_n(canonical.digest, bytes.size(), bytes.begin());
    return bytes;
  }

 private:
  XXH3_state_t state_;
};

// Hash of the first `size` bytes of a stream, or nothing if it has fewer.
std::optional<std::array<unsigned char, 16>> hash_stream(std::istream& in, std::uint64_t size) {
  Hasher hasher;
  std::vector<char> buffer(1 << 16);
  while (size > 0) {
    const std::uint64_t read = std::min<std::uint64_t>(size, buffer.size());
    if (!in.read(buffer.data(), static_cast<std::streamsize>(read))) return std::nullopt;
    hasher.add(buffer.data(), read);
    size -= read;
  }
  return hasher.result();
}

bool is_intact(const std::string& path) {
  std::error_code error;
  const std::uint64_t total = fs::file_size(path, error);
  if (error || total < sizeof(Footer)) return false;
  std::ifstream in(path, std::ios::binary);
  const auto hash = hash_stream(in, total - sizeof(Footer));
  Footer footer{};
  in.read(reinterpret_cast<char*>(&footer), sizeof footer);
  return in && footer.magic == footer_magic && footer.size == total - sizeof(Footer) && hash == footer.hash;
}

void append_footer(const std::string& path) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) throw DeviceError(fmt::format("{} was not built: {}", path, error.message()));
  std::ifstream in(path, std::ios::binary);
  const auto hash = hash_stream(in, size);
  std::ofstream out(path, std::ios::binary | std::ios::app);
  const Footer footer{footer_magic, size, hash.value_or(decltype(footer.hash){})};
  out.write(reinterpret_cast<const char*>(&footer), sizeof footer);
  if (!hash || !out.flush())
    throw DeviceError(fmt::format("{} cannot be written: {}; name another directory in TMPDIR", path,
                                  std::strerror(errno)));
}

// Whether the name is that of an entry; nothing else in the directory is ever touched.
bool is_entry(const std::string& name) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return name.size() > key_length && name[key_length] == '.' &&
         std::all_of(name.begin(), name.begin() + key_length, is_hex);
}

struct Entry {
  fs::path path;
  std::uint64_t bytes;
  fs::file_time_type used;
};

std::vector<Entry> list_entries(const std::string& directory) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (!is_entry(it->path().filename().string())) continue;
    std::error_code gone;  // another process may remove it meanwhile
    const std::uint64_t bytes = it->file_size(gone);
    const fs::file_time_type used = it->last_write_time(gone);
    if (!gone) entries.push_back({it->path(), bytes, used});
  }
  return entries;
}

void mark_used(const std::string& path) { utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

// What processes that died while building have left behind.
void remove_abandoned(const std::string& directory) {
  std::error_code error;
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    if (!it->path().filename().string().starts_with(temporary_prefix)) continue;
    if (it->last_write_time(gone) < old && !gone) fs::remove(it->path(), gone);
  }
}

void remove_least_recently_used(const std::string& directory, std::uint64_t limit, const fs::path& keep) {
  std::vector<Entry> entries = list_entries(directory);
  std::uint64_t total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  if (total <= limit) return;
  remove_abandoned(directory);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit) return;
    if (entry.path == keep) continue;
    std::error_code ignored;
    fs::remove(entry.path, ignored);
    total -= entry.bytes;
  }
}

// An open file, whose number in the file system is therefore not given to another one.
class HeldFile {
 public:
  explicit HeldFile(const std::string& path) : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~HeldFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  HeldFile(const HeldFile&) = delete;
  HeldFile& operator=(const HeldFile&) = delete;
  bool has_its_name() const {
    struct stat status {};
    return descriptor_ >= 0 && fstat(descriptor_, &status) == 0 && status.st_nlink > 0;
  }

 private:
  int descriptor_;
};

// Removes a temporary file unless it was renamed away.
struct RemoveAtEnd {
  std::string path;
  ~RemoveAtEnd() { unlink(path.c_str()); }
};

// Copies what was built into the cache; false, with the reason in errno, where the cache takes no file.
bool store(const std::string& built, const std::string& path, const std::string& directory,
           std::string_view suffix) {
  const std::string temporary =
      fmt::format("{}/{}{}{}", directory, temporary_prefix, unique_suffix(), suffix);
  const RemoveAtEnd cleanup{temporary};
  std::error_code error;
  fs::copy_file(built, temporary, error);
  if (error) {
    // The standard library says of a full disk only that the copy failed.
    std::error_code unknown;
    const bool full = fs::space(directory, unknown).available < fs::file_size(built, unknown);
    errno = full && !unknown ? ENOSPC : error.value();
    return false;
  }
  if (!flush_to_disk(temporary)) return false;
  if (is_intact(path)) return true;  // another process was faster
  if (rename(temporary.c_str(), path.c_str()) != 0) return false;
  flush_to_disk(directory);
  return true;
}

void say_that_nothing_is_kept(const std::string& directory, int reason) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  fmt::print(stderr,
             "tegula: kernel cache {}: cannot be written: {}; kernels are recompiled in every process; free "
             "some space, or choose another directory with TEGULA_CACHE_DIR\n",
             directory, std::strerror(reason));
}

void check_private(const std::string& directory) {
  constexpr std::string_view remedy = "choose another directory with TEGULA_CACHE_DIR";
  struct stat status {};
  if (stat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    throw ArgumentError(fmt::format("kernel cache {}: cannot be used as a directory: {}; {}", directory,
                                    std::strerror(S_ISDIR(status.st_mode) ? errno : ENOTDIR), remedy));
  }
  if (status.st_uid != geteuid()) {
    throw ArgumentError(fmt::format(
        "kernel cache {}: belongs to another user, who could plant code in it; {}", directory, remedy));
  }
  if (status.st_mode & (S_IWGRP | S_IWOTH)) {
    throw ArgumentError(
        fmt::format("kernel cache {}: other users may write to it and could plant code; remove the "
                    "permission with chmod go-w, or {}",
                    directory, remedy));
  }
}

// The usual place of caches, if there is one.
std::optional<std::string> default_directory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/tegula";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/tegula";
  return std::nullopt;
}

KernelCache open_cache() {
  const std::uint64_t limit = environment_bytes(Variable::cache_limit).value_or(default_limit);
  if (const auto chosen = environment(Variable::cache_dir)) return {*chosen, limit};
  try {
    if (const auto usual = default_directory()) return {*usual, limit};
  } catch (const ArgumentError&) {
    // Without a usable home directory kernels last as long as the process.
  }
  static const TemporaryDirectory directory;
  return {directory.path(), limit};
}

}  // namespace

KeyBuilder& KeyBuilder::add(std::string_view text) {
  bytes_ += fmt::format("{}:", text.size());
  bytes_ += text;
  return *this;
}

std::string KeyBuilder::key() const {
  Hasher hasher;
  hasher.add(bytes_.data(), bytes_.size());
  return fmt::format("{:02x}", fmt::join(hasher.result(), ""));
}

KernelCache::KernelCache(std::string directory, std::uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {
  std::error_code error;
  directory_ = fs::absolute(directory_, error).string();
  fs::create_directories(fs::path(directory_).parent_path(), error);
  if (mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    throw ArgumentError(
        fmt::format("kernel cache {}: cannot be created: {}; choose another directory with "
                    "TEGULA_CACHE_DIR",
                    directory_, std::strerror(errno)));
  }
  check_private(directory_);
}

void KernelCache::load_or_build(const std::string& key, std::string_view suffix, const PathFunction& build,
                                const PathFunction& use) const {
  internal_assert(is_entry(key + std::string(suffix)),
                  "a cache key has 32 hexadecimal digits, a suffix a dot");
  const std::string path = fmt::format("{}/{}{}", directory_, key, suffix);
  constexpr int attempts = 20;
  for (int attempt = 1;; ++attempt) {
    const bool found = is_intact(path);
    if (found) {
      mark_used(path);
    } else {
      // Elsewhere, so that a cache that takes nothing is no error of a compiler.
      const TemporaryDirectory own;
      const std::string built = own.file("kernel") + std::string(suffix);
      build(built);
      append_footer(built);
      if (!store(built, path, directory_, suffix)) {
        say_that_nothing_is_kept(directory_, errno);
        return use(built);
      }
      remove_least_recently_used(directory_, limit_bytes_, path);
    }
    const HeldFile held(path);
    try {
      return use(path);
    } catch (...) {
      // Another process may have removed it to make room, and yet another may have built it again. One that
      // was found may be from a machine with other libraries.
      if (attempt == attempts || (held.has_its_name() && !found)) throw;
      if (held.has_its_name()) fs::remove(path);
    }
  }
}

bool KernelCache::load_any(const std::string& key, std::string_view suffix_end,
                           const PathFunction& use) const {
  std::vector<Entry> entries = list_entries(directory_);
  std::erase_if(entries, [&](const Entry& entry) {
    const std::string name = entry.path.filename().string();
    return !name.starts_with(key) || !name.ends_with(suffix_end) || !is_intact(entry.path.string());
  });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used > b.used; });
  for (const Entry& entry : entries) {
    try {
      use(entry.path.string());
      mark_used(entry.path.string());
      return true;
    } catch (const DeviceError&) {
      // It may be from a machine with other libraries, or another process has removed it.
    }
  }
  return false;
}

bool KernelCache::contains(const std::string& key, std::string_view suffix) const {
  return is_intact(fmt::format("{}/{}{}", directory_, key, suffix));
}

std::uint64_t KernelCache::bytes() const {
  std::uint64_t total = 0;
  for (const Entry& entry : list_entries(directory_)) total += entry.bytes;
  return total;
}

void KernelCache::clear() const {
  std::error_code ignored;
  for (const Entry& entry : list_entries(directory_)) fs::remove(entry.path, ignored);
}

const KernelCache& kernel_cache() {
  // Never destroyed: see thread_pool().
  static const KernelCache& cache = *new KernelCache(open_cache());
  return cache;
}

}  // namespace tegula
