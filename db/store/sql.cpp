#include "db/store/sql.h"

#include <new>

#include "vm/base/error.h"

namespace nimble::db {

Statement::~Statement() {
  if (!prepared_) return;
  prepared_->clear();
  try {
    home_->push_back(std::move(prepared_));
  } catch (const std::bad_alloc&) {
    // The next one is made anew.
  }
}

void Statement::bind_column(int index, const Statement& row, int column) {
  const ValueKind kind = row.prepared_->kind(column);
  switch (kind) {
    case ValueKind::kNull:
      return prepared_->bind_null(index, kind);
    case ValueKind::kInteger:
      return prepared_->bind(index, row.integer(column));
    case ValueKind::kReal:
      return prepared_->bind(index, row.real(column));
    case ValueKind::kText:
      return prepared_->bind(index, std::string_view(row.text(column)));
    case ValueKind::kBlob:
      return prepared_->bind(index, row.blob(column));
  }
}

void Statement::run() {
  while (step()) {
  }
}

std::optional<double> Statement::maybe_real(int column) const {
  return is_null(column) ? std::nullopt : std::optional(real(column));
}
std::optional<std::string> Statement::maybe_text(int column) const {
  return is_null(column) ? std::nullopt : std::optional(text(column));
}

Statement Connection::lend(std::string_view sql, bool streaming) {
  Statement::Shelf& shelf = idle_[std::string(sql) + (streaming ? "\n" : "")];
  std::unique_ptr<PreparedStatement> prepared;
  if (shelf.empty()) {
    prepared = make(sql, streaming);
  } else {
    prepared = std::move(shelf.back());
    shelf.pop_back();
  }
  return Statement(std::move(prepared), shelf);
}

Statement Connection::prepare(std::string_view sql) {
  return lend(sql, false);
}
Statement Connection::prepare_streaming(std::string_view sql) {
  return lend(sql, true);
}

int64_t Connection::integer(std::string_view sql) {
  Statement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

std::string Connection::text(std::string_view sql) {
  Statement statement = prepare(sql);
  return statement.step() ? statement.text(0) : std::string();
}

Transaction::Transaction(Connection& db, int& depth, bool exclusive)
    : db_(db), depth_(depth), level_(depth) {
  // What could not be undone when there was no memory at all.
  if (level_ == 0 && db_.in_transaction()) db_.roll_back(0);
  db_.begin(level_, exclusive);
  ++depth_;
}

Transaction::~Transaction() {
  if (!open_) return;
  --depth_;
  if (db_.in_transaction()) db_.roll_back(level_);
}

void Transaction::check_open() {
  if (!db_.in_transaction())
    throw Error(Status::kIo, db_.name(), "the transaction was undone by an earlier failure",
                "mend that and try again");
}

void Transaction::commit() {
  check_open();
  db_.commit(level_);
  open_ = false;
  --depth_;
}

void Transaction::commit_after(const std::string& last) {
  NIMBLE_CHECK(level_ == 0, "a savepoint ends no transaction");
  check_open();
  db_.commit_after(last);
  open_ = false;
  --depth_;
}

}  // namespace nimble::db
