# One test program per folder of src/: all its *_test.cpp files.
find_package(GTest REQUIRED)
include(GoogleTest)
include(${CMAKE_CURRENT_LIST_DIR}/cpu_sets.cmake)

# Tests take longer to compile than to run: what they call is in the library, which is optimised.
set(tegula_test_options ${tegula_warnings} $<$<CONFIG:Release>:-O0>)

# All test programs share one precompiled header, which is compiled as their sources are.
if(TEGULA_PRECOMPILE)
  add_library(tegula_test_headers OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/headers.cpp)
  set_target_properties(tegula_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_include_directories(tegula_test_headers PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(tegula_test_headers PRIVATE ${tegula_test_options} -fPIE)
  target_link_libraries(tegula_test_headers PRIVATE tegula_core GTest::gtest)
  target_precompile_headers(tegula_test_headers PRIVATE <algorithm> <cmath> <filesystem> <fstream> <functional> <map>
                            <memory> <optional> <random> <set> <string> <thread> <unordered_map> <variant> <vector>
                            <fmt/format.h> <fmt/ranges.h> <gtest/gtest.h> include/tegula/lang.hpp src/ir/ir.hpp)
endif()

# What tests of several folders share is in folders `testing`, and in no library of users.
file(GLOB_RECURSE testing_sources CONFIGURE_DEPENDS src/*.cpp)
list(FILTER testing_sources INCLUDE REGEX "${PROJECT_SOURCE_DIR}/src/.*/testing/")
list(FILTER testing_sources EXCLUDE REGEX "_test\\.cpp$")
add_library(tegula_testing STATIC EXCLUDE_FROM_ALL ${testing_sources})
target_include_directories(tegula_testing PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(tegula_testing PRIVATE ${tegula_test_options})
target_link_libraries(tegula_testing PRIVATE tegula_core)

# Told to the tests that look for built-in kernels of several instruction sets.
set(builtin_of_one_set TEGULA_BUILTIN_OF_ONE_SET=$<STREQUAL:${TEGULA_BUILTIN},MACHINE>)

function(tegula_test_settings name)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${tegula_test_options})
  target_link_libraries(${name} PRIVATE tegula_testing tegula_core GTest::gtest GTest::gtest_main nlohmann_json::nlohmann_json)
  quick_linker(${name})
  if(TEGULA_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM tegula_test_headers)
  endif()
endfunction()

# The tables of the operators, and CUDA text that runs on the CPU, compile hundreds of kernels that run once, so their
# compiler does not optimise, nor collect what it could free; so do most random programs. The others, the codegen tests and
# the built-in kernels are compiled as for users.
set(quick_compiler ${PROJECT_BINARY_DIR}/quick-c++)
set(quick_level -O0)
set(quick_flags)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(quick_flags "--param=ggc-min-heapsize=1048576 --param=ggc-min-expand=300")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/quick-c++.in ${quick_compiler} @ONLY
               FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# Emulated threads of the operators run for longer: what costs the compiler little is optimised.
set(quick_emulating_compiler ${PROJECT_BINARY_DIR}/quick-emulating-c++)
set(quick_level -Og)
configure_file(${CMAKE_CURRENT_LIST_DIR}/quick-c++.in ${quick_emulating_compiler} @ONLY
               FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# Tests that run in `count` processes, since one starts for longer than most of them run. Two orders of blocks and
# iterations show what a third one shows in hundreds of rows. A label names the parts of 48, of which `scripts/test` runs one,
# that a process belongs to: one part where tests take 48 turns, eight where they take six. Each turn has two processes, of
# which one starts at an even and one at an odd test: none has only rows of one value of a loop over two values in a table.
set(parts a b c d e f g h i j k l m n o p q r s t u v w x y z A B C D E F G H I J K L M N O P Q R S T U V)
function(sharded_tests program name filter count turns)
  set(environment ${ARGN} GTEST_FILTER=${filter} GTEST_TOTAL_SHARDS=${count} TEGULA_INTERPRETER_ORDERS=2)
  math(EXPR last "${count} - 1")
  foreach(shard RANGE ${last})
    math(EXPR place "(${shard} + ${shard} / ${turns}) % ${turns}")
    set(label "")
    foreach(part RANGE ${place} 47 ${turns})
      list(GET parts ${part} letter)
      string(APPEND label ${letter})
    endforeach()
    add_test(NAME ${program}.${name}.${shard} COMMAND ${program} --gtest_brief=1)
    set_tests_properties(${program}.${name}.${shard} PROPERTIES TIMEOUT 300 COST 50 LABELS rows.${label}
                         ENVIRONMENT "${environment};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# tegula_test(NAME source... [QUICK filter] [COMPILER path] [SHARDED filter] [SIXTHS filter] [TOGETHER filter]): the tests
# that the filters of GoogleTest leave get the quick compiler, or another. What SHARDED says takes 48 turns, and what SIXTHS
# says of the others six. Tests that make the same thing first, a driver or a library, run together in one process. All these take
# longest, so they come first: none is left that runs alone at the end.
function(tegula_test name)
  cmake_parse_arguments(of "" "QUICK;COMPILER;SHARDED;SIXTHS;TOGETHER" "" COMPILER ${quick_compiler} ${ARGN})
  add_executable(${name} ${of_UNPARSED_ARGUMENTS})
  tegula_test_settings(${name})
  set(common NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120)
  set(apart "")
  if(of_SHARDED)
    sharded_tests(${name} rows ${of_SHARDED} 96 48 TEGULA_CXX=${of_COMPILER})
    list(APPEND apart ${of_SHARDED})
  endif()
  if(of_SIXTHS)
    sharded_tests(${name} sixths "${of_SIXTHS}-${of_SHARDED}" 12 6 TEGULA_CXX=${of_COMPILER})
    list(APPEND apart ${of_SIXTHS})
  endif()
  if(of_TOGETHER)
    sharded_tests(${name} together ${of_TOGETHER} 1 1 TEGULA_CXX=${of_COMPILER})
    list(APPEND apart ${of_TOGETHER})
  endif()
  list(JOIN apart ":" apart)
  if(of_QUICK)
    gtest_discover_tests(${name} TEST_FILTER "${of_QUICK}-${apart}" ${common} COST 10 ENVIRONMENT TEGULA_CXX=${of_COMPILER})
  endif()
  if(NOT of_QUICK STREQUAL "*")
    gtest_discover_tests(${name} TEST_FILTER "-${of_QUICK}:${apart}" ${common})
  endif()
endfunction()

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS src/*_test.cpp)
if(NOT TEGULA_BUILTIN)
  list(FILTER test_sources EXCLUDE REGEX "/src/builtin/")
endif()
if(NOT TEGULA_TOOL)
  list(FILTER test_sources EXCLUDE REGEX "/src/image/")
endif()
set(test_folders)
foreach(source ${test_sources})
  file(RELATIVE_PATH relative ${PROJECT_SOURCE_DIR}/src ${source})
  string(REGEX REPLACE "/.*" "" folder ${relative})
  list(APPEND test_folders ${folder})
  list(APPEND tests_of_${folder} ${source})
endforeach()
list(REMOVE_DUPLICATES test_folders)

# Compiled together, as folders of the library are (see united.cmake): headers and templates are most of the work. So the
# names of a file are in a namespace that is named after it, or differ from those of its folder.
set(united_tests codegen cuda emulation image interp ir layout measure ops passes runtime schedule)

# The quick compiler serves what compiles many kernels for one result; what compares with kernels as users have them, and what
# runs for long, has the user's. 48 turns have, beside the rows of tables, the tests of every type, width and form, which have
# cheaper neighbours; six turns have suites that take longer than a second.
set(more_of_ops SHARDED "Table/*:Rows/*:Operators/Sweep.*:Recurrences.*:LongChunks.*:PackedTiles.*:TopkBlocks.KeepsBlocksOfLongRows:TopkBlocks.IsExact:Topk.Of*:Topk.TellsNumbers*:Decode.LongSequences*:Caches.ListedLatents*:Gemm.TakesTilesWithFewRowsInside:SparseMla.Takes*:SparseMlaDecode.Takes*"
    SIXTHS "Decode.*:Caches.*:Gemm.*:Norms.*:Strided.*:Convolution.*:Scaled*.*:BlockSparse*.*:BlockScores.*:Topk*.*:SharedKeys.*:Quantised*.*:Nsa*.*:SequenceList.*:SparseMla*.*:CastFp8.*:ExtremeScales.*:All/ChunkedSsd.*:Calls/*:Lengths/*"
    QUICK "Block*.*:Selection.*:Attention.*:RmsNorm.*:*Gemm*.*:*Moe.*:All/*")
set(more_of_emulation SHARDED "Table/*:Operators/*:All/*:Length/*:Adds/*:HopperSelection.*:ProductsInFlightText.*:Tf32Products.*"
    SIXTHS "*Text.IsAccepted:StoresInTurn.*:Programs/*:Written/*:Places/*:PersistentTiles.*"
    QUICK "*" COMPILER ${quick_emulating_compiler})
# Without a GPU the tables are skipped, and thousands of processes would say so.
set(more_of_cuda SHARDED "Table/*" SIXTHS "Decode/*" TOGETHER "FakeCuda.*:Drivers/*.*/fake:CudaCalls.*")
set(more_of_codegen SHARDED "Operators/PrintedCuda.*:Cuda*.*CasesAgree*:CudaScans.AgreeInCudaText:Kernels/Roles.*:PrintedCuda.LargeTilesCompile:Products.AreNeverSerialised:Roundings.*:Room.*:Cpu/*portable:Cpu/*avx2:OperandForms.*"
    SIXTHS "Registers.*:RolesText.*:Programs/*" QUICK "Cuda*:*.*InCudaText")
set(more_of_device SIXTHS "Cpu/*")
set(more_of_measure SIXTHS "Tune.*")
# So many that starting the program would take longer than they do.
set(more_of_passes TOGETHER "*")
foreach(folder ${test_folders})
  tegula_test(test_${folder} ${tests_of_${folder}} ${more_of_${folder}})
  if(TEGULA_PRECOMPILE AND folder IN_LIST united_tests)
    set_target_properties(test_${folder} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 27)
  endif()
endforeach()
if(TARGET test_builtin)
  target_compile_definitions(test_builtin PRIVATE ${builtin_of_one_set})
endif()
if(TEGULA_TOOL)
  target_link_libraries(test_image PRIVATE tegula_image PNG::PNG)
endif()
if(TEGULA_SANITIZED_TESTS)
  include(${CMAKE_CURRENT_LIST_DIR}/sanitized.cmake)
endif()
