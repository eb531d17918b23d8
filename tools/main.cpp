// `tegula`: errors become messages and statuses of the process.
#include <cstdio>

#include "run_tool.hpp"
#include "tegula/error.hpp"

namespace {

int fail(int status, const char* what) {
  std::fprintf(stderr, "tegula: %s\n", what);
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
