// cache and env.
#include <fmt/format.h>

#include "commands.hpp"
#include "runtime/execution/kernel_cache.hpp"
#include "runtime/machine/environment.hpp"

namespace tegula::tool {

void add_cache(cli::App& app) {
  auto* command = app.add_subcommand("cache", "Where compiled kernels are cached, and their size");
  auto clear = std::make_shared<bool>(false);
  command->add_flag("--clear", *clear, "Removes them");
  command->callback([clear] {
    if (*clear) kernel_cache().clear();
    fmt::print("{}: {} bytes\n", kernel_cache().directory(), kernel_cache().bytes());
  });
}

void add_env(cli::App& app) {
  app.add_subcommand("env", "The environment variables that Tegula reads")->callback([] {
    fmt::print("{}", describe_variables());
  });
}

}  // namespace tegula::tool
