// The parser of `tegula`'s command line.
#include "run_tool.hpp"

#include <algorithm>

#include "commands.hpp"
#include "names.hpp"
#include "tegula/error.hpp"
#include "tegula/version.hpp"

namespace tegula::tool {
namespace {

// A first word that is no command; the parser itself would only say that it needs one.
void check_command(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (auto* command : app.get_subcommands([](auto*) { return true; })) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), word) == names.end())
    throw ArgumentError(unknown_name("command", word, names));
}

}  // namespace

int run_tool(int argc, char** argv) {
  CLI::App app{"Tegula: tile programs and sparse attention."};
  app.set_version_flag("--version", std::string("tegula ") + version());
  app.require_subcommand(1);
  app.footer(
      "Exit status: 0 done; 1 failed, or found something wrong; 2 called wrongly (options, files, shapes).");
  int exit_code = 0;
  add_demo(app, exit_code);
  add_list(app);
  add_run(app);
  add_check(app, exit_code);
  add_bench(app, exit_code);
  add_show(app);
  add_build(app);
  add_analyze(app);
  add_tune(app);
  add_cache(app);
  add_env(app);
  if (argc > 1 && argv[1][0] != '-') check_command(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? 0 : 2; }
  return exit_code;
}

}  // namespace tegula::tool
