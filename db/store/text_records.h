// A database's records as text, for other tools and for the eye: an export (one SQLite file) is
// turned into text, and text into a file that can be imported. Whatever the text holds, import
// judges it as it does any file from elsewhere.
//
// JSON: a file of lines. The first is {"nimble": "records", "version": 1, "schema": N, "origin":
// UUID}, each other one {"table": NAME, "row": {COLUMN: VALUE, …}}.
// CSV: a folder with a file NAME.csv for each table, its first line the columns, and
// records.csv, which has version, schema and origin.
//
// Integers and reals are numbers that read back as what they were; NULL is null, in CSV an empty
// cell, where an empty text is "". Raw samples and their flags are lists of numbers, in CSV with
// spaces. Other bytes, and text that is no UTF-8, are "hex:" and two digits a byte; text that
// begins so, too.
#pragma once

#include <string>

namespace nimble::db {

enum class TextFormat { kJson, kCsv };

// Writes the records of `database`, a SQLite file that nimble made, to a new file or folder.
// Errors: kInvalidArgument (it exists already), kIo.
void export_text(const std::string& database, TextFormat format, const std::string& place);

// Whether `place` looks like what export_text writes: a folder, or a file that begins so.
bool is_text_export(const std::string& place);

// Makes a new SQLite file `database` of what export_text wrote. Error(kCorrupt) names file and line
// of what it did not, (kIncompatible) a schema newer than this program's.
void import_text(const std::string& place, const std::string& database);

}  // namespace nimble::db
