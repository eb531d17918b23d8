# operator_tables(TARGET FOLDER): the list of all operators, which is made of the functions
# `const OperatorSchema& NAME_schema() {` in FOLDER's sources, in the order of their files.
function(operator_tables target folder)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${folder}/*.cpp)
  list(FILTER files EXCLUDE REGEX "_test\\.cpp$")
  list(SORT files)
  set(declarations "")
  set(names "")
  foreach(file ${files})
    file(STRINGS ${file} found REGEX "^const OperatorSchema& [a-z0-9_]+_schema\\(\\) {")
    foreach(line ${found})
      string(REGEX REPLACE "^const OperatorSchema& ([a-z0-9_]+)\\(\\) {.*" "\\1" name "${line}")
      string(APPEND declarations "const OperatorSchema& ${name}();\n")
      string(APPEND names "&${name}(), ")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    endforeach()
  endforeach()
  set(output ${PROJECT_BINARY_DIR}/operators/tables.cpp)
  file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
#include "ops/schema/table.hpp"

namespace tegula::ops {

@declarations@
const std::vector<const OperatorSchema*>& operator_schemas() {
  static const std::vector<const OperatorSchema*> all{@names@};
  return all;
}

}  // namespace tegula::ops
]])
  target_sources(${target} PRIVATE ${output})
endfunction()
