// Random choices that are the same on every machine, so that a seed means one program everywhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>

namespace tegula::fuzz {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {  // splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators)
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  // Both ends are possible.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const std::uint64_t count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
    const std::uint64_t offset = count == 0 ? bits() : bits() % count;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
  }
  int number(int low, int high) { return static_cast<int>(between(low, high)); }
  bool chance(int percent) { return number(1, 100) <= percent; }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[bits() % list.size()];
  }
  template <class List>
  const auto& pick_from(const List& list) {
    return list[static_cast<std::size_t>(bits() % std::size(list))];
  }

 private:
  std::uint64_t state_;
};

}  // namespace tegula::fuzz
