# The libraries that the library needs. Those that are missing are named all at once, with the packages that bring them.
set(missing_packages "")

macro(need library package found)
  if(NOT ${found})
    string(APPEND missing_libraries "${separator}${library}")
    string(APPEND missing_packages " ${package}")
    set(separator ", ")
  endif()
endmacro()

find_package(Threads REQUIRED)
find_package(fmt QUIET)
need("fmt" libfmt-dev fmt_FOUND)
find_package(nlohmann_json QUIET)
need("JSON for Modern C++" nlohmann-json3-dev nlohmann_json_FOUND)
find_path(TEGULA_XXHASH xxhash.h HINTS ENV CPATH)  # it comes without a description for CMake
need("xxHash" libxxhash-dev TEGULA_XXHASH)

if(missing_packages)
  message(FATAL_ERROR "Headers are missing of: ${missing_libraries}. On Debian and Ubuntu, as root:\n"
                      "  apt-get install${missing_packages}\n"
                      "Elsewhere, install them and name their prefix in CMAKE_PREFIX_PATH.")
endif()
