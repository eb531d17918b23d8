# What is installed runs with the C++ library of GCC 11, that of machines with glibc 2.34, though a later compiler links it: the
# one function that GCC 12's has under a newer version, waiting for a condition, is taken from its archive. (All of the archive
# would bring along functions that need a newer C library.)
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE archive OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND ${CMAKE_AR} x ${archive} condition_variable.o WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
                RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "TEGULA_PORTABLE needs the archive of the compiler's C++ library with condition_variable.o; looked in ${archive}")
endif()
set(tegula_portable ${CMAKE_CURRENT_BINARY_DIR}/condition_variable.o)
