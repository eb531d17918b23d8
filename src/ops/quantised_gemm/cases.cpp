#include "ops/quantised_gemm/cases.hpp"

namespace tegula::ops {

std::vector<Example> quantised_examples() {
  return {{"int4", "...=37 k=200 n=70 groups=2"},
          {"uint4_packed", "...=3,5 k=256 n=72 groups=4 group=64 format=uint4 packed zeros:f16 bias"},
          {"int8", "...=20 k=130 n=40 groups=1 group=0 format=int8 b:i8 scales:f32 out_dtype=f32"},
          {"mxfp4", "...=70 k=128 n=64 groups=4 format=mxfp4 scales:u8 packed"},
          {"fp4", "...=20 k=192 n=40 groups=3 group=64 format=fp4 packed bias"},
          {"nvfp4", "...=9 k=64 n=40 groups=4 format=nvfp4 scales:e4m3 tensor_scale"},
          {"odd_groups", "...=20 k=256 n=69 groups=4 group=64 f16 packed zeros:f16"},
          {"odd_columns", "...=150 k=128 n=71 groups=1 group=0 f16"},
          {"ternary", "...=20 k=320 n=72 groups=1 group=0 format=ternary scales:f32 bias"},
          {"ternary_i8",
           "...=37 k=320 n=72 groups=1 group=0 i8 b:u8 format=ternary scales:f32 row_scale bias:f32"},
          {"mxfp4_e4m3",
           "...=2,9 k=128 n=40 groups=4 e4m3 format=mxfp4 scales:u8 packed row_scale bias:f32 "
           "out_dtype=f32"},
          {"vector", "...=1 k=4672 n=21 groups=73 group=64 packed zeros:f16"},
          {"vector_uint4", "...=1 k=512 n=19 groups=4 format=uint4 packed bias"},
          {"vector_mxfp4", "...=1 k=256 n=18 groups=8 format=mxfp4 scales:u8 packed bias"},
          {"vector_fp4", "...=1 k=256 n=18 groups=4 group=64 format=fp4 scales:f32"},
          {"vector_int8", "...=1 k=260 n=19 groups=1 group=0 format=int8 b:i8 scales:f32"},
          {"vector_ternary_i8",
           "...=1 k=320 n=20 groups=1 group=0 i8 b:u8 format=ternary scales:f32 row_scale bias:f32"},
          {"decoded_mxfp4_e4m3",
           "...=512 k=96 n=40 groups=3 e4m3 format=mxfp4 scales:u8 row_scale bias:f32 out_dtype=f32"},
          {"decoded_ternary_e4m3",
           "...=520 k=96 n=40 groups=1 group=0 e4m3 b:u8 format=ternary scales:f32 row_scale"},
          {"decoded_int8", "...=516 k=70 n=24 groups=1 group=0 format=int8 b:i8 scales:f32"},
          {"decoded_nvfp4", "...=2050 k=64 n=24 groups=4 format=nvfp4 scales:e4m3 packed tensor_scale"},
          {"parts", "...=17 k=1024 n=72 groups=8 packed splits=3 out_dtype=f32"}};
}

std::vector<Example> quantised_measured() {
  return {
      {"int4_1", "...=1 k=8192 n=8192 groups=64 f16 packed"},
      {"int4_16", "...=16 k=8192 n=8192 groups=64 f16 packed"},
      {"int4_64", "...=64 k=8192 n=8192 groups=64 f16 packed"},
      {"int4_4096", "...=4096 k=8192 n=8192 groups=64 f16 packed"},
      {"mxfp4_16", "...=16 k=8192 n=8192 groups=256 format=mxfp4 scales:u8 packed"},
      {"mxfp4_4096", "...=4096 k=8192 n=8192 groups=256 format=mxfp4 scales:u8 packed"},
      {"nvfp4_4096", "...=4096 k=8192 n=8192 groups=512 format=nvfp4 scales:e4m3 packed"},
      {"ternary_1", "...=1 k=8192 n=8192 groups=1 group=0 format=ternary scales:f32"},
      {"mxfp4_4096_e4m3", "...=4096 k=8192 n=8192 groups=256 e4m3 format=mxfp4 scales:u8 packed row_scale"},
      {"ternary_1_i8", "...=1 k=8192 n=8192 groups=1 group=0 i8 b:u8 format=ternary scales:f32 row_scale"},
      {"int8_1", "...=1 k=8192 n=8192 groups=1 group=0 format=int8 b:i8"},
      {"int8_4096", "...=4096 k=8192 n=8192 groups=1 group=0 format=int8 b:i8"}};
}

std::vector<CallMap> quantised_maps() {
  const std::string base = "...=16 k=4096 n=8192 f16 packed";
  const std::vector<std::string> formats{"groups=32",
                                         "groups=32 bf16 format=uint4 zeros:bf16",
                                         "groups=128 format=mxfp4 scales:u8",
                                         "groups=256 format=nvfp4 scales:e4m3",
                                         "groups=1 group=0 format=int8 b:i8 packed=false",
                                         "groups=1 group=0 format=ternary scales:f32 packed=false",
                                         "groups=128 e4m3 format=mxfp4 scales:u8 row_scale",
                                         "groups=1 group=0 i8 b:u8 format=ternary scales:f32 row_scale "
                                         "packed=false"};
  return {{"rows",
           base,
           {"...=1", "...=2", "...=4", "...=8", "...=16", "...=24", "...=32", "...=48", "...=64", "...=96",
            "...=128", "...=256", "...=512", "...=1024", "...=4096"},
           formats},
          {"groups",
           base,
           {"group=0 groups=1", "group=32 groups=128", "group=64 groups=64", "group=128 groups=32",
            "group=256 groups=16", "group=16 groups=256"},
           {"", "...=1", "...=64", "...=256", "...=4096", "packed=false", "packed=false ...=1",
            "packed=false ...=256"}},
          {"shapes",
           base + " groups=32",
           {"n=512", "n=1024", "n=4096", "n=4097", "n=8192", "n=14336"},
           {"", "...=1", "...=64", "...=256", "k=2048 groups=16", "k=14336 groups=112",
            "k=14336 groups=112 ...=1", "packed=false k=4064 groups=32"}}};
}

}  // namespace tegula::ops
