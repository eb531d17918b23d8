// The key of a rank among the keys of a row, digit by digit from the highest.
#pragma once
#include <functional>

#include "tegula/lang.hpp"

namespace tegula::ops {

// Bits of a digit and of all keys, and a number of keys that need no further digit.
struct Digits {
  int each;
  lang::Expr all;
  int few;
};

// Runs statements for keys, 0 where nothing is to be chosen.
using EachKey = std::function<void(const std::function<void(const lang::Expr& key)>&)>;

// As many as a number has, or one more.
lang::Expr bits_of(const lang::Expr& number);

// `bound`, 0 before, becomes the highest bits of the wanted-th largest key, and `wanted` how many of the
// `within` keys that have these bits are among the wanted ones. It ends where all of them are, or `few` are
// left.
void fix_digits(const EachKey& keys, const Digits& digits, lang::Var& bound, lang::Var& wanted,
                lang::Var& within);

// Those among the wanted ones are then above the bound, and of those that equal it as many as are wanted.
void find_bound(const EachKey& keys, const Digits& digits, lang::Var& bound, lang::Var& wanted);

}  // namespace tegula::ops
