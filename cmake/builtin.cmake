# builtin_kernels(TARGET OBJECTS): a library of objects, TARGET, of the kernels that a program made of OBJECTS prints,
# compiled with the flags of printed kernels for every instruction set, or for this machine's (TEGULA_BUILTIN is MACHINE):
# then the sources of other sets have no kernels.
include(${CMAKE_CURRENT_LIST_DIR}/cpu_sets.cmake)
set(builtin_parts 3)  # sources of each set, which compile side by side

function(builtin_kernels target objects)
  set(folder ${PROJECT_BINARY_DIR}/builtin)
  file(MAKE_DIRECTORY ${folder})
  set(none ${PROJECT_SOURCE_DIR}/src/builtin/none.cpp)
  if(NOT TEGULA_BUILTIN)
    add_library(${target} OBJECT ${none})
    hide_symbols(${target})
    target_include_directories(${target} PRIVATE src include)
    target_compile_features(${target} PRIVATE cxx_std_20)
    return()
  endif()
  add_executable(tegula_pregenerate ${PROJECT_SOURCE_DIR}/src/builtin/generate.cpp ${none} $<TARGET_OBJECTS:${objects}>)
  target_include_directories(tegula_pregenerate PRIVATE src include)
  target_compile_options(tegula_pregenerate PRIVATE ${tegula_warnings})
  target_link_libraries(tegula_pregenerate PRIVATE fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
  set(sources ${folder}/table.cpp)
  set(sets every)
  if(TEGULA_BUILTIN STREQUAL MACHINE)
    set(sets machine)
  endif()
  math(EXPR last "${builtin_parts} - 1")
  foreach(set portable avx2 avx512)
    foreach(part RANGE ${last})
      set(source ${folder}/${set}_${part}.cpp)
      list(APPEND sources ${source})
      set_source_files_properties(
        ${source} PROPERTIES COMPILE_OPTIONS "-O2;-w;${TEGULA_CPU_FLAGS};${TEGULA_CPU_FLAGS_${set}}"
                             INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/src/device/cpu)
    endforeach()
  endforeach()
  add_custom_command(
    OUTPUT ${sources}
    COMMAND tegula_pregenerate ${folder} ${builtin_parts} ${sets}
    DEPENDS tegula_pregenerate
    COMMENT "Printing built-in kernels"
    VERBATIM)
  add_library(${target} OBJECT ${sources})
  hide_symbols(${target})
  target_include_directories(${target} PRIVATE src include)
  target_compile_features(${target} PRIVATE cxx_std_20)
endfunction()
