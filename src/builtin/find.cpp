#include <map>
#include <utility>

#include "builtin/builtin.hpp"
#include "runtime/execution/kernel_cache.hpp"

namespace tegula::builtin {

std::string key_of(std::string_view text) { return KeyBuilder().add(text).key(); }

const Compiled* find(std::string_view text, Isa isa) {
  // Never destroyed: see thread_pool().
  static const auto& by_key = *[] {
    auto* result = new std::map<std::pair<std::string_view, Isa>, const Compiled*>;
    for (const Compiled& compiled : table())
      result->emplace(std::pair(compiled.key, compiled.isa), &compiled);
    return result;
  }();
  const std::string key = key_of(text);
  const auto found = by_key.find({key, isa});
  return found == by_key.end() ? nullptr : found->second;
}

}  // namespace tegula::builtin
