# operator_tables(TARGET FOLDER): the list of all operators, which is made of the functions
# `const OperatorSchema& NAME_schema() {` in FOLDER's sources, in the order of their files; and the operators' functions.
#
# Of a function that a header of include/tegula/ops declares as `Result NAME(const TensorRef& x, …, Struct options = {});`
# the definition follows: tensors are those that the table needs, in its order, other arguments members of the struct. A
# source that defines its function itself keeps its own, and an operator of which no header declares one has none.
function(operator_function name source result)
  set(${result} "" PARENT_SCOPE)
  file(READ ${source} text)
  if(text MATCHES "[ \n]${name}\\(const TensorRef")
    return()
  endif()
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/tegula/ops/*.hpp)
  foreach(header ${headers})
    file(READ ${header} declarations)
    if(NOT declarations MATCHES "\n([A-Za-z0-9]+) ${name}\\((const TensorRef& [^;]*[A-Za-z0-9]) options( = {})?\\)[;]")
      continue()
    endif()
    set(returned ${CMAKE_MATCH_1})
    string(REGEX REPLACE "[ \n]+" " " arguments "${CMAKE_MATCH_2} options")
    string(REPLACE ", " ";" parts "${arguments}")
    set(tensors "")
    set(members "")
    foreach(part ${parts})
      string(REGEX REPLACE ".* " "" argument "${part}")
      if(part MATCHES "^const TensorRef& ")
        list(APPEND tensors ${argument})
      elseif(NOT argument STREQUAL options)
        string(APPEND members "  options.${argument} = ${argument};\n")
      endif()
    endforeach()
    list(JOIN tensors ", " tensors)
    set(op options)
    if(text MATCHES "${name}_schema\\(\\) {[^}]*return gradient_table<")
      string(REGEX REPLACE ".* ([A-Za-z0-9]+) options$" "Gradient<\\1>{options}" op "${arguments}")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    set(${result} "${returned} ${name}(${arguments}) {
${members}  return results_of<${returned}>(${name}_schema(), ${op}, {${tensors}});
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
  foreach(file ${files})
    file(STRINGS ${file} found REGEX "^const OperatorSchema& [a-z0-9_]+_schema\\(\\) {")
    foreach(line ${found})
      string(REGEX REPLACE "^const OperatorSchema& ([a-z0-9_]+)\\(\\) {.*" "\\1" name "${line}")
      string(APPEND declarations "const OperatorSchema& ${name}();\n")
      string(APPEND names "&${name}(), ")
      string(REGEX REPLACE "_schema$" "" operator ${name})
      operator_function(${operator} ${file} function)
      string(APPEND functions "${function}")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    endforeach()
  endforeach()
  set(output ${PROJECT_BINARY_DIR}/operators/tables.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include "ops/schema/gradient.hpp"
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
