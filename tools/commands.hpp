// The commands of the tool. Each adds itself to the parser and runs if it is named.
#pragma once
#include "tools/cli/cli.hpp"

namespace tegula::tool {

void add_list(cli::App& app);
void add_run(cli::App& app);
void add_check(cli::App& app, int& exit_code);
void add_demo(cli::App& app, int& exit_code);
void add_show(cli::App& app);
void add_build(cli::App& app);
void add_analyze(cli::App& app);
void add_tune(cli::App& app);
void add_bench(cli::App& app, int& exit_code);
void add_cache(cli::App& app);
void add_env(cli::App& app);

}  // namespace tegula::tool
