// Everything a printed CPU kernel uses.
#pragma once
#include "atomics.hpp"
#include "bytes.hpp"
#include "call.hpp"
#include "convert.hpp"
#include "dots.hpp"
#include "gemm.hpp"
#include "gemm_bf16.hpp"
#include "kept.hpp"
#include "math.hpp"
#include "memory.hpp"
#include "narrowed.hpp"
#include "pack.hpp"
#include "panels.hpp"
#include "scan.hpp"
#include "tile.hpp"
#include "vector.hpp"
#include "wide.hpp"
#if defined(TEGULA_CPU_LIBRARY) || defined(TEGULA_CPU_LINKED)
#include "library.hpp"
#endif
