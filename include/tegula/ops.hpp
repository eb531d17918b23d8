// The operators.
#pragma once
#include "tegula/ops/attention.hpp"
#include "tegula/ops/attention_backward.hpp"
#include "tegula/ops/block_sparse_attention.hpp"
#include "tegula/ops/block_sparse_attention_backward.hpp"
#include "tegula/ops/gemm.hpp"
#include "tegula/ops/indexer.hpp"
#include "tegula/ops/nsa_selected_attention.hpp"
#include "tegula/ops/nsa_selected_attention_backward.hpp"
#include "tegula/ops/rms_norm.hpp"
#include "tegula/ops/selection.hpp"
#include "tegula/ops/sparse_mla.hpp"
