// The operators.
#pragma once
#include "tegula/ops/attention.hpp"
#include "tegula/ops/attention_backward.hpp"
#include "tegula/ops/attention_with_kv_cache.hpp"
#include "tegula/ops/block_sparse_attention.hpp"
#include "tegula/ops/block_sparse_attention_backward.hpp"
#include "tegula/ops/gemm.hpp"
#include "tegula/ops/merge_attention.hpp"
#include "tegula/ops/mla_decode.hpp"
#include "tegula/ops/nsa_selected_attention.hpp"
#include "tegula/ops/nsa_selected_attention_backward.hpp"
#include "tegula/ops/rms_norm.hpp"
#include "tegula/ops/selection.hpp"
