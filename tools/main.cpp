// `tegula`: runs, checks, measures and shows the operators.
#include <algorithm>
#include <cstdio>

#include "commands.hpp"
#include "names.hpp"
#include "tegula/error.hpp"

namespace {

// A first word that is no command; the parser itself would only say that it needs one.
void check_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (auto* command : app.get_subcommands([](auto*) { return true; })) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) == names.end())
    throw tegula::ArgumentError(tegula::tool::unknown_name("command", word, names));
}

int run(int argc, char** argv) {
  CLI::App app{"Tegula: tile programs and sparse attention."};
  app.set_version_flag("--version", "tegula " TEGULA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done; 1 failed, or found something wrong; 2 called wrongly (options, files, shapes).");
  int exit_code = 0;
  tegula::tool::add_demo(app, exit_code);
  tegula::tool::add_list(app);
  tegula::tool::add_run(app);
  tegula::tool::add_check(app, exit_code);
  tegula::tool::add_bench(app);
  tegula::tool::add_show(app);
  tegula::tool::add_cache(app);
  tegula::tool::add_env(app);
  if (argc > 1 && argv[1][0] != '-') check_command(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : 2; }
  return exit_code;
}

int fail(int status, const char* what) {
  std::fprintf(stderr, "tegula: %s\n", what);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int status = run(argc, argv);
    if (std::fflush(stdout) != 0) return fail(1, "the standard output cannot be written");
    return status;
  } catch (const tegula::ArgumentError& error) {
    return fail(2, error.what());
  } catch (const std::exception& error) { return fail(1, error.what()); }
}
