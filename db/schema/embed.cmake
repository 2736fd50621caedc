# Run by `cmake -P`: writes the migrations as one C++ file.
#   OUTPUT  the file to write      FILES  the migrations, in order, separated by '|'
string(REPLACE "|" ";" FILES "${FILES}")
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
  string(APPEND rows "    {${version}, \"${name}\", R\"__sql__(${text})__sql__\"},\n")
endforeach()
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
