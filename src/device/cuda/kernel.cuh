// All that printed kernels use.
#pragma once
#include "mma.cuh"
#include "multiply_add.cuh"
#include "scans.cuh"
#include "timeline.cuh"
