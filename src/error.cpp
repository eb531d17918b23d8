#include "tegula/error.hpp"

#include <string_view>

namespace tegula {

std::string short_location(const Loc& at) {
  std::string_view file = at.file_name();
  file = file.substr(file.rfind('/') + 1);
  return std::string(file) + ":" + std::to_string(at.line());
}

ProgramError::ProgramError(const std::string& message, const Loc& at)
    : Error(std::string(at.file_name()) + ":" + std::to_string(at.line()) + ": " + message), at_(at) {}

InternalError::InternalError(const std::string& message, const Loc& at)
    : Error("internal error at " + short_location(at) + ": " + message +
            "; this is a defect of Tegula, please report it with the program that shows it") {}

}  // namespace tegula
