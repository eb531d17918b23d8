// Compiled kernels on disk, by content: a key is the hash of everything that is compiled, and a suffix names
// the compiler, so that the code can be used without that compiler.
//
// Any number of processes may share the directory. A file appears under its name only when it is complete;
// its size and hash are in a footer, so that a damaged entry is detected and rebuilt. So is an entry that
// another process removes before it is used, and one that does not load here, as one from a machine with
// other libraries.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace tegula {

// Hash of a sequence of texts (XXH3, 128 bits, in hexadecimal). ("ab", "c") and ("a", "bc") differ.
class KeyBuilder {
 public:
  KeyBuilder& add(std::string_view text);
  std::string key() const;

 private:
  std::string bytes_;
};

class KernelCache {
 public:
  // Creates the directory (0700) if it is missing; an ArgumentError if it belongs to another user or others
  // may write to it. Beyond `limit_bytes` the least recently used entries are removed.
  KernelCache(std::string directory, std::uint64_t limit_bytes);

  // Calls `use(path)` with the file of the key. If there is none, `build(path)` first writes it to a
  // temporary path; of several processes that do so at once one wins and all use its file. Where the
  // directory cannot be written the temporary file is used, and the process says so once.
  using PathFunction = std::function<void(const std::string& path)>;
  void load_or_build(const std::string& key, std::string_view suffix, const PathFunction& build,
                     const PathFunction& use) const;

  // Calls `use(path)` with an entry of the key whose suffix ends so, the one used last first, until one call
  // does not throw a DeviceError; false if there is none. Whether it was built here or brought along, it is
  // verified.
  bool load_any(const std::string& key, std::string_view suffix_end, const PathFunction& use) const;

  bool contains(const std::string& key, std::string_view suffix) const;
  const std::string& directory() const { return directory_; }
  std::uint64_t bytes() const;  // of all entries
  void clear() const;

 private:
  std::string directory_;
  std::uint64_t limit_bytes_;
};

// TEGULA_CACHE_DIR and TEGULA_CACHE_LIMIT, as they were at first use.
const KernelCache& kernel_cache();

}  // namespace tegula
