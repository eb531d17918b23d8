// The version of these headers, and of the linked library. Before 1.0.0, the second number changes if the
// interface changes; from then on, the first.
#pragma once
#include "tegula/compiler.hpp"

#define TEGULA_VERSION_MAJOR 0
#define TEGULA_VERSION_MINOR 1
#define TEGULA_VERSION_PATCH 0
#define TEGULA_VERSION_TEXT "0.1.0"
// For preprocessor comparisons: 0.1.0 is 100, 1.2.3 is 10203.
#define TEGULA_VERSION (TEGULA_VERSION_MAJOR * 10000 + TEGULA_VERSION_MINOR * 100 + TEGULA_VERSION_PATCH)

TEGULA_API_BEGIN
namespace tegula {

// TEGULA_VERSION_TEXT of the library, which may be newer than the caller's headers.
const char* version() noexcept;

}  // namespace tegula
TEGULA_API_END
