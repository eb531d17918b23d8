// The commands of the tool. Each adds itself to the parser and runs when it was named.
#pragma once
#include <CLI/CLI.hpp>

namespace tegula::tool {

void add_list(CLI::App& app);
void add_run(CLI::App& app);
void add_check(CLI::App& app, int& exit_code);
void add_demo(CLI::App& app, int& exit_code);
void add_show(CLI::App& app);
void add_build(CLI::App& app);
void add_analyze(CLI::App& app);
void add_tune(CLI::App& app);
void add_bench(CLI::App& app, int& exit_code);
void add_cache(CLI::App& app);
void add_env(CLI::App& app);

}  // namespace tegula::tool
