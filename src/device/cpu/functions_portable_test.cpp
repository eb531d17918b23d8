// The device headers compiled for the baseline of the compiler; see testing/functions.hpp.
#define TABLE functions_portable
#define SUPPORTED (true)
#include "device/cpu/testing/functions.inc"
