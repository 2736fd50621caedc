# What `cmake --install` puts where:
#   bin/       the programs
#   lib/       libnimble.so and the CMake package: find_package(nimble) -> nimble::nimble
#   include/   nimble/nimble.h, nimble/nimble.hpp
#   share/     manual pages, and what bash, zsh and fish complete nimble's words with
# Component "runtime" is the library and its headers alone.
include(CMakePackageConfigHelpers)

get_property(nimble_tools GLOBAL PROPERTY NIMBLE_TOOLS)
if(nimble_tools)
  install(TARGETS ${nimble_tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()

# Pages and scripts are printed by the programs that they are about.
set(nimble_manual_dir ${PROJECT_BINARY_DIR}/share/man/man1)
file(MAKE_DIRECTORY ${nimble_manual_dir} ${PROJECT_BINARY_DIR}/share/completion)
set(nimble_manuals ${nimble_manual_dir}/nimble.1)
add_custom_command(OUTPUT ${nimble_manual_dir}/nimble.1
                   COMMAND nimble-completion man > ${nimble_manual_dir}/nimble.1
                   DEPENDS nimble-completion)
get_property(tools_with_manual GLOBAL PROPERTY NIMBLE_TOOLS_WITH_MANUAL)
foreach(tool ${tools_with_manual})
  set(page ${nimble_manual_dir}/${tool}.1)
  add_custom_command(OUTPUT ${page} COMMAND ${tool} --help-man > ${page} DEPENDS ${tool})
  list(APPEND nimble_manuals ${page})
endforeach()
set(nimble_completions "")
foreach(shell bash zsh fish)
  set(script ${PROJECT_BINARY_DIR}/share/completion/nimble.${shell})
  add_custom_command(OUTPUT ${script} COMMAND nimble-completion ${shell} > ${script}
                     DEPENDS ${nimble_tools})
  list(APPEND nimble_completions ${script})
endforeach()
add_custom_target(nimble-manuals ALL DEPENDS ${nimble_manuals} ${nimble_completions})
install(FILES ${nimble_manuals} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
install(FILES ${PROJECT_BINARY_DIR}/share/completion/nimble.bash RENAME nimble
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
install(FILES ${PROJECT_BINARY_DIR}/share/completion/nimble.zsh RENAME _nimble
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tools)
install(FILES ${PROJECT_BINARY_DIR}/share/completion/nimble.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)

# What a user needs, without tests: scripts/quickstart builds this.
add_custom_target(nimble-programs DEPENDS ${nimble_tools} nimble-manuals nimble_shared)

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
