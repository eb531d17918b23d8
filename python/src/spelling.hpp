// What the compiler says of a kernel, in the words of the language in which the kernel is written.
#pragma once
#include <string>

namespace tegula::python {

// Hints and views as Python spells them, if the text is about a line of Python.
std::string spelled_as_its_source(const std::string& text);

// The same of each line that begins with a place; others may be code.
std::string with_spelled_notes(const std::string& text);

}  // namespace tegula::python
