// The parser of `tegula`'s command line.
#include "run_tool.hpp"

#include "commands.hpp"
#include "tegula/version.hpp"

namespace tegula::tool {
int run_tool(int argc, char** argv) {
  cli::App app("tegula", "Tegula: tile programs and sparse attention.");
  app.version(std::string("tegula ") + version());
  app.footer(
      "Exit status: 0 done; 1 failed, or found something wrong; 2 called wrongly (options, files, shapes).");
  int exit_code = 0;
#ifdef TEGULA_DEMO
  add_demo(app, exit_code);
#endif
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
  app.run(argc, argv);
  return exit_code;
}

}  // namespace tegula::tool
