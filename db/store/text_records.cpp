#include "db/store/text_records.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "db/store/filesystem.h"
#include "db/store/migrations.h"
#include "db/store/open.h"
#include "db/store/samples.h"
#include "db/store/store.h"
#include "db/store/tables.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr std::string_view kBytes = "hex:";
constexpr const char* kHead = "records";  // of CSV: the file with version, schema and origin
constexpr size_t kLongestLine = size_t{64} << 20;
constexpr int kDeepestJson = 4;

struct Column {
  std::string name;
  ValueKind kind;
};

std::vector<Column> columns_of(Connection& db, const TableSpec& table) {
  std::map<std::string, ValueKind> kinds;
  Statement row =
      db.prepare(fmt::format("SELECT name, type FROM pragma_table_info('{}')", table.name));
  while (row.step()) {
    const std::string type = row.text(1);
    kinds[row.text(0)] = type == "INTEGER" ? ValueKind::kInteger
                         : type == "REAL"  ? ValueKind::kReal
                         : type == "BLOB"  ? ValueKind::kBlob
                                           : ValueKind::kText;
  }
  std::vector<Column> out;
  std::istringstream names(table.columns);
  for (std::string name; std::getline(names, name, ',');) {
    name.erase(0, name.find_first_not_of(' '));
    out.push_back({name, kinds.at(name)});
  }
  return out;
}

// Lists of samples and of flags, which are bytes in the database.
enum class List { kNone, kSamples, kFlags };
List list_of(const TableSpec& table, const Column& column) {
  if (column.kind != ValueKind::kBlob || !std::string_view(table.name).ends_with("samples"))
    return List::kNone;
  return column.name == "ns" ? List::kSamples : List::kFlags;
}

bool is_utf8(const std::string& text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::exception&) {
    return false;
  }
}

std::string hex_of(std::span<const uint8_t> bytes) {
  std::string out(kBytes);
  for (const uint8_t b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

std::optional<std::vector<uint8_t>> bytes_of(std::string_view text) {
  if (!text.starts_with(kBytes) || (text.size() - kBytes.size()) % 2 != 0) return std::nullopt;
  std::vector<uint8_t> out;
  for (size_t at = kBytes.size(); at < text.size(); at += 2) {
    uint8_t byte = 0;
    const char* const end = text.data() + at + 2;
    if (std::from_chars(text.data() + at, end, byte, 16).ptr != end) return std::nullopt;
    out.push_back(byte);
  }
  return out;
}

std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

Json value_of(const Statement& row, int at, const Column& column, List list) {
  if (row.is_null(at)) return nullptr;
  switch (column.kind) {
    case ValueKind::kInteger:
      return row.integer(at);
    case ValueKind::kReal:
      return row.real(at);
    case ValueKind::kBlob:
      break;
    default: {
      std::string text = row.text(at);
      if (is_utf8(text) && !text.starts_with(kBytes)) return text;
      return hex_of({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    }
  }
  const std::span<const uint8_t> bytes = row.blob(at);
  Json out = Json::array();
  if (list == List::kSamples && bytes.size() % sizeof(double) == 0) {
    for (const double ns : decode_samples(bytes)) {
      if (!std::isfinite(ns)) return hex_of(bytes);
      out.push_back(ns);
    }
    return out;
  }
  if (list == List::kFlags) {
    for (const uint8_t flag : bytes) out.push_back(flag);
    return out;
  }
  return hex_of(bytes);
}

// A value as a cell of CSV: NULL is empty, and so is nothing else.
std::string cell_of(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_number_float()) return number_text(value.get<double>());
  if (value.is_array()) {
    std::string out = "\"";
    for (const Json& v : value)
      out += (out.size() > 1 ? " " : "") +
             (v.is_number_float() ? number_text(v.get<double>()) : v.dump());
    return out + '"';
  }
  if (!value.is_string()) return value.dump();
  std::string out = "\"";
  for (const char c : value.get_ref<const std::string&>()) out.append(c == '"' ? 2 : 1, c);
  return out + '"';
}

class Sink {
 public:
  explicit Sink(const std::string& path) : path_(path), out_(path, std::ios::binary) { check(); }
  void line(const std::string& text) {
    out_ << text << '\n';
    check();
  }
  void close() {
    out_.close();
    check();
    sync_to_disk(path_);
  }

 private:
  void check() const {
    if (!out_)
      throw Error(Status::kIo, path_, "cannot be written", "check the folder and free some space");
  }
  std::string path_;
  std::ofstream out_;
};

Json head_of(Connection& db) {
  return {{"nimble", kHead},
          {"version", kVersion},
          {"schema", db.schema_version().value_or(0)},
          {"origin", db.text("SELECT uuid FROM identity")}};
}

void each_row(Connection& db, const TableSpec& table, const std::vector<Column>& columns,
              const std::function<void(const std::vector<Json>&)>& visit) {
  Statement row = db.prepare_streaming(fmt::format("SELECT {} FROM {}", table.columns, table.name));
  std::vector<Json> values(columns.size());
  while (row.step()) {
    for (size_t i = 0; i < columns.size(); ++i)
      values[i] = value_of(row, static_cast<int>(i), columns[i], list_of(table, columns[i]));
    visit(values);
  }
}

void write_json(Connection& db, const std::string& file) {
  Sink out(file);
  out.line(head_of(db).dump());
  for (const TableSpec& table : exchanged_tables()) {
    const std::vector<Column> columns = columns_of(db, table);
    each_row(db, table, columns, [&](const std::vector<Json>& values) {
      Json row = Json::object();
      for (size_t i = 0; i < columns.size(); ++i) row[columns[i].name] = values[i];
      out.line(Json{{"table", table.name}, {"row", std::move(row)}}.dump());
    });
  }
  out.close();
}

void write_csv(Connection& db, const std::string& folder) {
  const auto line_of = [](const std::vector<Json>& values) {
    std::string line;
    for (size_t i = 0; i < values.size(); ++i) line += (i > 0 ? "," : "") + cell_of(values[i]);
    return line;
  };
  const Json head = head_of(db);
  Sink about(fmt::format("{}/{}.csv", folder, kHead));
  about.line("version,schema,origin");
  about.line(line_of({head["version"], head["schema"], head["origin"]}));
  about.close();
  for (const TableSpec& table : exchanged_tables()) {
    const std::vector<Column> columns = columns_of(db, table);
    Sink out(fmt::format("{}/{}.csv", folder, table.name));
    std::string names;
    for (const Column& c : columns) names += (names.empty() ? "" : ",") + c.name;
    out.line(names);
    each_row(db, table, columns,
             [&](const std::vector<Json>& values) { out.line(line_of(values)); });
    out.close();
  }
}

// ---- reading -----------------------------------------------------------------------------------

[[noreturn]] void refuse(const std::string& place, const std::string& problem) {
  throw Error(Status::kCorrupt, place, problem, "import only what nimble db export wrote");
}

void bind_value(Statement& insert, int index, const Json& value, const Column& column, List list,
                const std::string& place) {
  const auto wrong = [&]() { refuse(place, fmt::format("{} is of another kind", column.name)); };
  if (value.is_null()) return insert.bind_null(index, column.kind);
  switch (column.kind) {
    case ValueKind::kInteger:
      if (!value.is_number_integer() ||
          (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}))
        wrong();
      return insert.bind_at(index, value.get<int64_t>());
    case ValueKind::kReal:
      if (!value.is_number()) wrong();
      return insert.bind_at(index, value.get<double>());
    case ValueKind::kBlob: {
      std::vector<uint8_t> bytes;
      if (value.is_string()) {
        auto read = bytes_of(value.get_ref<const std::string&>());
        if (!read) wrong();
        bytes = std::move(*read);
      } else if (value.is_array() && list == List::kSamples) {
        std::vector<double> ns;
        for (const Json& v : value) {
          if (!v.is_number()) wrong();
          ns.push_back(v.get<double>());
        }
        bytes = encode_samples(ns);
      } else if (value.is_array() && list == List::kFlags) {
        for (const Json& v : value) {
          if (!v.is_number_unsigned() || v.get<uint64_t>() > 1) wrong();
          bytes.push_back(v.get<uint8_t>());
        }
      } else {
        wrong();
      }
      return insert.bind_at(index, std::span<const uint8_t>(bytes));
    }
    default: {
      if (!value.is_string()) wrong();
      const auto& text = value.get_ref<const std::string&>();
      if (!text.starts_with(kBytes)) return insert.bind_at(index, text);
      const auto bytes = bytes_of(text);
      if (!bytes) wrong();
      insert.bind_at(index, std::string(bytes->begin(), bytes->end()));
    }
  }
}

// Inserts rows of one table, whatever order its columns come in.
class Filler {
 public:
  Filler(Connection& db, const TableSpec& table)
      : db_(db), table_(table), columns_(columns_of(db, table)) {}
  const std::vector<Column>& columns() const { return columns_; }
  void add(const std::map<std::string, Json>& row, const std::string& place) {
    if (row.size() != columns_.size())
      refuse(place,
             fmt::format("{} has {} columns, not {}", table_.name, columns_.size(), row.size()));
    std::string marks;
    for (size_t i = 0; i < columns_.size(); ++i) marks += i > 0 ? ",?" : "?";
    Statement insert = db_.prepare(
        fmt::format("INSERT INTO {} ({}) VALUES ({})", table_.name, table_.columns, marks));
    for (size_t i = 0; i < columns_.size(); ++i) {
      const auto value = row.find(columns_[i].name);
      if (value == row.end())
        refuse(place, fmt::format("{} lacks the column {}", table_.name, columns_[i].name));
      bind_value(insert, static_cast<int>(i) + 1, value->second, columns_[i],
                 list_of(table_, columns_[i]), place);
    }
    try {
      insert.run();
    } catch (const Error& e) {
      throw Error(e.status() == Status::kInvalidArgument ? Status::kCorrupt : e.status(), place,
                  e.problem(), "import only what nimble db export wrote");
    }
  }

 private:
  Connection& db_;
  const TableSpec& table_;
  std::vector<Column> columns_;
};

void check_head(const Json& head, Connection& db, const std::string& place) {
  const auto integer = [&](const char* name) -> int64_t {
    const auto at = head.find(name);
    if (at == head.end() || !at->is_number_integer()) refuse(place, fmt::format("has no {}", name));
    return at->get<int64_t>();
  };
  const auto origin = head.find("origin");
  if (origin == head.end() || !origin->is_string()) refuse(place, "has no origin");
  if (integer("version") != kVersion || integer("schema") > latest_schema_version())
    throw Error(Status::kIncompatible, place, "is of a newer nimble than this",
                "import it with the nimble that wrote it, or a newer one");
  if (integer("schema") < latest_schema_version())
    throw Error(Status::kIncompatible, place,
                fmt::format("is of schema {}, this program's is {}", integer("schema"),
                            latest_schema_version()),
                "text has no older schemas: export the database anew");
  // A fresh file has an identity of its own, which nothing may change but this.
  const std::string trigger =
      db.text("SELECT sql FROM sqlite_master WHERE name = 'identity_keeps_update'");
  db.script("DROP TRIGGER identity_keeps_update");
  db.run("UPDATE identity SET uuid = ?", origin->get<std::string>());
  db.script(trigger);
}

Json parse_line(const std::string& line, const std::string& place) {
  if (line.size() > kLongestLine || json_nesting(line) > kDeepestJson)
    refuse(place, "is longer or deeper than any record");
  return Json(parse_json(line, [&](const std::string& problem) { refuse(place, problem); }));
}

void read_json(Connection& db, const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::map<std::string, Filler> fillers;
  for (const TableSpec& table : exchanged_tables()) fillers.emplace(table.name, Filler(db, table));
  std::string line;
  for (int64_t number = 1; std::getline(in, line); ++number) {
    const std::string place = fmt::format("{}:{}", file, number);
    const Json json = parse_line(line, place);
    if (!json.is_object()) refuse(place, "is no record");
    if (number == 1) {
      check_head(json, db, place);
      continue;
    }
    const auto table = json.find("table"), row = json.find("row");
    if (json.size() != 2 || table == json.end() || row == json.end() || !table->is_string() ||
        !row->is_object())
      refuse(place, "is no record");
    const auto filler = fillers.find(table->get<std::string>());
    if (filler == fillers.end())
      refuse(place, fmt::format("there is no table {}", printable(table->get<std::string>())));
    std::map<std::string, Json> values;
    for (const auto& [name, value] : row->items()) values[name] = value;
    filler->second.add(values, place);
  }
}

// The cells of one record of CSV, which may have line ends in quotes; nothing at the end of the
// file. A cell without quotes that is empty is NULL.
std::optional<std::vector<std::optional<std::string>>> read_record(std::istream& in,
                                                                   const std::string& place) {
  std::vector<std::optional<std::string>> cells;
  if (in.peek() == std::char_traits<char>::eof()) return std::nullopt;
  size_t length = 0;
  for (;;) {
    std::string cell;
    const bool quoted = in.peek() == '"';
    if (quoted) in.get();
    int c = in.get();
    for (;; c = in.get()) {
      if (++length > kLongestLine) refuse(place, "is longer than any record");
      if (c == std::char_traits<char>::eof()) {
        if (quoted) refuse(place, "ends within quotes");
        break;
      }
      if (quoted && c == '"') {
        c = in.get();
        if (c != '"') break;
      } else if (!quoted && (c == ',' || c == '\n')) {
        break;
      }
      cell += static_cast<char>(c);
    }
    if (quoted || !cell.empty())
      cells.push_back(std::move(cell));
    else
      cells.push_back(std::nullopt);
    if (c == '\n' || c == std::char_traits<char>::eof()) return cells;
    if (c != ',') refuse(place, "has something after a closing quote");
  }
}

template <class Number>
Json number_of(const std::string& text, const std::string& place) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end)
    refuse(place, fmt::format("\"{}\" is no number", printable(text)));
  return value;
}

// The value that a cell stands for in a column.
Json value_of_cell(const std::string& cell, const Column& column, List list,
                   const std::string& place) {
  if (column.kind == ValueKind::kInteger) return number_of<int64_t>(cell, place);
  if (column.kind == ValueKind::kReal) return number_of<double>(cell, place);
  if (list == List::kNone || cell.starts_with(kBytes)) return cell;
  Json out = Json::array();
  std::istringstream words(cell);
  for (std::string word; words >> word;)
    out.push_back(list == List::kSamples ? number_of<double>(word, place)
                                         : number_of<uint64_t>(word, place));
  return out;
}

void read_csv(Connection& db, const std::string& folder) {
  const auto open = [&](const std::string& name) {
    std::ifstream in(fmt::format("{}/{}.csv", folder, name), std::ios::binary);
    if (!in) refuse(folder, fmt::format("{}.csv is missing or cannot be read", name));
    return in;
  };
  {
    std::ifstream in = open(kHead);
    const std::string place = fmt::format("{}/{}.csv", folder, kHead);
    const auto names = read_record(in, place), cells = read_record(in, place);
    if (!names || !cells || cells->size() != 3 || !(*cells)[0] || !(*cells)[1] || !(*cells)[2])
      refuse(place, "has not version, schema and origin");
    check_head({{"version", number_of<int64_t>(*(*cells)[0], place)},
                {"schema", number_of<int64_t>(*(*cells)[1], place)},
                {"origin", *(*cells)[2]}},
               db, place);
  }
  for (const TableSpec& table : exchanged_tables()) {
    std::ifstream in = open(table.name);
    Filler filler(db, table);
    const std::string file = fmt::format("{}/{}.csv", folder, table.name);
    const auto names = read_record(in, file);
    if (!names) refuse(file, "has no columns");
    for (int64_t number = 1;; ++number) {
      const std::string place = fmt::format("{}, record {}", file, number);
      const auto cells = read_record(in, place);
      if (!cells) break;
      if (cells->size() != names->size())
        refuse(place, fmt::format("has {} cells, not {}", cells->size(), names->size()));
      std::map<std::string, Json> row;
      for (size_t i = 0; i < cells->size(); ++i) {
        const std::string name = (*names)[i].value_or("");
        for (const Column& c : filler.columns())
          if (c.name == name)
            row[name] = (*cells)[i] ? value_of_cell(*(*cells)[i], c, list_of(table, c), place)
                                    : Json(nullptr);
      }
      filler.add(row, place);
    }
  }
}

}  // namespace

void export_text(const std::string& database, TextFormat format, const std::string& place) {
  const std::unique_ptr<Connection> db = open_sqlite_source(database);
  check_export_place(place, database, false);
  if (format == TextFormat::kJson) {
    const TemporaryFile file(place);
    write_json(*db, file.path());
    file.rename_to(place);
    return;
  }
  std::error_code error;
  // Its own: what is in a folder that is there already is somebody's.
  const std::string made = fmt::format("{}.tmp-{}", place, ::getpid());
  if (!fs::create_directory(made, error))
    throw Error(Status::kIo, made,
                error ? fmt::format("cannot be made ({})", error.message()) : "exists already",
                "name a place that you may write to");
  try {
    write_csv(*db, made);
    fs::rename(made, place);
  } catch (...) {
    fs::remove_all(made, error);
    throw;
  }
}

bool is_text_export(const std::string& place) {
  if (fs::is_directory(place)) return true;
  std::ifstream in(place, std::ios::binary);
  std::string begin(9, '\0');
  in.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return begin == "{\"nimble\"";
}

void import_text(const std::string& place, const std::string& database) {
  OpenOptions options;
  options.durable = false;
  const std::unique_ptr<Connection> db = open_sqlite(database, options);
  // One transaction: thousands of rows a second, and a table may come before its parent.
  db->begin(0, true);
  try {
    db->defer_foreign_keys();
    fs::is_directory(place) ? read_csv(*db, place) : read_json(*db, place);
    db->commit(0);
  } catch (...) {
    db->roll_back(0);
    throw;
  }
  db->script("PRAGMA journal_mode = DELETE");  // one file, as exports are
}

}  // namespace nimble::db
