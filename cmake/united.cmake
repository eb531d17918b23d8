# Sources that are compiled together: what they include and instantiate, which is most of their compilers' time, is
# then compiled once. Their names in anonymous namespaces must differ. A folder that the sanitizers instrument is
# instrumented as a whole, or its sources stay apart.
# Both the language and calls have a `Tensor`: headers that name that of calls are included before tile programs are, or are
# among the precompiled ones. Overloads whose parameters convert to one another need names of their own, too.
file(GLOB united_families RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/ops/*)
set(united_folders ahead analyze codegen codegen/cuda cuda emulation interp ir lang layout measure ${united_families} passes/cuda
                   reduce runtime/call runtime/data runtime/execution runtime/files runtime/machine schedule show)
set(united_not "_test\\.cpp$|/interp/interpreter\\.cpp$|/ops/pieces/(heads|matrices|plan|plan_choices)\\.cpp$")

# unite(LIST FOLDER): replaces the sources of these folders in LIST by one for each, in FOLDER.
function(unite list folder)
  set(result ${${list}})
  foreach(of ${united_folders})
    set(files ${result})
    list(FILTER files INCLUDE REGEX "^${PROJECT_SOURCE_DIR}/src/${of}/[^/]*\\.cpp$")
    list(FILTER files EXCLUDE REGEX "${united_not}")
    list(LENGTH files count)
    if(count LESS 2)
      continue()
    endif()
    list(REMOVE_ITEM result ${files})
    # A name of the language and one of the library's meet where the language's are all visible: those sources are last.
    foreach(file ${files})
      file(STRINGS ${file} directive REGEX "^using namespace lang;" LIMIT_COUNT 1)
      if(directive)
        list(REMOVE_ITEM files ${file})
        list(APPEND files ${file})
      endif()
    endforeach()
    list(TRANSFORM files REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE text)
    string(CONCAT text ${text})
    set(united ${PROJECT_BINARY_DIR}/${folder}/src/${of}/united.cpp)
    file(GENERATE OUTPUT ${united} CONTENT "${text}")
    list(APPEND result ${united})
  endforeach()
  set(${list} ${result} PARENT_SCOPE)
endfunction()
