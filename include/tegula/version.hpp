// The version of these headers, and of the library that is linked. A version 0.y.z may change the interface
// with y, from 1.0.0 on a version does so with its first number.
#pragma once
#include "tegula/compiler.hpp"

#define TEGULA_VERSION_MAJOR 0
#define TEGULA_VERSION_MINOR 1
#define TEGULA_VERSION_PATCH 0
#define TEGULA_VERSION_TEXT "0.1.0"
// For comparisons by the preprocessor: 0.1.0 has 100, 1.2.3 has 10203.
#define TEGULA_VERSION (TEGULA_VERSION_MAJOR * 10000 + TEGULA_VERSION_MINOR * 100 + TEGULA_VERSION_PATCH)

TEGULA_API_BEGIN
namespace tegula {

// TEGULA_VERSION_TEXT of the library, which may be newer than the caller's headers.
const char* version() noexcept;

}  // namespace tegula
TEGULA_API_END
