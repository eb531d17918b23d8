# embed_texts(TARGET NAME FILE...): adds to TARGET a source that defines
# `tegula::embedded::NAME()`, a table of the files' names and contents.
function(embed_texts target name)
  set(output ${PROJECT_BINARY_DIR}/embedded/${name}.cpp)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed_script.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DNAME=${name} "-DFILES=${ARGN}" -P ${script}
    DEPENDS ${ARGN} ${script}
    COMMENT "Embedding ${name}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
