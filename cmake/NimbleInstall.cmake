get_property(nimble_tools GLOBAL PROPERTY NIMBLE_TOOLS)
if(nimble_tools)
  install(TARGETS ${nimble_tools} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
