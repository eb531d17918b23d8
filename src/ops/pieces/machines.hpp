// Measured properties of the machines for which plans are made: one table per machine, which the estimates of
// all plans read.
#pragma once
#include <cstdint>

namespace tegula::ops {

// Times on a CPU are in units of one multiplication and addition of the micro-kernel.
struct CpuProduct {
  double most_bytes = 1.25 * 1024 * 1024, store = 24, block = 100'000;
  double wait = 0.5;  // of a block, for the last thread
};
// The softmax of a score or its gradient, rescaling an element of the sum, beginning a step and a block.
struct CpuAttention {
  double most_bytes = 1.0 * 1024 * 1024, score = 24, rescale = 4, step = 4'000, block = 40'000;
};
// Rows and keys of a tile of block-sparse attention, and blocks of queries that fill one without packing
// heads.
struct CpuBlockSparse {
  int most_rows = 256, usual_keys = 64, filling_block = 128;
};
// Limits of a tile of tokens that select blocks: rows; keys, for blocks up to the usual size and for larger
// ones; entries, because the work of joining lists grows with their square.
struct CpuSelection {
  int most_rows = 256, usual_keys = 64, most_keys = 128, most_entries = 1024;
};
// A CPU with AVX-512 and 1.25 MiB of second-level cache for each processor.
struct CpuTable {
  // Blocks that run at once. Not the processors of this machine: plans are the same on all, and so are
  // results to the last bit and the kernels that are built in. Up to so many processors are kept busy alike;
  // products choose smaller tiles by the threads where sums do not depend on them.
  int processors = 8;
  // Rows and columns of a product that the micro-kernel computes together.
  int kernel_rows = 14, kernel_columns = 32;
  double pack = 16;  // an element of an operand
  CpuProduct product = {};
  CpuAttention attention = {}, attention_gradients = {.score = 40, .rescale = 0, .step = 6'000};
  CpuBlockSparse block_sparse = {};
  CpuSelection selection = {};
  int keys_of_split = 1024;  // of a cache, at least: fewer are not worth a split of their own
};
inline constexpr CpuTable cpu_table;

// A tile of a product with the bytes of its rows along k, and the picoseconds of a processor for one of its
// multiplications: of a busy one, and of one that a block has alone, where loads run far ahead. Small tiles
// load more for each.
struct TileCost {
  int m, n, row_bytes;
  double cost, alone;
};

struct GpuProduct {
  // Microseconds: of any call, of a grid that adds splits, and of each split there.
  double call = 6.1, sum = 1.8, split = 0.23;
  // Microseconds for an element: of a tile that is stored, of a partial sum that is written and read.
  double store = 2e-5, partial = 1.4e-6;
  double bytes_of_microsecond = 3.58e6;  // of memory
  // Without loads that run far ahead, one block with few sums leaves a processor waiting so much longer than
  // two.
  int few_sums = 2048;
  double waiting = 1.6;
  // For products of tf32, which tensor cores read along k: a copy that all blocks read costs as much as
  // turning operands in the blocks of so many rows or columns, and as dividing them for squares of so many.
  int rows_worth_transposing = 64, sides_worth_dividing = 128;
};
// Splits of a loop whose sums are added afterwards: so many blocks for each processor, of so many steps each
// or more, and at most so many splits.
struct GpuSplit {
  int blocks_of_processor = 1, least_steps = 1, most = 32;
};
// Rows from which decoding quantised weights first, to a matrix, pays: of 8 bits, which are converted too; of
// 16 bits with weights of 8 and of fewer bits.
struct GpuDecoding {
  int rows_of_8_bits = 512, rows_of_16_bits_by_8 = 512, rows_of_16_bits = 2048;
};
struct GpuScan {
  // Microseconds: of a chunk of a pass with and without results, of a segment in the pass over segments, and of
  // two grids.
  double step_with_outputs = 1.4, step_alone = 0.8, segment_step = 2.5, grids = 12;
  int filling_blocks = 100;  // with fewer, blocks have fewer columns
};
// In steps of the loop over keys: what a block costs beside its own, and the merge of splits. A score of a
// tile with fewer rows than two or three warp groups have, or with steps of 64 keys, takes so much longer;
// smaller tiles must save so much.
struct GpuAttention {
  double block_steps = 2, merge_steps = 6;
  double fewer_rows = 1.25, fewer_rows_of_three = 1.4, fewer_keys = 1.25, least_gain = 0.95;
  double most_registers = 188;  // of a thread, for sums and scores
};
// A row of a tile of one warp group, or of fewer rows, beside a row of two. Of gradients: products of a
// step in two passes and in one, whose sums in any order cost a tile as many products as 32 steps save. Tiles
// of keys are divided for two waves of two blocks for each processor, into splits of so many steps or more,
// and begin with the longest where there are more of them and their lists are long.
struct GpuBlockSparse {
  double of_one_group = 1.2, of_fewer_rows = 2;
  int joined_groups = 3, most_keys_of_joined_groups = 80;
  int products_of_two_passes = 7, products_of_one_pass = 5, products_of_sums = 64;
  GpuSplit keys = {.blocks_of_processor = 2, .least_steps = 16, .most = 4};
  int many_steps = 64;
};
// Attention over blocks that tokens select. A call divides its pairs, so that blocks of few tokens are left
// to a pass over keys, where its rows see so many keys or more, have no more entries and heads than were
// measured, and a warp group shares a block with fewer rows than cost as much as its keys and values do:
// where that spares it so many blocks. Warp groups join in a tile where tokens have so many heads, processors
// so many tiles, and tiles no more entries; steps of theirs take a share of the time.
struct GpuSelection {
  int fewest_keys_seen = 6144, most_entries = 256, most_pack_divided = 8, fewest_rows = 20, least_gain = 24;
  int most_joined_groups = 3, most_dim_of_three = 128, fewest_pack_joined = 4, tiles_of_processor = 4,
      most_entries_of_tile = 8192;
  double joined_time = 0.8;
  int least_block = 16;      // of gradients in one pass
  double keys_of_step = 16;  // that a step costs beside its own
  int most_listed = 52'000;  // numbers in shared memory, which take four bytes
};
// The share of a wave that is filled enough where blocks are even, and the waves of blocks that a processor
// gets where they are uneven, so that none has much more to do than others; more of them where light blocks
// wait for heavy ones to add in order.
struct GpuGradients {
  double filled = 0.85, even_waves = 3.5, turned_waves = 15;
};
// An H200 SXM, whose processors are those of an H100.
struct GpuTable {
  int processors = 132;

  TileCost of_16_bits[15] = {
      {128, 256, 128, 0.288, 0.288}, {256, 144, 128, 0.330, 0.330}, {128, 192, 128, 0.312, 0.312},
      {128, 112, 128, 0.472, 0.368}, {128, 96, 128, 0.480, 0.334},  {128, 128, 256, 0.387, 0.387},
      {128, 128, 128, 0.387, 0.346}, {64, 128, 256, 0.425, 0.425},  {128, 64, 256, 0.462, 0.462},
      {64, 64, 256, 1.072, 0.509},   {32, 64, 256, 0.869, 0.763},   {64, 32, 256, 0.869, 0.696},
      {16, 64, 256, 1.551, 0.982},   {64, 16, 256, 1.551, 0.982},   {192, 64, 128, 0.420, 0.400}};
  // In place of tiles of 192 rows, where they are measured: a block that has a processor alone gets six or
  // eight of their slots.
  TileCost of_few_rows[2] = {{64, 192, 128, 0.720, 0.395}, {64, 128, 128, 0.430, 0.400}};
  int least_of_few_rows = 65, most_of_few_rows = 320, rows_of_three_groups = 192;
  // Sums of 8-bit products take registers twice: once for what tensor cores add, once for what it is added
  // to. Small tiles wait for their loads, which have half of the bytes.
  TileCost of_8_bits[9] = {
      {128, 192, 128, 0.200, 0.200}, {256, 128, 128, 0.207, 0.207}, {128, 128, 128, 0.230, 0.230},
      {64, 128, 128, 0.333, 0.333},  {64, 64, 128, 0.536, 0.333},   {32, 64, 128, 0.435, 0.382},
      {64, 32, 128, 0.435, 0.382},   {16, 64, 128, 0.775, 0.491},   {64, 16, 128, 0.775, 0.491}};
  // Costs of 8-bit products with sums scaled every 128 along k; the first tile is not for every form.
  TileCost scaled[6] = {{256, 128, 128, 0.230, 0.230}, {128, 128, 128, 0.264, 0.264},
                        {64, 128, 128, 0.264, 0.264},  {64, 64, 128, 0.500, 0.500},
                        {32, 64, 128, 0.500, 0.500},   {16, 64, 128, 0.775, 0.775}};
  // Costs of products of 16-bit rows with quantised weights, which are decoded before they reach the tensor
  // cores.
  TileCost quantised[6] = {{256, 128, 128, 0.416, 0.416}, {128, 128, 128, 0.560, 0.560},
                           {64, 128, 128, 1.000, 1.000},  {64, 64, 256, 1.100, 1.100},
                           {32, 64, 256, 2.000, 2.000},   {16, 64, 256, 3.600, 3.600}};
  TileCost of_32_bits[4] = {
      {128, 64, 128, 6, 8}, {64, 64, 128, 7, 9}, {16, 64, 128, 20, 25}, {64, 16, 128, 20, 25}};
  // Costs for tf32, and for tf32x3, whose split operands take shared memory in addition to the loaded ones.
  TileCost of_tf32[6] = {{128, 256, 128, 0.6, 0.6}, {128, 192, 128, 0.65, 0.65}, {128, 128, 128, 0.8, 0.8},
                         {64, 128, 128, 0.9, 0.9},  {64, 64, 128, 2, 1.5},       {16, 64, 128, 6, 4}};
  TileCost of_tf32_x3[4] = {
      {128, 128, 128, 2.8, 2.8}, {64, 128, 128, 3.2, 3.2}, {64, 64, 128, 4.5, 4.5}, {16, 64, 128, 15, 15}};
  GpuProduct product = {};
  GpuAttention attention = {};
  GpuGradients gradients = {};
  GpuBlockSparse block_sparse = {};
  GpuSelection selection = {};
  GpuScan scan = {};
  GpuDecoding decoding = {};
  // The splits of vectors' products, of convolutions' gradients over pixels, and of lists of latent rows.
  GpuSplit vectors = {.blocks_of_processor = 4}, pixels = {2, 16, 64}, latents = {.least_steps = 2};
};
inline constexpr GpuTable gpu_table;

}  // namespace tegula::ops
