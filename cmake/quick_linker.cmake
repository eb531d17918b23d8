# quick_linker(TARGET): TARGET, a program that is not installed, is linked by the quickest linker that the compiler finds.
# Tests and lessons are forty programs that hold the library each. The largest takes GNU's linker two seconds of a processor,
# gold, which comes with it, one, and LLVM's half a second.
include(CheckLinkerFlag)
set(quick_linker_option)
if(TEGULA_PRECOMPILE)
  foreach(linker mold lld gold)
    check_linker_flag(CXX -fuse-ld=${linker} tegula_links_by_${linker})
    if(tegula_links_by_${linker})
      set(quick_linker_option -fuse-ld=${linker})
      break()
    endif()
  endforeach()
endif()

function(quick_linker target)
  target_link_options(${target} PRIVATE ${quick_linker_option})
endfunction()
