// `tegula`: runs, checks and shows the operators.
#include <cstdio>

#include "commands.hpp"
#include "tegula/error.hpp"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"Tegula: tile programs and sparse attention."};
  app.set_version_flag("--version", "tegula " TEGULA_VERSION);
  app.require_subcommand(1);
  int exit_code = 0;
  tegula::tool::add_list(app);
  tegula::tool::add_run(app);
  tegula::tool::add_check(app, exit_code);
  tegula::tool::add_show(app);
  tegula::tool::add_cache(app);
  tegula::tool::add_env(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : 2; }
  return exit_code;
}

}  // namespace

// Exit status: 0 done, 1 failed or found wrong, 2 called wrongly.
int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tegula::ArgumentError& error) {
    std::fprintf(stderr, "tegula: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tegula: %s\n", error.what());
    return 1;
  }
}
