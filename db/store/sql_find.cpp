// What is named by the beginning of its key.
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {
namespace {

struct Place {
  Kind kind;
  std::string_view name, table;
};
constexpr Place kPlaces[] = {
    {Kind::kCampaign, "campaign", "campaign"},
    {Kind::kTrial, "trial", "trial"},
    {Kind::kMeasurement, "measurement", "measurement"},
    {Kind::kTable, "table", "dispatch_table"},
    {Kind::kMachine, "machine", "machine"},
};

const Place& place_of(Kind kind) {
  for (const Place& p : kPlaces)
    if (p.kind == kind) return p;
  NIMBLE_UNREACHABLE("kind {}", static_cast<int>(kind));
}

}  // namespace

std::string_view name_of(Kind kind) {
  return place_of(kind).name;
}

std::vector<std::string> SqlStore::find(Kind kind, const std::string& prefix, int64_t limit) {
  // Keys are hex digits and dashes, all of which come before 'g' in bytes.
  constexpr std::string_view kCharacters = "0123456789abcdef-";
  if (limit < 1 || prefix.find_first_not_of(kCharacters) != std::string::npos) return {};
  const Place& place = place_of(kind);
  Statement row = db_->prepare(fmt::format(
      "SELECT uuid FROM {} WHERE uuid >= ? AND uuid < ? ORDER BY uuid LIMIT ?", place.table));
  row.bind(prefix, prefix + "g", limit);
  std::vector<std::string> found;
  while (row.step()) found.push_back(row.text(0));
  return found;
}

}  // namespace nimble::db
