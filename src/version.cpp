#include "tegula/version.hpp"

namespace tegula {

const char* version() noexcept { return TEGULA_VERSION_TEXT; }

}  // namespace tegula
