// A plan, or the reason why there is none.
#pragma once
#include <string>
#include <utility>
#include <variant>

#include "tegula/error.hpp"

namespace tegula::passes {

// Nothing is said where `why` is empty: nobody could expect such a plan.
struct Reason {
  std::string why, remedy;
  Loc at = {};  // line 0: the statement's own place
};

template <class T>
class Planned {
 public:
  Planned(T plan) : value_(std::move(plan)) {}
  Planned(Reason reason) : value_(std::move(reason)) {}

  bool has_value() const { return std::holds_alternative<T>(value_); }
  explicit operator bool() const { return has_value(); }
  const T& operator*() const { return std::get<T>(value_); }
  T& operator*() { return std::get<T>(value_); }
  const T* operator->() const { return &std::get<T>(value_); }
  T* operator->() { return &std::get<T>(value_); }
  const Reason& reason() const { return std::get<Reason>(value_); }

 private:
  std::variant<T, Reason> value_;
};

}  // namespace tegula::passes
