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
  target_compile_options(tegula_test_headers PRIVATE ${tegula_test_options} -fPIE)
  target_link_libraries(tegula_test_headers PRIVATE tegula_core GTest::gtest)
  target_precompile_headers(tegula_test_headers PRIVATE <algorithm> <cmath> <filesystem> <fstream> <functional> <map>
                            <memory> <optional> <random> <set> <string> <thread> <unordered_map> <variant> <vector>
                            <fmt/format.h> <fmt/ranges.h> <gtest/gtest.h>)
endif()

function(tegula_test_settings name)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${tegula_test_options})
  target_link_libraries(${name} PRIVATE tegula_core GTest::gtest GTest::gtest_main nlohmann_json::nlohmann_json)
  if(TEGULA_PRECOMPILE)
    target_precompile_headers(${name} REUSE_FROM tegula_test_headers)
  endif()
endfunction()

# The tables of the operators, and CUDA text that runs on the CPU, compile hundreds of kernels that run once, so their
# compiler does not optimise, nor collect what it could free; so do most random programs. The others, the codegen tests and
# the built-in kernels are compiled as for users.
set(quick_compiler ${PROJECT_BINARY_DIR}/quick-c++)
set(quick_flags)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(quick_flags "--param=ggc-min-heapsize=1048576 --param=ggc-min-expand=300")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/quick-c++.in ${quick_compiler} @ONLY
               FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# tegula_test(NAME source... [QUICK filter]): the tests that the filter of GoogleTest leaves get the quick compiler.
# They take longest, so they come first: none is left that runs alone at the end.
function(tegula_test name)
  cmake_parse_arguments(of "" "QUICK" "" ${ARGN})
  add_executable(${name} ${of_UNPARSED_ARGUMENTS})
  tegula_test_settings(${name})
  set(common NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 120)
  if(of_QUICK)
    gtest_discover_tests(${name} TEST_FILTER "${of_QUICK}" ${common} COST 10
                         ENVIRONMENT TEGULA_CXX=${quick_compiler})
    gtest_discover_tests(${name} TEST_FILTER "-${of_QUICK}" ${common})
  else()
    gtest_discover_tests(${name} ${common})
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

# Compiled together, as folders of the library are (see united.cmake).
set(united_tests codegen image ir runtime schedule)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/codegen/cuda/cuda_test.cpp
                            ${PROJECT_SOURCE_DIR}/src/codegen/cuda/notes_test.cpp
                            ${PROJECT_SOURCE_DIR}/src/codegen/cuda/roles_test.cpp
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

set(more_of_ops QUICK "Table/*:Rows/*:Nsa*.*:BlockScores.*:TopkBlocks.*:Gemm.*:Registry.Examples*")
set(more_of_codegen QUICK "Cuda*:*.*InCudaText")
foreach(folder ${test_folders})
  tegula_test(test_${folder} ${tests_of_${folder}} ${more_of_${folder}})
  if(TEGULA_PRECOMPILE AND folder IN_LIST united_tests)
    set_target_properties(test_${folder} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 7)
  endif()
endforeach()
if(TEGULA_TOOL)
  target_link_libraries(test_image PRIVATE tegula_image PNG::PNG)
endif()
if(TEGULA_SANITIZED_TESTS)
  include(${CMAKE_CURRENT_LIST_DIR}/sanitized.cmake)
endif()
