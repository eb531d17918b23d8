// This program again, in a process of its own, with other arguments.
#pragma once
#include <string>
#include <vector>

namespace tegula::bench {

// The number that it prints; `environment` are settings NAME=VALUE.
double number_from_child(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& environment = {});

}  // namespace tegula::bench
