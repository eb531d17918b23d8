// The difference between two texts, line by line.
#pragma once
#include <string>

namespace tegula::shown {

// Lines that went (-) and came (+) with two lines around each; `…` stands for what is left out. Empty if
// nothing changed.
std::string diff(const std::string& before, const std::string& after);

}  // namespace tegula::shown
