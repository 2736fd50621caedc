# Functions with which a folder declares what it builds. A folder is one component:
# its *.cpp files become one static library, its test/*.cpp one test program.

set(NIMBLE_WARNINGS -Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlap in its own operator+(const char*, std::string&&): GCC bug 105651.
  list(APPEND NIMBLE_WARNINGS $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# Marks `target` with the flags that all of nimble's own code shares.
function(nimble_target_options target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_options(${target} PRIVATE ${NIMBLE_WARNINGS})
  if(NIMBLE_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${NIMBLE_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${NIMBLE_SANITIZE})
  endif()
endfunction()

# nimble_component(NAME [DIRS dir...] [DEPS target...] [PRIVATE_DEPS target...])
#   Library nimble_NAME from the *.cpp of this folder and of DIRS, and, when tests are on,
#   the program nimble-NAME-test from test/*.cpp.
function(nimble_component name)
  cmake_parse_arguments(ARG "" "" "DIRS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(dir ${ARG_DIRS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(sources)
    add_library(nimble_${name} STATIC ${sources})
    nimble_target_options(nimble_${name})
    target_link_libraries(nimble_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  else()
    add_library(nimble_${name} INTERFACE)
    target_include_directories(nimble_${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
    target_link_libraries(nimble_${name} INTERFACE ${ARG_DEPS})
  endif()
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/test/*.cpp)
  if(NIMBLE_BUILD_TESTS AND tests)
    add_executable(nimble-${name}-test ${tests})
    nimble_target_options(nimble-${name}-test)
    target_link_libraries(nimble-${name}-test PRIVATE nimble_${name} ${ARG_PRIVATE_DEPS}
                                                      GTest::gmock GTest::gtest_main)
    gtest_discover_tests(nimble-${name}-test DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
                         TEST_PREFIX ${name}. PROPERTIES TIMEOUT 600)
  endif()
endfunction()

# nimble_tool(NAME SOURCES file... DEPS target...): the program NAME in build/bin.
function(nimble_tool name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  nimble_target_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  set_property(GLOBAL APPEND PROPERTY NIMBLE_TOOLS ${name})
endfunction()
