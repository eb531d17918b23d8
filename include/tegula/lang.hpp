// The tile language. A program is built by calling these functions inside kernel(name, body).
#pragma once
#include "tegula/lang/control.hpp"
#include "tegula/lang/kernel.hpp"
#include "tegula/lang/packed.hpp"
#include "tegula/lang/place.hpp"
#include "tegula/lang/sparse.hpp"
#include "tegula/lang/tile_ops.hpp"
#include "tegula/lang/value.hpp"
