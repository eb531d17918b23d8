// The operators.
#pragma once
#include "tegula/ops/attention.hpp"
#include "tegula/ops/attention_backward.hpp"
#include "tegula/ops/block_sparse_attention.hpp"
#include "tegula/ops/block_sparse_attention_backward.hpp"
#include "tegula/ops/causal_conv1d.hpp"
#include "tegula/ops/gated_delta_rule.hpp"
#include "tegula/ops/gemm.hpp"
#include "tegula/ops/linear_attention.hpp"
#include "tegula/ops/nsa_selected_attention.hpp"
#include "tegula/ops/nsa_selected_attention_backward.hpp"
#include "tegula/ops/rms_norm.hpp"
#include "tegula/ops/selection.hpp"
