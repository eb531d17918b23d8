// Short lists of variables and buffers, as effects have them.
#pragma once
#include <algorithm>
#include <vector>

namespace tegula::ir {

template <class T>
bool contains(const std::vector<T>& list, const T& x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}

}  // namespace tegula::ir
