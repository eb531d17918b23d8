// `tegula`: runs, checks, measures and shows the operators.
#pragma once

namespace tegula::tool {

// Does what the command line says; the status of the process. Errors are thrown.
int run_tool(int argc, char** argv);

}  // namespace tegula::tool
