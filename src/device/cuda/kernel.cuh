// All that printed kernels use.
#pragma once
#include "byte_turns.cuh"
#include "mma.cuh"
#include "multiply_add.cuh"
#include "odd_rows.cuh"
#include "scans.cuh"
#include "sparse.cuh"
#include "timeline.cuh"
