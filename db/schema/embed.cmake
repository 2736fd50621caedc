# Run by `cmake -P`: writes the migrations as one C++ file.
#   OUTPUT    the file to write
#   FILES     the migrations, in order, separated by '|'
#   POSTGRES  their counterparts for PostgreSQL
# The first of POSTGRES, NNNN_baseline.sql, makes the whole schema of its version; each later
# migration has a file of the same name in both.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "|" ";" FILES "${FILES}")
string(REPLACE "|" ";" POSTGRES "${POSTGRES}")
set(postgres_began FALSE)
set(used 0)
set(rows "")
set(expected 1)
foreach(file ${FILES})
  get_filename_component(name ${file} NAME_WE)
  if(NOT name MATCHES "^([0-9][0-9][0-9][0-9])_([a-z0-9_]+)$")
    message(FATAL_ERROR "${file}: a migration is named NNNN_name.sql")
  endif()
  math(EXPR version "1${CMAKE_MATCH_1} - 10000")
  if(NOT version EQUAL expected)
    message(FATAL_ERROR "${file}: expected migration number ${expected}")
  endif()
  math(EXPR expected "${expected} + 1")
  file(READ ${file} text)
  get_filename_component(folder ${file} DIRECTORY)
  string(SUBSTRING ${name} 0 4 number)
  set(other ${folder}/postgres/${name}.sql)
  if(NOT postgres_began)
    set(other ${folder}/postgres/${number}_baseline.sql)
  endif()
  set(postgres "nullptr")
  if(other IN_LIST POSTGRES)
    file(READ ${other} other_text)
    set(postgres "R\"__sql__(${other_text})__sql__\"")
    set(postgres_began TRUE)
    math(EXPR used "${used} + 1")
  elseif(postgres_began)
    message(FATAL_ERROR "${file} has no counterpart ${other}")
  endif()
  string(APPEND rows
         "    {${version}, \"${name}\", R\"__sql__(${text})__sql__\",\n     ${postgres}},\n")
endforeach()
list(LENGTH POSTGRES given)
if(NOT used EQUAL given)
  message(FATAL_ERROR "db/schema/postgres has a file that no migration has the name of")
endif()
file(WRITE ${OUTPUT}.tmp
"// Generated from db/schema by embed.cmake.
#include \"db/store/migrations.h\"

namespace nimble::db {
namespace {
constexpr Migration kMigrations[] = {
${rows}};
}  // namespace
std::span<const Migration> migrations() { return kMigrations; }
}  // namespace nimble::db
")
file(RENAME ${OUTPUT}.tmp ${OUTPUT})
