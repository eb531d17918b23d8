# Sources that hold the CPU device headers for one instruction set get the flags of printed kernels.
# Included where the targets are defined: source properties are visible in one folder only.
set(TEGULA_CPU_FLAGS -std=c++17 -ffp-contract=fast -fno-math-errno -fno-trapping-math -fwrapv -fno-strict-aliasing
                     -Wno-psabi)
set(TEGULA_CPU_FLAGS_portable)
set(TEGULA_CPU_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(TEGULA_CPU_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c)
set(TEGULA_CPU_SOURCES)
foreach(set portable avx2 avx512)
  set(source ${PROJECT_SOURCE_DIR}/src/device/cpu/functions_${set}_test.cpp)
  set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
                              COMPILE_OPTIONS "-O2;${TEGULA_CPU_FLAGS};${TEGULA_CPU_FLAGS_${set}}")
  list(APPEND TEGULA_CPU_SOURCES ${source})
endforeach()
