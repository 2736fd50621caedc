// An INSERT of many rows at once: one statement where each row would be one. Private to db/store.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "db/store/sql.h"

namespace nimble::db {

class InsertRows {
 public:
  // `columns`: with commas. `parent` goes first: its rows
  // are what these name. As many rows as `at_once` go by themselves; flush() sends the others, and
  // what was never flushed is not written.
  InsertRows(Connection& db, std::string table, std::string columns, InsertRows* parent = nullptr,
             size_t at_once = 50)
      : db_(db),
        table_(std::move(table)),
        columns_(std::move(columns)),
        width_(1 + static_cast<int>(std::count(columns_.begin(), columns_.end(), ','))),
        at_once_(at_once),
        parent_(parent) {}

  // One value for each column; they are copied.
  template <class... Values>
  void add(Values... values) {
    rows_.push_back([... kept = keep(std::move(values))](Statement& s, int at) {
      (s.bind_at(at++, kept), ...);
    });
    if (rows_.size() == at_once_) flush();
  }

  void flush() {
    if (rows_.empty()) return;
    if (parent_) parent_->flush();
    std::string sql = "INSERT INTO " + table_ + " (" + columns_ + ") VALUES ", row = "(?";
    for (int i = 1; i < width_; ++i) row += ",?";
    row += ")";
    for (size_t i = 0; i < rows_.size(); ++i) sql += (i ? "," : "") + row;
    Statement insert = db_.prepare(sql);
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i](insert, 1 + static_cast<int>(i) * width_);
    insert.run();
    rows_.clear();
  }

 private:
  // What only points elsewhere may be gone when the row is sent.
  template <class T>
  static T keep(T value) {
    return value;
  }
  static std::string keep(std::string_view text) { return std::string(text); }
  static std::string keep(const char* text) { return text; }
  static std::vector<uint8_t> keep(std::span<const uint8_t> bytes) {
    return {bytes.begin(), bytes.end()};
  }

  Connection& db_;
  const std::string table_, columns_;
  const int width_;
  const size_t at_once_;
  InsertRows* const parent_;
  std::vector<std::function<void(Statement&, int)>> rows_;
};

}  // namespace nimble::db
