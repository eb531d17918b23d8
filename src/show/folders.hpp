// Files of a folder that a user names.
#pragma once
#include <string>

namespace tegula::shown {

// Makes the folder unless there is one; an ArgumentError names the option and says why that cannot be.
void prepare_folder(const std::string& option, const std::string& folder);
// The path of the file, which appears complete or not at all.
std::string write_complete(const std::string& folder, const std::string& name, const std::string& text);

}  // namespace tegula::shown
