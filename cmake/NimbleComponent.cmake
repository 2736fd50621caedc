# Functions with which a folder declares what it builds. A folder is one component:
# its *.cpp files become one static library, its test/*.cpp one test program.

# Of tests that compile: code that they cache is none of the user's.
set(NIMBLE_TEST_ENVIRONMENT NIMBLE_CODE_CACHE=${PROJECT_BINARY_DIR}/test-code)

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

# Defines NIMBLE_SOURCE_DIR, the repository's root, for those of the files that use it: tests that
# read fixtures. The others stay the same wherever the repository lies, so a compiler cache that
# knows no folder (ccache's base_dir) serves every clone; __FILE__ is relative then. Files that are
# compiled as one have the same definitions.
function(nimble_give_source_dir)
  if(NIMBLE_UNITY)
    add_compile_definitions(NIMBLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    return()
  endif()
  foreach(file ${ARGN})
    file(STRINGS ${file} uses REGEX NIMBLE_SOURCE_DIR LIMIT_COUNT 1)
    if(uses)
      set_property(SOURCE ${file} APPEND PROPERTY COMPILE_DEFINITIONS
                   NIMBLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    endif()
  endforeach()
endfunction()

# For tests, programs and what waits for processes, people and disks: little optimisation, which
# takes a fifth to a third of the time less. What tests look at is optimised where it is a library's, and
# machine code of kernels by itself.
function(nimble_cold_options target)
  nimble_target_options(${target})
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${target} PRIVATE -O1)
  endif()
endfunction()

# nimble_component(NAME [COLD] [DIRS dir...] [DEPS target...] [PRIVATE_DEPS target...])
#   Library nimble_NAME from the *.cpp of this folder and of DIRS, and, when tests are on,
#   the program nimble-NAME-test from test/*.cpp. COLD: as nimble_cold_options() says.
function(nimble_component name)
  cmake_parse_arguments(ARG "COLD" "" "DIRS;DEPS;PRIVATE_DEPS" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(dir ${ARG_DIRS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(sources)
    add_library(nimble_${name} STATIC ${sources})
    if(ARG_COLD)
      nimble_cold_options(nimble_${name})
    else()
      nimble_target_options(nimble_${name})
    endif()
    target_link_libraries(nimble_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  else()
    add_library(nimble_${name} INTERFACE)
    target_include_directories(nimble_${name} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
    target_link_libraries(nimble_${name} INTERFACE ${ARG_DEPS})
  endif()
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/test/*.cpp)
  if(NIMBLE_BUILD_TESTS AND tests)
    nimble_give_source_dir(${tests})
    add_executable(nimble-${name}-test ${tests})
    nimble_cold_options(nimble-${name}-test)
    target_link_libraries(nimble-${name}-test PRIVATE nimble_${name} ${ARG_PRIVATE_DEPS}
                                                      GTest::gmock GTest::gtest_main)
    gtest_discover_tests(nimble-${name}-test DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
                         TEST_PREFIX ${name}. PROPERTIES TIMEOUT 600
                         ENVIRONMENT ${NIMBLE_TEST_ENVIRONMENT})
  endif()
endfunction()

# nimble_tool(NAME SOURCES file... DEPS target... [NO_MANUAL])
#   The program NAME in build/bin. It prints its own manual page (--help-man), unless NO_MANUAL.
function(nimble_tool name)
  cmake_parse_arguments(ARG "NO_MANUAL" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  nimble_cold_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  set_property(GLOBAL APPEND PROPERTY NIMBLE_TOOLS ${name})
  if(NOT ARG_NO_MANUAL)
    set_property(GLOBAL APPEND PROPERTY NIMBLE_TOOLS_WITH_MANUAL ${name})
  endif()
endfunction()

# nimble_benchmark(NAME SOURCES file... DEPS target...)
#   The Google Benchmark program nimble-NAME-bench in build/bin, if benchmarks are on and the library
#   is there: a machine that only builds the runtime need not have it.
function(nimble_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  if(NOT NIMBLE_BUILD_BENCHMARKS)
    return()
  endif()
  find_package(benchmark QUIET)
  if(NOT benchmark_FOUND)
    message(STATUS "no Google Benchmark: nimble-${name}-bench is not built")
    return()
  endif()
  add_executable(nimble-${name}-bench ${ARG_SOURCES})
  nimble_target_options(nimble-${name}-bench)
  target_link_libraries(nimble-${name}-bench PRIVATE ${ARG_DEPS} benchmark::benchmark)
endfunction()

# nimble_fuzz(NAME SOURCES file... DEPS target... [MUTANTS n])
#   A fuzz target (vm/base/fuzz/fuzz.h). With the preset fuzz the program nimble-fuzz-NAME on
#   libFuzzer; with tests on nimble-replay-NAME, which a test runs on the seeds, n mutants of each,
#   and, beside the target, the folder `regressions` and what fuzzing found before, corpus.tar.xz.
function(nimble_fuzz name)
  cmake_parse_arguments(ARG "" "MUTANTS" "SOURCES;DEPS" ${ARGN})
  set(driver ${PROJECT_SOURCE_DIR}/vm/base/fuzz)
  set(programs "")
  if(NIMBLE_SANITIZE MATCHES "fuzzer")
    add_executable(nimble-fuzz-${name} ${ARG_SOURCES} ${driver}/corpus.cpp
                                       ${driver}/libfuzzer_main.cpp)
    target_link_options(nimble-fuzz-${name} PRIVATE -fsanitize=fuzzer)
    list(APPEND programs nimble-fuzz-${name})
  endif()
  if(NIMBLE_BUILD_TESTS)
    if(NOT TARGET nimble_replay_main)
      add_library(nimble_replay_main STATIC ${driver}/corpus.cpp ${driver}/replay_main.cpp)
      nimble_target_options(nimble_replay_main)
      target_link_libraries(nimble_replay_main PUBLIC nimble_vm_base)
    endif()
    add_executable(nimble-replay-${name} ${ARG_SOURCES})
    target_link_libraries(nimble-replay-${name} PRIVATE nimble_replay_main)
    list(APPEND programs nimble-replay-${name})
    set(inputs ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/regressions)
    if(NOT EXISTS ${inputs})
      set(inputs "")
    endif()
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus.tar.xz)
    if(EXISTS ${corpus})
      # 1 MiB each.
      file(SIZE ${corpus} bytes)
      if(bytes GREATER 1048576)
        message(FATAL_ERROR "${corpus} has ${bytes} bytes, more than 1 MiB; "
                            "scripts/fuzz --pack ${name} makes one that fits")
      endif()
      set(unpacked ${PROJECT_BINARY_DIR}/fuzz-corpus/${name})
      add_test(NAME fuzz.unpack.${name}
               COMMAND ${CMAKE_COMMAND} -DARCHIVE=${corpus} -DFOLDER=${unpacked}
                       -P ${PROJECT_SOURCE_DIR}/cmake/UnpackFresh.cmake)
      set_tests_properties(fuzz.unpack.${name} PROPERTIES FIXTURES_SETUP fuzz-corpus-${name})
      list(APPEND inputs ${unpacked})
    endif()
    add_test(NAME fuzz.replay.${name}
             COMMAND nimble-replay-${name} --mutants ${ARG_MUTANTS} ${inputs})
    if(EXISTS ${corpus})
      set_tests_properties(fuzz.replay.${name} PROPERTIES FIXTURES_REQUIRED fuzz-corpus-${name})
    endif()
    # Long ones first: ctest knows no times of its own in a fresh build.
    set_tests_properties(fuzz.replay.${name} PROPERTIES TIMEOUT 300 COST 60)
  endif()
  foreach(program ${programs})
    nimble_target_options(${program})
    target_link_libraries(${program} PRIVATE ${ARG_DEPS})
    target_compile_definitions(${program} PRIVATE NIMBLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  endforeach()
endfunction()
