// For tests: sets an environment variable of Tegula and restores it at the end of the scope.
#pragma once
#include <cstdlib>
#include <optional>
#include <string>

#include "runtime/machine/environment.hpp"

namespace tegula {

class ScopedVariable {
 public:
  ScopedVariable(Variable variable, const std::optional<std::string>& value) : name_(info(variable).name) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    assign(value);
  }
  ~ScopedVariable() { assign(before_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void assign(const std::optional<std::string>& value) const {
    value ? setenv(name_.c_str(), value->c_str(), 1) : unsetenv(name_.c_str());
  }
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace tegula
