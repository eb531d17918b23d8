// `tegula`: errors become messages and statuses of the process.
#include <cstdio>
#include <string>
#include <string_view>

#include "run_tool.hpp"
#include "tegula/error.hpp"

namespace {

int fail(int status, std::string text) {
  // What is a target in C++ is an option here.
  constexpr std::string_view of_cpp = "Target::cpu()";
  if (const std::size_t at = text.find(of_cpp); at != std::string::npos)
    text.replace(at, of_cpp.size(), "--target cpu");
  std::fprintf(stderr, "tegula: %s\n", text.c_str());
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int status = tegula::tool::run_tool(argc, argv);
    if (std::fflush(stdout) != 0) return fail(1, "the standard output cannot be written");
    return status;
  } catch (const tegula::ArgumentError& error) {
    return fail(2, error.what());
  } catch (const std::exception& error) { return fail(1, error.what()); }
}
