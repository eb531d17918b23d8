# quick_linker(TARGET): TARGET, a program that is not installed, is linked by the quickest linker that the compiler finds.
# Tests and lessons are forty programs that hold the library each, for which GNU's takes two seconds of a processor, gold (which
# comes with it) one and LLVM's a half.
include(CheckLinkerFlag)
if(TEGULA_PRECOMPILE AND NOT DEFINED TEGULA_QUICK_LINKER)
  set(TEGULA_QUICK_LINKER "" CACHE INTERNAL "The option that chooses the linker of tests and lessons")
  foreach(linker mold lld gold)
    check_linker_flag(CXX -fuse-ld=${linker} tegula_links_by_${linker})
    if(tegula_links_by_${linker})
      set_property(CACHE TEGULA_QUICK_LINKER PROPERTY VALUE -fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()

function(quick_linker target)
  target_link_options(${target} PRIVATE ${TEGULA_QUICK_LINKER})
endfunction()
