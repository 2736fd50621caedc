#include "db/tools/ceilings.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "db/store/hash.h"
#include "db/store/host_records.h"
#include "db/store/identifier.h"
#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/printable.h"

namespace nimble::db {
namespace {

using Json = nlohmann::json;

constexpr char kListMachines[] = "list them: nimble db ceilings";
constexpr size_t kMostCeilings = 10'000;
constexpr int64_t kMostMachines = 10'000;

// Whose ceilings they are: the one named, or this.
Uuid machine_of(Store& store, const std::string& prefix) {
  if (!prefix.empty()) return the_one(store, Kind::kMachine, prefix, kListMachines);
  store.put(host_hardware());
  return store.put(host_machine());
}

std::vector<Ceiling> ceilings_of(const Json& report, const std::string& place) {
  const auto refuse = [&](const std::string& problem) -> void {
    throw Error(Status::kInvalidArgument, place, problem,
                "give what nimble doctor --measure --format json prints");
  };
  const Json::json_pointer where("/measured/ceilings");
  if (!report.is_object() || !report.contains(where) || !report.at(where).is_array())
    refuse("tells no measured ceilings");
  const Json& rows = report.at(where);
  if (rows.size() > kMostCeilings) refuse(fmt::format("tells {} ceilings", rows.size()));
  std::vector<Ceiling> all;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    const auto has = [&](const char* name, auto is) {
      return row.is_object() && row.contains(name) && is(row.at(name));
    };
    const auto text = [](const Json& v) { return v.is_string(); };
    const auto whole = [](const Json& v) { return v.is_number_unsigned(); };
    const auto number = [](const Json& v) { return v.is_number(); };
    if (!has("kind", text) || !has("dtype", text) || !has("threads", whole) ||
        !has("value", number) || !has("unit", text))
      refuse(fmt::format("ceiling {} lacks kind, dtype, threads, value or unit", i));
    Ceiling c;
    c.kind = row.at("kind").get<std::string>();
    c.dtype = row.at("dtype").get<std::string>();
    if (c.dtype == "any") c.dtype.clear();
    const auto threads = row.at("threads").get<uint64_t>();
    c.value = row.at("value").get<double>();
    const auto unit = row.at("unit").get<std::string>();
    if (c.kind.empty() || threads < 1 || threads > 1'000'000)
      refuse(fmt::format("ceiling {} is of no kind or of {} threads", i, threads));
    c.threads = static_cast<int64_t>(threads);
    // The database keeps no units: they follow from the kind.
    if (unit != (c.kind == "compute" ? "op/s" : "byte/s"))
      refuse(fmt::format("ceiling {} of kind {} is in {}", i, printable(c.kind), printable(unit)));
    if (!(c.value > 0) || !std::isfinite(c.value))
      refuse(fmt::format("ceiling {} of {} is no rate", i, c.value));
    all.push_back(std::move(c));
  }
  if (all.empty()) refuse("tells no measured ceilings");
  return all;
}

}  // namespace

int64_t add_ceilings(Store& store, const std::string& report, const std::string& place,
                     const std::string& machine) {
  const Json json = parse_json(report, [&](const std::string& problem) {
    throw Error(Status::kInvalidArgument, place, problem,
                "give what nimble doctor --measure --format json prints");
  });
  std::vector<Ceiling> all = ceilings_of(json, place);
  store.transaction([&] {
    const Uuid uuid = machine_of(store, machine);
    const std::optional<Machine> owner = store.machine(uuid);
    NIMBLE_CHECK(owner, "machine {} was there", uuid);
    const std::optional<Hardware> hardware = store.hardware(owner->hardware);
    const auto cpu = json.value(Json::json_pointer("/cpu/model"), Json());
    if (hardware && cpu.is_string() && cpu.get<std::string>() != hardware->model_name)
      throw Error(
          Status::kInvalidArgument, place,
          fmt::format("was measured on {}, but machine {} is {}", printable(cpu.get<std::string>()),
                      printable(owner->hostname), printable(hardware->model_name)),
          "name the machine: --machine UUID");
    // One report is one set of rows, however often it is added.
    const auto at = json.value(Json::json_pointer("/measured/at_ms"), Json());
    for (Ceiling& c : all) {
      c.machine = uuid;
      c.uuid = uuid_from_hash(
          hash_of_fields("ceiling", {uuid, at.dump(), c.kind, c.dtype, std::to_string(c.threads),
                                     fmt::format("{}", c.value)}));
      store.add(c);
    }
  });
  return static_cast<int64_t>(all.size());
}

Table show_ceilings(Store& store, const std::string& machine) {
  Table out({"machine", "host", "kind", "dtype", "threads", "value", "unit", "measured"});
  const std::vector<Uuid> machines =
      machine.empty() ? store.find(Kind::kMachine, "", kMostMachines)
                      : std::vector<Uuid>{the_one(store, Kind::kMachine, machine, kListMachines)};
  for (const Uuid& uuid : machines) {
    const std::optional<Machine> owner = store.machine(uuid);
    for (const Ceiling& c : store.ceilings(uuid))
      out.add({uuid, owner ? owner->hostname : "", c.kind, c.dtype.empty() ? "any" : c.dtype,
               c.threads, c.value, c.kind == "compute" ? "op/s" : "byte/s",
               cell::time(c.created_at)});
  }
  return out;
}

}  // namespace nimble::db
