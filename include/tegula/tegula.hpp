// Everything: the language, the runtime, the operators, the files, and what kernels become and cost.
#pragma once
#include "tegula/analyze.hpp"
#include "tegula/build.hpp"
#include "tegula/explain.hpp"
#include "tegula/files.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops.hpp"
#include "tegula/runtime.hpp"
#include "tegula/show.hpp"
#include "tegula/tensor.hpp"
#include "tegula/time.hpp"
#include "tegula/timeline.hpp"
#include "tegula/version.hpp"
