// Fuzz target `text`: reading any text as an export (JSON lines, or a folder of CSV files) makes a
// database or is refused, and what was made is judged by import like any file from elsewhere.
//
// An input is the JSON file itself, or for CSV 'C' and then the files, each as its name, a line's
// end, its text and a byte 0.
#include <filesystem>

#include "db/store/store.h"
#include "db/store/test/everything.h"
#include "db/store/text_records.h"
#include "vm/base/file.h"
#include "vm/base/fuzz/fuzz.h"

namespace nimble::fuzz {
namespace {

using namespace db;  // NOLINT: the target is about nothing else
namespace fs = std::filesystem;

OpenOptions quiet() {
  OpenOptions options;
  options.clock_ms = [] { return int64_t{1'000'000}; };
  options.durable = false;
  return options;
}

const ScratchFolder& scratch() {
  static const ScratchFolder kScratch;
  return kScratch;
}

// A small export, and where both kinds of text of it stand. Made once.
struct Good {
  std::string json, csv;
  Good() {
    auto store = Store::open(scratch().file("world.db"), quiet());
    add_everything(*store, 8);
    store->export_to(scratch().file("good.nimbledb"));
    export_text(scratch().file("good.nimbledb"), TextFormat::kJson, scratch().file("good.json"));
    export_text(scratch().file("good.nimbledb"), TextFormat::kCsv, scratch().file("good.csv"));
    json = read_text_file(scratch().file("good.json"));
    csv = "C";
    for (const auto& entry : fs::directory_iterator(scratch().file("good.csv")))
      csv += entry.path().filename().string() + "\n" + read_text_file(entry.path().string()) +
             std::string(1, '\0');
  }
};

const Good& good() {
  static const Good kGood;
  return kGood;
}

// A name that stays in its folder.
bool is_plain(std::string_view name) {
  return !name.empty() && name.size() < 100 &&
         name.find_first_of("/\0") == std::string_view::npos && name != "." && name != "..";
}

void write_csv_files(std::string_view text, const std::string& folder) {
  fs::create_directory(folder);
  for (int files = 0; files < 60 && !text.empty(); ++files) {
    const std::string_view file = text.substr(0, text.find('\0'));
    text.remove_prefix(std::min(text.size(), file.size() + 1));
    const size_t end = std::min(file.find('\n'), file.size());
    if (is_plain(file.substr(0, end)))
      scratch().write("in/" + std::string(file.substr(0, end)),
                      file.substr(std::min(file.size(), end + 1)));
  }
}

// What a refusal must look like; whether it was one.
template <class Body>
bool refuses(const Body& body) {
  try {
    body();
    return false;
  } catch (const Error& e) {
    const std::string message = e.what();
    NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", message);
    NIMBLE_FUZZ_REQUIRE(message.find('\n') == std::string::npos, "of several lines: {}", message);
    return true;
  }
}

void remove_files() {
  for (const char* name : {"in", "made.db", "made.db-journal", "made.db-wal", "made.db-shm",
                           "into.db", "into.db-wal", "into.db-shm"})
    fs::remove_all(scratch().file(name));
}

}  // namespace

void run(std::span<const uint8_t> input) {
  good();
  remove_files();
  const std::string_view text = text_of(input);
  const std::string place = scratch().file("in"), made = scratch().file("made.db");
  if (text.starts_with("C"))
    write_csv_files(text.substr(1), place);
  else
    scratch().write("in", text);
  const bool looks_like_one = is_text_export(place);
  const bool refused = refuses([&] { import_text(place, made); });
  NIMBLE_FUZZ_REQUIRE(refused || looks_like_one, "read, though it does not look like an export");
  if (refused) return;
  auto into = Store::open(scratch().file("into.db"), quiet());
  if (refuses([&] { into->import_from(made); })) return;
  const CheckReport report = into->check();
  NIMBLE_FUZZ_REQUIRE(report.sound(), "imported, but not sound: {}", report.problems[0]);
}

std::vector<Seed> seeds() {
  std::vector<Seed> out = {{"all.json", good().json}, {"all.csv", good().csv}};
  const std::string first = good().json.substr(0, good().json.find('\n') + 1);
  out.push_back({"none.json", first});
  out.push_back({"no-rows.csv", "Crecords.csv\nversion,schema,origin\n"});
  // Each line alone behind the first: what a row of each table is refused for.
  size_t at = first.size();
  for (int line = 0; at < good().json.size(); ++line) {
    const size_t end = std::min(good().json.find('\n', at), good().json.size() - 1) + 1;
    out.push_back({fmt::format("line-{}.json", line), first + good().json.substr(at, end - at)});
    at = end;
  }
  return out;
}

std::vector<std::string> dictionary() {
  return {"{\"nimble\": \"records\"",
          "\"version\": 1",
          "\"schema\"",
          "\"origin\"",
          "\"table\"",
          "\"row\"",
          "hex:",
          "\"\"",
          "null",
          "1e308",
          "-0.0",
          "9223372036854775807",
          "18446744073709551615",
          "records.csv\n",
          "samples.csv\n",
          "\\u0000",
          "\xff",
          "\r\n"};
}

}  // namespace nimble::fuzz
