#include "vm/arguments/table.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <ostream>

#include "vm/base/error.h"
#include "vm/base/json_text.h"
#include "vm/base/text_table.h"

namespace nimble {
namespace {

using Json = Table::Json;

std::string plain(const Json& value) {
  // JSON has no word for what is not finite, either.
  if (value.is_null() || (value.is_number_float() && !std::isfinite(value.get<double>())))
    return "";
  if (value.is_string()) return value.get<std::string>();
  return json_text(value, -1);
}

std::string rounded(const Json& value) {
  return value.is_number_float() && std::isfinite(value.get<double>())
             ? fmt::format("{:.6g}", value.get<double>())
             : plain(value);
}

Json member(const Json& row, const std::string& key) {
  const auto found = row.find(key);
  return found == row.end() ? Json() : *found;
}

}  // namespace

CLI::Option* add_format(CLI::App& app, Format* format, const std::string& what) {
  const std::map<std::string, Format> formats = {
      {"table", Format::kTable}, {"json", Format::kJson}, {"csv", Format::kCsv}};
  CLI::Option* option = app.add_option_function<std::string>(
      "--format", [=](const std::string& name) { *format = formats.at(name); },
      what + " as table, json or csv");
  return option->check(CLI::IsMember({"table", "json", "csv"}))
      ->type_name("FORMAT")
      ->default_str("table");
}

void Table::add(std::vector<Json> row) {
  NIMBLE_CHECK(row.size() == columns_.size(), "{} cells under {} columns", row.size(),
               columns_.size());
  Json object = Json::object();
  for (size_t i = 0; i < row.size(); ++i) object[columns_[i].key] = std::move(row[i]);
  rows_.push_back(std::move(object));
}

void Table::add_object(Json row) {
  NIMBLE_CHECK(row.is_object());
  rows_.push_back(std::move(row));
}

std::string Table::text(const std::string& none, const std::string& indent) const {
  if (rows_.empty()) return none.empty() ? "" : none + "\n";
  std::vector<const Column*> shown;
  std::vector<std::string> headings;
  for (const Column& c : columns_) {
    if (c.heading.empty()) continue;
    shown.push_back(&c);
    headings.push_back(c.heading);
  }
  TextTable table(headings);
  for (size_t i = 0; i < shown.size(); ++i) {
    bool numbers = false, others = false;
    for (const Json& row : rows_) {
      const Json value = member(row, shown[i]->key);
      numbers |= value.is_number();
      others |= !value.is_number() && !value.is_null();
    }
    if (numbers && !others) table.align_right(i);
  }
  for (const Json& row : rows_) {
    std::vector<std::string> cells;
    for (const Column* c : shown) {
      const Json value = member(row, c->key);
      cells.push_back(c->text ? c->text(value) : rounded(value));
    }
    table.add(std::move(cells));
  }
  return table.str(indent);
}

std::string Table::csv() const {
  std::vector<std::string> names;
  for (const Column& c : columns_) names.push_back(c.key);
  TextTable table(names);
  for (const Json& row : rows_) {
    std::vector<std::string> cells;
    for (const Column& c : columns_) cells.push_back(plain(member(row, c.key)));
    table.add(std::move(cells));
  }
  return table.csv();
}

void Table::print(std::ostream& out, Format format, const std::string& none) const {
  switch (format) {
    case Format::kJson:
      out << json_text(rows_) << '\n';
      return;
    case Format::kCsv:
      out << csv();
      return;
    case Format::kTable:
      out << text(none);
      return;
  }
}

void print_report(std::ostream& out, Format format, const std::function<Table::Json()>& json,
                  const std::function<Table()>& csv, const std::function<void()>& people) {
  switch (format) {
    case Format::kJson:
      out << json_text(json()) << '\n';
      return;
    case Format::kCsv:
      out << csv().csv();
      return;
    case Format::kTable:
      people();
      return;
  }
}

namespace cell {

std::string microseconds(const Json& ns) {
  return ns.is_number() && ns.get<double>() > 0 ? fmt::format("{:.1f} us", ns.get<double>() / 1000)
                                                : "-";
}

std::string percent(const Json& share) {
  return share.is_number() ? fmt::format("{:.1f}%", share.get<double>() * 100) : "-";
}

std::string short_id(const Json& id) {
  return id.is_string() ? id.get<std::string>().substr(0, 8) : "-";
}

std::string time(const Json& ms) {
  if (!ms.is_number_integer()) return "-";
  const std::time_t seconds = ms.get<int64_t>() / 1000;
  std::tm parts{};
  if (!gmtime_r(&seconds, &parts)) return "?";
  char text[32];
  return std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts) ? text : "?";
}

}  // namespace cell
}  // namespace nimble
