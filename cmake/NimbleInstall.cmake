# What `cmake --install` puts where:
#   bin/       the programs
#   lib/       libnimble.so and the CMake package: find_package(nimble) -> nimble::nimble
#   include/   nimble/nimble.h, nimble/nimble.hpp
# Component "runtime" is the library and its headers alone.
include(CMakePackageConfigHelpers)

get_property(nimble_tools GLOBAL PROPERTY NIMBLE_TOOLS)
if(nimble_tools)
  install(TARGETS ${nimble_tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()

# What a user needs, without tests: scripts/quickstart builds this.
add_custom_target(nimble-programs DEPENDS ${nimble_tools} nimble_shared)

install(TARGETS nimble_shared EXPORT nimbleTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
install(FILES vm/api/nimble.h vm/api/nimble.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/nimble COMPONENT runtime)

set(nimble_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/nimble)
install(EXPORT nimbleTargets NAMESPACE nimble:: DESTINATION ${nimble_package_dir}
        COMPONENT runtime)
configure_package_config_file(cmake/nimbleConfig.cmake.in
  ${PROJECT_BINARY_DIR}/nimbleConfig.cmake INSTALL_DESTINATION ${nimble_package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/nimbleConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/nimbleConfig.cmake
              ${PROJECT_BINARY_DIR}/nimbleConfigVersion.cmake
        DESTINATION ${nimble_package_dir} COMPONENT runtime)
