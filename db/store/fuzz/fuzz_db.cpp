// Fuzz target `db`: importing any file adds sound records or is refused, and changes nothing then.
//
// A file that SQLite wrote has checks of its own at every byte, so an input has one of two forms:
//   "SQLite format 3"…   the file itself
//   else                 edits of a good export: table, column, row, kind of value (one byte each)
//                        and the value, written past all constraints
//
// To open a database, SQLite parses its schema, and that takes longer than all the rest. So the
// database that imports and the export that is edited stay open, and what an input has changed in
// them is put back behind it.
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "db/store/sqlite.h"
#include "db/store/store.h"
#include "db/store/tables.h"
#include "db/store/test/everything.h"
#include "vm/base/file.h"
#include "vm/base/fuzz/fuzz.h"

namespace nimble::fuzz {
namespace {

using namespace db;  // NOLINT: the target is about nothing else

OpenOptions quiet() {
  OpenOptions options;
  options.clock_ms = [] { return int64_t{1'000'000}; };
  return options;
}

// The tables that an import fills. Others (identity, migration) are the database's own.
std::vector<std::string> tables_of_records() {
  std::vector<std::string> out = {"import_batch", "event", "dispatch_standing", "newest_measured"};
  for (const TableSpec& t : exchanged_tables()) out.push_back(t.name);
  return out;
}

// Writes what the schema forbids.
std::unique_ptr<SqliteConnection> open_for_damage(const std::string& file) {
  auto db = std::make_unique<SqliteConnection>(file, SQLITE_OPEN_READWRITE, "", "fuzzed");
  db->script(
      "PRAGMA synchronous = OFF; PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF");
  sqlite3_db_config(db->raw(), SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  return db;
}

// A good export, a copy of it to edit, and an empty database, made once.
class Fixture {
 public:
  Fixture() {
    {
      auto store = Store::open(scratch.file("world.db"), quiet());
      add_everything(*store, 8);
      SqliteConnection(scratch.file("world.db"), SQLITE_OPEN_READWRITE, "", "world")
          .run(
              "INSERT INTO tombstone (table_name, row_key, reason, created_at) "
              "VALUES ('samples', ?, 'disk', 5)",
              new_uuid());
      store->export_to(scratch.file("good.nimbledb"));
    }
    good = read_text_file(scratch.file("good.nimbledb"));
    scratch.write("edited.nimbledb", good);
    edited = open_for_damage(scratch.file("edited.nimbledb"));
    edited->script("PRAGMA journal_mode = MEMORY");
    edited->run("ATTACH ? AS good", scratch.file("good.nimbledb"));
    into = Store::open(scratch.file("into.db"), quiet());
    emptier = open_for_damage(scratch.file("into.db"));
  }

  // Undoes the edits of these tables.
  void restore(const std::set<std::string>& tables) {
    for (const std::string& t : tables) {
      edited->run(fmt::format("DELETE FROM main.{}", t));
      edited->run(fmt::format("INSERT INTO main.{0} SELECT * FROM good.{0}", t));
    }
  }
  void empty_database() {
    emptier->run("BEGIN IMMEDIATE");
    for (const std::string& t : tables_of_records()) emptier->run("DELETE FROM " + t);
    emptier->run("COMMIT");
  }

  ScratchFolder scratch;
  std::string good;
  std::unique_ptr<SqliteConnection> edited;
  std::unique_ptr<Store> into;

 private:
  std::unique_ptr<SqliteConnection> emptier;
};

Fixture& fixture() {
  static Fixture kFixture;
  return kFixture;
}

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t byte() {
    const std::span<const uint8_t> one = take(1);
    return one.empty() ? 0 : one[0];
  }
  template <class T>
  T number() {
    T value = 0;
    const std::span<const uint8_t> from = take(sizeof value);
    if (!from.empty()) std::memcpy(&value, from.data(), from.size());
    return value;
  }
  std::span<const uint8_t> take(size_t size) {
    const std::span<const uint8_t> out = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(out.size());
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
};

std::vector<std::string> columns_of(const TableSpec& table) {
  std::vector<std::string> out(1);
  for (const char* c = table.columns; *c; ++c) {
    if (*c == ',')
      out.emplace_back();
    else if (*c != ' ')
      out.back() += *c;
  }
  return out;
}

// One edit; what SQLite refuses (a duplicate key) is left out. Tells its table.
void edit(Connection& db, Input* in, std::set<std::string>* touched) {
  const std::span<const TableSpec> tables = exchanged_tables();
  const TableSpec& table = tables[in->byte() % tables.size()];
  touched->insert(table.name);
  const std::vector<std::string> columns = columns_of(table);
  const std::string& column = columns[in->byte() % columns.size()];
  const int64_t row = in->byte() % 4;
  const std::string where =
      fmt::format("WHERE rowid = (SELECT rowid FROM main.{} ORDER BY rowid LIMIT 1 OFFSET {})",
                  table.name, row);
  const std::string set = fmt::format("UPDATE main.{} SET {} = ?1 {}", table.name, column, where);
  try {
    switch (in->byte() % 6) {
      case 0:
        return db.run(set, std::optional<std::string>());
      case 1:
        return db.run(set, in->number<int64_t>());
      case 2:
        return db.run(set, in->number<double>());
      case 3: {
        const std::span<const uint8_t> text = in->take(in->byte());
        return db.run(set, text_of(text));
      }
      case 4: {
        const std::span<const uint8_t> blob = in->take(in->byte());
        return db.run(set, blob);
      }
      default:
        return db.run(fmt::format("DELETE FROM main.{} {}", table.name, where));
    }
  } catch (const Error&) {
  }
}

// An empty database may hold the export twice, and is sound after either import.
void import_it(const std::string& file) {
  Store& store = *fixture().into;
  try {
    store.import_from(file);
  } catch (const Error& e) {
    const std::string text = e.what();
    NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", text);
    NIMBLE_FUZZ_REQUIRE(text.find('\n') == std::string::npos, "of several lines: {}", text);
    NIMBLE_FUZZ_REQUIRE(store.campaigns(1, {}).empty() && store.workloads(1, "").empty(),
                        "a refused import left records");
    return;
  }
  const CheckReport report = store.check();
  NIMBLE_FUZZ_REQUIRE(report.sound(), "imported, but not sound: {}", report.problems[0]);
  const ImportReport again = store.import_from(file);
  NIMBLE_FUZZ_REQUIRE(again.rows_added == 0 && again.rows_updated == 0,
                      "importing again adds {} rows and updates {}", again.rows_added,
                      again.rows_updated);
  fixture().empty_database();
}

std::string edit_of(uint8_t table, uint8_t column, uint8_t row, uint8_t kind,
                    const std::string& value = {}) {
  std::string out;
  for (const uint8_t byte : {table, column, row, kind}) out += static_cast<char>(byte);
  return out + value;
}

}  // namespace

void run(std::span<const uint8_t> input) {
  Fixture& f = fixture();
  if (text_of(input).starts_with("SQLite format 3")) {
    f.scratch.write("whole.nimbledb", text_of(input));
    return import_it(f.scratch.file("whole.nimbledb"));
  }
  std::set<std::string> touched;
  Input in(input);
  f.edited->run("BEGIN");
  for (int edits = 0; edits < 8 && !in.empty(); ++edits) edit(*f.edited, &in, &touched);
  f.edited->run("COMMIT");
  import_it(f.scratch.file("edited.nimbledb"));
  f.edited->run("BEGIN");
  f.restore(touched);
  f.edited->run("COMMIT");
}

std::vector<Seed> seeds() {
  std::vector<Seed> out = {{"export.nimbledb", fixture().good}, {"no-edit", ""}};
  // Every column of every table: nothing, or a text where a number or a key belongs; a row less.
  const std::span<const TableSpec> tables = exchanged_tables();
  for (size_t t = 0; t < tables.size(); ++t) {
    const auto table = static_cast<uint8_t>(t);
    const size_t columns = columns_of(tables[t]).size();
    for (size_t c = 0; c < columns; ++c) {
      const auto column = static_cast<uint8_t>(c);
      const std::string name = fmt::format("{}-{}", tables[t].name, c);
      out.push_back({name + "-null", edit_of(table, column, 0, 0)});
      out.push_back({name + "-text", edit_of(table, column, 0, 3, "\x04text")});
    }
    out.push_back({fmt::format("{}-deleted", tables[t].name), edit_of(table, 0, 0, 5)});
  }
  return out;
}

std::vector<std::string> dictionary() {
  return {"SQLite format 3",
          "queued",
          "claimed",
          "ok",
          "warm",
          "cold",
          "search",
          "cross",
          "draft",
          "active",
          "retired",
          "{\"m\": [0, null]}",
          "f32",
          std::string("\0\0\0\0\0\0\xf0\x7f", 8),
          std::string("\0\0\0\0\0\0\xf8\x7f", 8),
          std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8)};
}

}  // namespace nimble::fuzz
