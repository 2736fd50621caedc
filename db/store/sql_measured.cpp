// Measurements as a stream: what compares or exports whole campaigns reads each row once.
#include "db/store/sql_store.h"
#include "vm/base/error.h"

namespace nimble::db {

void SqlStore::measured(const MeasuredQuery& query,
                        const std::function<bool(const Measured&)>& visit) {
  // Only what is asked for is in the text: an index serves it then.
  std::string where;
  std::vector<std::string> values;
  const auto demand = [&](const char* column, const std::optional<std::string>& value) {
    if (!value) return;
    where += fmt::format(" AND {} = ?", column);
    values.push_back(*value);
  };
  demand("t.campaign", query.campaign);
  demand("t.workload", query.workload);
  demand("mc.hardware", query.hardware);
  if (!query.toolchains.empty()) {
    std::string marks;
    for (const Hash& t : query.toolchains) {
      marks += marks.empty() ? "?" : ",?";
      values.push_back(t);
    }
    where += fmt::format(" AND a.toolchain IN ({})", marks);
  }
  Statement row = db_->prepare_streaming(fmt::format(
      "SELECT m.uuid, m.trial, t.campaign, t.workload, t.shape, t.config, m.artifact, a.toolchain, "
      "m.policy, mc.hardware, m.machine, m.host_state, a.code_hash, s.dims, s.flops, c.json, "
      "tm.name, tm.version, t.role, t.threads, t.round, m.n, m.median_ns, m.ci_low_ns, "
      "m.ci_high_ns, a.compile_ms, m.stop_reason, m.created_at "
      "FROM trial t JOIN measurement m ON m.trial = t.uuid JOIN machine mc ON mc.uuid = m.machine "
      "JOIN artifact a ON a.hash = m.artifact JOIN shape s ON s.hash = t.shape "
      "JOIN config c ON c.hash = t.config JOIN template tm ON tm.hash = c.template "
      "WHERE t.state = 'ok'{}",
      where));
  for (size_t i = 0; i < values.size(); ++i) row.bind_at(static_cast<int>(i) + 1, values[i]);
  while (row.step()) {
    Measured m;
    m.measurement = row.text(0);
    m.trial = row.text(1);
    m.campaign = row.text(2);
    m.workload = row.text(3);
    m.shape = row.text(4);
    m.config = row.text(5);
    m.artifact = row.text(6);
    m.toolchain = row.text(7);
    m.policy = row.text(8);
    m.hardware = row.text(9);
    m.machine = row.text(10);
    m.host_state = row.text(11);
    m.code_hash = row.text(12);
    m.dims = dims_from_text(row.text(13));
    m.flops = row.integer(14);
    m.config_json = row.text(15);
    m.template_name = row.text(16);
    m.template_version = row.integer(17);
    m.role = role_from_name(row.text(18)).value();
    m.threads = row.integer(19);
    m.round = row.integer(20);
    m.n = row.integer(21);
    m.median_ns = row.real(22);
    m.ci_low_ns = row.real(23);
    m.ci_high_ns = row.real(24);
    m.compile_ms = row.real(25);
    m.stop_reason = row.text(26);
    m.created_at = row.integer(27);
    if (!visit(m)) return;
  }
}

}  // namespace nimble::db
