# operator_tables(TARGET FOLDER): the list of all operators, which is made of the functions
# `const OperatorSchema& NAME_schema() {` in FOLDER's sources, in the order of their files; and the operators' functions.
#
# Of a function that a header of include/tegula/ops declares as `Result NAME(const TensorRef& x, …, Struct options = {});`
# the definition follows. Tensors without a default are those that the table needs, in its order, those with one are
# inputs of their names, and other arguments members of the struct. The table may be of a struct that begins with that
# of the options, as of operators that share them, or with those of `options` and of `gradients`; it stands in a header
# of the operator's folder. An operator of which no header declares a function has none.

# The struct of the table NAME in a source's text, where `options` are a STRUCT.
function(operator_struct name text struct result)
  string(FIND "${text}" "${name}_schema() {" begin)
  string(SUBSTRING "${text}" ${begin} -1 body)
  string(FIND "${body}" "\n}" end)
  string(SUBSTRING "${body}" 0 ${end} body)
  set(found ${struct})
  if(body MATCHES "return gradient[a-z_]*<")
    set(found "Gradient<${struct}>")
  elseif(body MATCHES "Schema<([A-Za-z0-9]+)>\\(")
    set(found ${CMAKE_MATCH_1})
    if(found STREQUAL Op AND "${body}${text}" MATCHES "using Op = ([A-Za-z0-9]+);")
      set(found ${CMAKE_MATCH_1})
    endif()
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# The line that includes the header of FOLDER that defines STRUCT.
function(operator_include struct folder result)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.hpp)
  foreach(header ${headers})
    file(STRINGS ${header} found REGEX "^struct ${struct} ")
    if(found)
      file(RELATIVE_PATH header ${PROJECT_SOURCE_DIR}/src ${header})
      set(${result} "#include \"${header}\"\n" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  message(FATAL_ERROR "${folder}: no header defines ${struct}, the struct of an operator; define it in one")
endfunction()

function(operator_function name source result include)
  set(${result} "" PARENT_SCOPE)
  set(${include} "" PARENT_SCOPE)
  file(READ ${source} text)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tegula/ops/*.hpp)
  foreach(header ${headers})
    file(READ ${header} declarations)
    if(NOT declarations MATCHES "\n([A-Za-z0-9]+) ${name}\\((const TensorRef& [^;]* options[^;]*)\\)[;]")
      continue()
    endif()
    set(returned ${CMAKE_MATCH_1})
    string(REGEX REPLACE "[ \n]+" " " arguments "${CMAKE_MATCH_2}")
    file(RELATIVE_PATH included ${PROJECT_SOURCE_DIR}/include ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/include/tegula/ops.hpp found REGEX "\"${included}\"")
    if(NOT found)
      message(FATAL_ERROR "include/tegula/ops.hpp: expected the header that declares ${name}; add #include \"${included}\"")
    endif()
    string(REPLACE ", " ";" parameters "${arguments}")
    string(REPLACE " = {}" "" arguments "${arguments}")
    foreach(parameter ${parameters})
      string(REGEX REPLACE " = {}$" "" argument "${parameter}")
      string(REGEX REPLACE ".* " "" argument "${argument}")
      if(parameter MATCHES "^const TensorRef& .* = {}$")
        list(APPEND named "{\"${argument}\", ${argument}}")
      elseif(parameter MATCHES "^const TensorRef& ")
        list(APPEND tensors ${argument})
      elseif(argument MATCHES "^(options|gradients)$")
        list(APPEND structs ${argument})
        string(REGEX MATCH "([A-Za-z0-9]+)&? ${argument}" type "${parameter}")
        list(APPEND types ${CMAKE_MATCH_1})
      else()
        list(APPEND members ${argument})
      endif()
    endforeach()
    list(GET types 0 options)
    operator_struct(${name} "${text}" ${options} struct)
    list(JOIN structs ", " structs)
    set(op options)
    set(lines "")
    if(NOT struct STREQUAL options)
      set(op op)
      set(lines "  ${struct} op{${structs}};\n")
      if(NOT struct MATCHES "^Gradient<")
        get_filename_component(folder ${source} DIRECTORY)
        operator_include(${struct} ${folder} line)
        set(${include} "${line}" PARENT_SCOPE)
      endif()
    endif()
    foreach(member ${members})
      string(APPEND lines "  ${op}.${member} = ${member};\n")
    endforeach()
    list(JOIN tensors ", " given)
    if(named)
      list(JOIN named ", " named)
      string(APPEND given "}, {${named}")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    set(${result} "${returned} ${name}(${arguments}) {
${lines}  return results_of<${returned}>(${name}_schema(), ${op}, {${given}});
}

" PARENT_SCOPE)
    return()
  endforeach()
endfunction()

function(operator_tables target folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER files EXCLUDE REGEX "_test\\.cpp$")
  list(SORT files)
  set(declarations "")
  set(names "")
  set(functions "")
  set(includes "")
  foreach(file ${files})
    file(STRINGS ${file} found REGEX "^const OperatorSchema& [a-z0-9_]+_schema\\(\\) {")
    foreach(line ${found})
      string(REGEX REPLACE "^const OperatorSchema& ([a-z0-9_]+)\\(\\) {.*" "\\1" name "${line}")
      string(APPEND declarations "const OperatorSchema& ${name}();\n")
      string(APPEND names "&${name}(), ")
      string(REGEX REPLACE "_schema$" "" operator ${name})
      operator_function(${operator} ${file} function include)
      string(APPEND functions "${function}")
      list(APPEND includes "${include}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "" includes)
  set(output ${PROJECT_BINARY_DIR}/operators/tables.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
@includes@#include "ops/schema/gradient.hpp"
#include "tegula/ops.hpp"

namespace tegula::ops {

@declarations@
const std::vector<const OperatorSchema*>& operator_schemas() {
  static const std::vector<const OperatorSchema*> all{@names@};
  return all;
}

@functions@}  // namespace tegula::ops
]])
  target_sources(${target} PRIVATE ${output})
endfunction()
