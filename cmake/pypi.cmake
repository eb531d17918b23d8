# For builds of the Python package: headers that the distribution lacks come from packages of PyPI, which pyproject.toml
# asks for: fmt with a shared library (cmeel-fmt), JSON for Modern C++ (nlohmann-json), and xxHash from the source of the
# package of that name, whose wheels have no headers.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter)

# The first folder of Python's path that has the file, and that file.
function(find_in_python_path result file)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import pathlib, sys
print(next((p for p in map(pathlib.Path, sys.path) if (p / sys.argv[1]).exists()), ''))" ${file}
                  OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${result} "${folder}" PARENT_SCOPE)
endfunction()

if(NOT TARGET fmt::fmt)
  find_package(fmt QUIET)
  if(NOT fmt_FOUND)
    find_in_python_path(site cmeel.prefix/include/fmt/format.h)
    if(site)
      unset(fmt_DIR CACHE)
      find_package(fmt QUIET PATHS ${site}/cmeel.prefix NO_DEFAULT_PATH)
    endif()
  endif()
  if(TARGET fmt::fmt)
    set_target_properties(fmt::fmt PROPERTIES IMPORTED_GLOBAL ON)
  endif()
endif()

find_package(nlohmann_json QUIET)
if(NOT TARGET nlohmann_json::nlohmann_json)
  find_in_python_path(site nlohmann_json/include/nlohmann/json.hpp)
  if(site)
    add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED GLOBAL)
    target_include_directories(nlohmann_json::nlohmann_json INTERFACE ${site}/nlohmann_json/include)
  endif()
endif()

find_path(TEGULA_XXHASH xxhash.h HINTS ENV CPATH)
if(NOT TEGULA_XXHASH)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/xxhash)
  execute_process(COMMAND ${Python_EXECUTABLE} -m pip download --quiet --disable-pip-version-check --no-deps --no-binary xxhash
                          --dest ${source} xxhash
                  ERROR_QUIET OUTPUT_QUIET)
  file(GLOB archive ${source}/xxhash-*.tar.gz)
  if(archive)
    file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${source} PATTERNS "*/deps/xxhash/xxhash.h")
    file(GLOB header ${source}/*/deps/xxhash/xxhash.h)
    get_filename_component(folder ${header} DIRECTORY)
    set(TEGULA_XXHASH ${folder} CACHE PATH "Folder of xxhash.h" FORCE)
  endif()
endif()
