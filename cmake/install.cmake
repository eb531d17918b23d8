# The shared library, and what `cmake --install` puts where: for find_package(Tegula) and pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The objects of the archive. Its name changes with what may change the interface: with the second number of a version 0.y.z.
set(interface ${PROJECT_VERSION_MAJOR})
if(interface EQUAL 0)
  set(interface 0.${PROJECT_VERSION_MINOR})
endif()
add_library(tegula_shared SHARED $<TARGET_OBJECTS:tegula_objects> $<TARGET_OBJECTS:tegula_builtin>)
set_target_properties(tegula_shared PROPERTIES OUTPUT_NAME tegula VERSION ${PROJECT_VERSION} SOVERSION ${interface}
                      EXPORT_NAME tegula LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/exported.map)
target_include_directories(tegula_shared INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_compile_definitions(tegula_shared INTERFACE TEGULA_SHARED)
target_compile_features(tegula_shared INTERFACE cxx_std_20)
target_link_libraries(tegula_shared PRIVATE fmt::fmt Threads::Threads ${CMAKE_DL_LIBS})
# Copies of templates of the standard library stay inside.
target_link_options(tegula_shared PRIVATE LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/exported.map)
if(TEGULA_PORTABLE)
  target_link_libraries(tegula_shared PRIVATE ${tegula_portable})
endif()
set_target_properties(tegula_core PROPERTIES EXPORT_NAME tegula_static)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Tegula)
install(TARGETS tegula_shared tegula_core EXPORT TegulaTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/tegula DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(EXPORT TegulaTargets NAMESPACE Tegula:: DESTINATION ${package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TegulaConfig.cmake.in ${PROJECT_BINARY_DIR}/TegulaConfig.cmake
                              INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TegulaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TegulaConfig.cmake ${PROJECT_BINARY_DIR}/TegulaConfigVersion.cmake DESTINATION ${package})
# Where it is installed is known when it is: the file names its prefix by its own place.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/tegula.pc.in ${PROJECT_BINARY_DIR}/tegula.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tegula.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
