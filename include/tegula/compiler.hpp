// Which compilers compile Tegula's headers. Others are told so in one line, and stop there.
#pragma once
#if __cplusplus >= 202002L
#include <version>
#endif
#ifndef __cpp_lib_source_location
#error "Tegula needs C++20 with std::source_location: g++ 11 or newer, or clang++ 16 or newer, and -std=c++20"
#include "tegula/stops-after-the-error-above"
#endif
