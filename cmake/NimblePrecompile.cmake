# With NIMBLE_PRECOMPILE the headers of others are parsed once for all targets that are compiled
# alike, instead of once a file: they are nineteen twentieths of what a file has the compiler read.
# nimble's own headers are not among them, so whoever changes one compiles what includes it. It is
# off by default, because each file then sees headers that it forgot to include, and because a
# compiler cache does not serve what was compiled so: for builds from nothing.

set(NIMBLE_PRECOMPILED_HEADERS
    algorithm array atomic charconv chrono cmath condition_variable cstdint cstdlib cstring
    exception filesystem fstream functional limits map memory mutex numeric optional random
    set span sstream stdexcept string string_view system_error thread tuple type_traits
    unordered_map unordered_set utility variant vector fmt/format.h nlohmann/json.hpp)

# What `target` links, and what that links.
function(nimble_links out target)
  set(seen "")
  set(todo ${target})
  while(todo)
    list(POP_FRONT todo next)
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(libraries ${next} ${property})
      foreach(library IN LISTS libraries)
        string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" library "${library}")
        if(NOT library IN_LIST seen)
          list(APPEND seen "${library}")
          if(TARGET "${library}")
            list(APPEND todo ${library})
          endif()
        endif()
      endforeach()
    endforeach()
  endwhile()
  set(${out} "${seen}" PARENT_SCOPE)
endfunction()

# Gives `target` the precompiled headers of those that are compiled as it is.
function(nimble_precompile target)
  get_target_property(type ${target} TYPE)
  get_target_property(sources ${target} SOURCES)
  get_target_property(options ${target} COMPILE_OPTIONS)
  get_target_property(definitions ${target} COMPILE_DEFINITIONS)
  # Those that change headers of others.
  list(FILTER definitions INCLUDE REGEX "^(-D)?_")
  get_target_property(shared ${target} PRECOMPILE_HEADERS_REUSE_FROM)
  if(shared OR target MATCHES "^nimble_precompiled_" OR NOT options OR
     NOT type MATCHES "^(STATIC_LIBRARY|SHARED_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$" OR
     NOT sources MATCHES "\\.cpp")
    return()  # a fixture in C, or not nimble's own
  endif()
  nimble_links(links ${target})
  if(NOT fmt::fmt IN_LIST links)
    return()  # another definition (FMT_SHARED) makes other headers
  endif()
  set(headers ${NIMBLE_PRECOMPILED_HEADERS})
  set(libraries fmt::fmt nlohmann_json::nlohmann_json)
  foreach(row GTest::gmock:gmock/gmock.h CLI11::CLI11:CLI/CLI.hpp Qt6::Core:QtCore
              Qt6::Widgets:QtWidgets QCustomPlotQt6::QCustomPlotQt6:qcustomplot.h)
    string(REGEX MATCH "^([A-Za-z0-9_]+::[A-Za-z0-9_]+):(.*)$" row ${row})
    if(CMAKE_MATCH_1 IN_LIST links)
      list(APPEND libraries ${CMAKE_MATCH_1})
      list(APPEND headers ${CMAKE_MATCH_2})
    endif()
  endforeach()
  list(TRANSFORM headers REPLACE "(.+)" "<\\1>")
  # A compiler takes precompiled headers only where its options are those that they were made with.
  set(is_program FALSE)
  if(type STREQUAL "EXECUTABLE")
    set(is_program TRUE)
  endif()
  string(MD5 key "${is_program} ${options} ${definitions} ${libraries}")
  string(SUBSTRING ${key} 0 8 key)
  set(shared nimble_precompiled_${key})
  if(NOT TARGET ${shared})
    # A target of its own that has them made; it is built, too, though nothing is in it.
    set(folder ${PROJECT_BINARY_DIR}/precompiled)
    if(is_program)
      file(CONFIGURE OUTPUT ${folder}/program.cpp CONTENT "int main() {}\n")
      add_executable(${shared} EXCLUDE_FROM_ALL ${folder}/program.cpp)
    else()
      file(CONFIGURE OUTPUT ${folder}/library.cpp CONTENT "int nimble_precompiled;\n")
      add_library(${shared} STATIC EXCLUDE_FROM_ALL ${folder}/library.cpp)
    endif()
    set_target_properties(${shared} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${folder}
                                               ARCHIVE_OUTPUT_DIRECTORY ${folder})
    target_compile_options(${shared} PRIVATE ${options})
    target_compile_definitions(${shared} PRIVATE ${definitions})
    target_link_libraries(${shared} PRIVATE ${libraries})
    target_precompile_headers(${shared} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${shared})
endfunction()

# All targets of `folder` and of those below it. Those whose libraries only that folder found
# (find_package) have to be given theirs there.
function(nimble_precompile_folder folder)
  if(NOT NIMBLE_PRECOMPILE)
    return()
  endif()
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    nimble_precompile(${target})
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    nimble_precompile_folder(${below})
  endforeach()
endfunction()
