# Tests under the sanitizers. Only the sources that are named are compiled once more, with instrumentation; the rest
# of the library, and the tests themselves, are those of the other programs.

# tegula_sanitized_test(NAME SHARDS FLAGS flag... SOURCES pattern... TESTS program-or-pattern... [FILTER filter]): the
# tests of whole programs, or of files that are compiled with the same flags; those that the filter of GoogleTest leaves.
function(tegula_sanitized_test name shards)
  cmake_parse_arguments(of "" "FILTER" "FLAGS;SOURCES;TESTS" ${ARGN})
  set(files)
  foreach(pattern ${of_SOURCES})
    file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${pattern})
    list(FILTER sources EXCLUDE REGEX "_test\\.cpp$")
    list(APPEND files ${sources})
  endforeach()
  foreach(test ${of_TESTS})
    if(TARGET ${test})
      list(APPEND files $<TARGET_OBJECTS:${test}>)
    else()
      file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${test})
      list(APPEND files ${tests})
      if(test MATCHES "^runtime/")
        set_source_files_properties(${tests} PROPERTIES UNITY_GROUP runtime)
      endif()
    endif()
  endforeach()
  if(TEGULA_PRECOMPILE)
    unite(files united/${name})
  endif()
  add_executable(${name} ${files})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${TEGULA_PRECOMPILE} UNITY_BUILD_MODE GROUP)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE tegula_core GTest::gtest GTest::gtest_main nlohmann_json::nlohmann_json)
  # Instrumented code would be optimised for longer than it runs.
  target_compile_options(${name} PRIVATE ${tegula_warnings} ${of_FLAGS} -fno-sanitize-recover=all -O0 -g1)
  target_link_options(${name} PRIVATE ${of_FLAGS})
  if(TEGULA_PRECOMPILE)
    target_precompile_headers(${name} PRIVATE <algorithm> <functional> <map> <memory> <set> <string> <unordered_map>
                              <variant> <vector> <fmt/format.h> <fmt/ranges.h>)
  endif()
  set(filter "*")
  if(of_FILTER)
    set(filter "${of_FILTER}")
  endif()
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    add_test(NAME Sanitized.${name}.${shard} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(Sanitized.${name}.${shard} PROPERTIES TIMEOUT 300 COST 100
                         ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard};GTEST_FILTER=${filter}")
  endforeach()
endfunction()

# The parsers of files, the front end and what proves programs meet hostile input. A null pointer needs no check of
# its own: the address sanitizer reports its use. Random expressions that reach every rule are enough of them here.
tegula_sanitized_test(test_address 4
                      FLAGS -fsanitize=address,undefined,float-cast-overflow -fno-sanitize=null,vptr,object-size
                      SOURCES dtype.cpp ir/*.cpp lang/*.cpp runtime/call/*.cpp runtime/data/*.cpp runtime/files/*.cpp
                      TESTS test_runtime test_ir test_lang
                      FILTER -Simplify.RandomExpressionsKeepTheirValues)
# What several threads enter: the pool, the cache of kernels, the executor.
tegula_sanitized_test(test_thread 2
                      FLAGS -fsanitize=thread
                      SOURCES runtime/execution/*.cpp runtime/machine/*.cpp
                      TESTS runtime/machine/thread_pool_test.cpp runtime/execution/kernel_cache_test.cpp
                            runtime/execution/host_compiler_test.cpp runtime/execution/function_test.cpp
                            codegen/calls_test.cpp)
