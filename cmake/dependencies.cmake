# The libraries that the library needs. Those that are missing are named all at once, with the packages that bring them.
set(missing_packages "")

macro(need library package)
  if(NOT (${ARGN}))
    string(APPEND missing_libraries "${separator}${library}")
    string(APPEND missing_packages " ${package}")
    set(separator ", ")
  endif()
endmacro()

# Whoever links the library links these, in whatever folder of a project; another project may have brought its own.
macro(find_for_users target)
  if(NOT TARGET ${target})
    find_package(${ARGN})
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES IMPORTED_GLOBAL ON)
    endif()
  endif()
endmacro()

find_for_users(Threads::Threads Threads REQUIRED)
find_for_users(fmt::fmt fmt QUIET)
need("fmt" libfmt-dev TARGET fmt::fmt)
if(NOT TARGET nlohmann_json::nlohmann_json)
  find_package(nlohmann_json QUIET)
endif()
need("JSON for Modern C++" nlohmann-json3-dev TARGET nlohmann_json::nlohmann_json)
find_path(TEGULA_XXHASH xxhash.h HINTS ENV CPATH)  # it comes without a description for CMake
need("xxHash" libxxhash-dev TEGULA_XXHASH)

if(missing_packages)
  message(FATAL_ERROR "Headers are missing of: ${missing_libraries}. On Debian and Ubuntu, as root:\n"
                      "  apt-get install${missing_packages}\n"
                      "Elsewhere, install them and name their prefix in CMAKE_PREFIX_PATH.")
endif()
