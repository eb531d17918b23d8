// The compilers that Tegula's headers require (others stop with one line that says so), and what the shared
// library exports.
#pragma once
#if __cplusplus >= 202002L
#include <version>
#endif
#ifndef __cpp_lib_source_location
#error "Tegula needs C++20 with std::source_location: g++ 11 or newer, or clang++ 16 or newer, and -std=c++20"
#include "tegula/stops-after-the-error-above"
#endif

// The shared library exports what public headers declare between these two. A program that links the archive
// leaves TEGULA_SHARED undefined: its own flags decide whether its copies of inline functions are visible.
#ifdef TEGULA_SHARED
#define TEGULA_API_BEGIN _Pragma("GCC visibility push(default)")
#define TEGULA_API_END _Pragma("GCC visibility pop")
#else
#define TEGULA_API_BEGIN
#define TEGULA_API_END
#endif
