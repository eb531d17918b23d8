// The four kinds of failure. Every message states what is wrong, the rule, and the remedy.
#pragma once
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

#include "tegula/compiler.hpp"

TEGULA_API_BEGIN
namespace tegula {

using Loc = std::source_location;

// Name of the file without its folders, and the line: `attention.cpp:41`.
std::string short_location(const Loc& at);

class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The tile program is wrong. The error has the line of the user's program.
class ProgramError : public Error {
 public:
  ProgramError(const std::string& message, const Loc& at);
  const Loc& where() const { return at_; }

 private:
  Loc at_;
};

// The call is wrong: shapes, types, strides, files, options.
class ArgumentError : public Error {
  using Error::Error;
};

// The device, its driver, a compiler or the memory failed.
class DeviceError : public Error {
  using Error::Error;
};

// A defect of Tegula itself.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message, const Loc& at = Loc::current());
};

// Throws InternalError unless `condition` holds.
inline void internal_assert(bool condition, const char* message, const Loc& at = Loc::current()) {
  if (!condition) throw InternalError(message, at);
}

}  // namespace tegula
TEGULA_API_END
