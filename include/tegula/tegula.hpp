// Everything: the language, the runtime, the operators and the files.
#pragma once
#include "tegula/explain.hpp"
#include "tegula/files.hpp"
#include "tegula/lang.hpp"
#include "tegula/ops.hpp"
#include "tegula/runtime.hpp"
#include "tegula/tensor.hpp"
