# With NIMBLE_UNITY up to twelve sources of a target are compiled as one, so what they include is
# parsed once for all of them. It is off by default, because whoever changes one file compiles
# twelve: for builds from nothing. Which files go together, scripts/unity_groups.py says; those that
# it leaves out, C, generated sources and those with options of their own are compiled by
# themselves, as are those with CMake's property SKIP_UNITY_BUILD_INCLUSION.

set(NIMBLE_UNITY_SIZE 12)

# Sources of `target` that may be compiled with others, relative to the repository.
function(nimble_unity_sources out target)
  get_target_property(type ${target} TYPE)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(${out} "" PARENT_SCOPE)
  if(NOT sources OR
     NOT type MATCHES "^(STATIC_LIBRARY|SHARED_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$")
    return()
  endif()
  set(wanted "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder} NORMALIZE OUTPUT_VARIABLE file)
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR ${file} is_generated)
    if(is_generated OR NOT file MATCHES "\\.cpp$")
      continue()
    endif()
    set(is_alone FALSE)
    foreach(property COMPILE_OPTIONS COMPILE_DEFINITIONS COMPILE_FLAGS INCLUDE_DIRECTORIES
                     SKIP_UNITY_BUILD_INCLUSION)
      get_source_file_property(own ${file} TARGET_DIRECTORY ${target} ${property})
      if(own)
        set(is_alone TRUE)
      endif()
    endforeach()
    if(NOT is_alone)
      cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND wanted ${file})
    endif()
  endforeach()
  set(${out} "${wanted}" PARENT_SCOPE)
endfunction()

# The targets of `folder` and of those below it.
function(nimble_unity_targets out folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    nimble_unity_targets(more ${below})
    list(APPEND targets ${more})
  endforeach()
  set(${out} "${targets}" PARENT_SCOPE)
endfunction()

# All targets of `folder` and of those below it; they have to be complete.
function(nimble_unity_folder folder)
  if(NOT NIMBLE_UNITY)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  nimble_unity_targets(targets ${folder})
  set(lines "")
  foreach(target IN LISTS targets)
    nimble_unity_sources(sources ${target})
    if(sources)
      list(JOIN sources " " sources)
      string(APPEND lines "${target} ${sources}\n")
    endif()
  endforeach()
  set(input ${PROJECT_BINARY_DIR}/unity_sources.txt)
  file(WRITE ${input} "${lines}")
  execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/unity_groups.py
                          ${NIMBLE_UNITY_SIZE}
                  INPUT_FILE ${input} OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  string(STRIP "${lines}" lines)
  string(REPLACE "\n" ";" lines "${lines}")
  set(number 0)
  foreach(line IN LISTS lines)
    string(REPLACE " " ";" files "${line}")
    list(POP_FRONT files target)
    list(TRANSFORM files PREPEND ${PROJECT_SOURCE_DIR}/)
    math(EXPR number "${number} + 1")
    set_source_files_properties(${files} TARGET_DIRECTORY ${target}
                                PROPERTIES UNITY_GROUP ${target}_${number})
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endforeach()
endfunction()
