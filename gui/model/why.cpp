#include "gui/model/why.h"

#include <algorithm>
#include <cmath>

#include "gui/model/units.h"
#include "vm/base/error.h"

namespace nimble::gui {
namespace {

size_t shape_to_explain(const WorkloadFacts& f, const Choice& choice) {
  if (const auto chosen = f.shape_index(choice.shape)) return *chosen;
  size_t nearest = 0;
  double least = INFINITY;
  for (size_t s = 0; s < f.shapes.size(); ++s) {
    double distance = 0;
    for (const auto& [symbol, extent] : f.shapes[s].dims)
      distance += std::abs(std::log(std::max<double>(1, static_cast<double>(extent)) / 64));
    if (distance < least) {
      least = distance;
      nearest = s;
    }
  }
  return nearest;
}

struct Chain {
  const db::DispatchTable* table = nullptr;
  std::vector<TreeStep> path;
  DispatchTree tree;
  const db::DispatchEntry* entry = nullptr;
  size_t shape = 0;
  const Cell* cell = nullptr;  // of the entry's configuration at the shape
};

Chain chain_of(const WorkloadFacts& f, const Choice& choice) {
  Chain chain;
  chain.table = f.table(choice.table);
  if (f.shapes.empty()) return chain;
  chain.shape = shape_to_explain(f, choice);
  if (!chain.table) return chain;
  chain.tree = DispatchTree::from_json(chain.table->tree, chain.table->entries.size());
  chain.path = chain.tree.path_at(f.shapes[chain.shape].dims, f.record.threads);
  chain.entry = &chain.table->entries[static_cast<size_t>(chain.path.back().value)];
  if (const auto c = f.config_index(chain.entry->config)) chain.cell = f.cell(*c, chain.shape);
  return chain;
}

QString time_of(const db::Result& r) {
  return QObject::tr("%1 (95 %: %2 to %3), %4 samples, %5")
      .arg(time_text(r.median_ns), time_text(r.ci_low_ns), time_text(r.ci_high_ns), count_text(r.n),
           plain_text(db::name_of(r.role)));
}

class Steps {
 public:
  void add(const QString& what, const QString& text, Choice choice = {}) {
    steps.push_back({what, text, std::move(choice)});
  }
  std::vector<WhyStep> steps;
};

void add_table(Steps& out, const WorkloadFacts& f, const Chain& chain) {
  const db::DispatchTable& t = *chain.table;
  Choice to_table;
  to_table.table = t.uuid;
  out.add(QObject::tr("Dispatch table"),
          QObject::tr("%1, version %2, %3, made %4, class “%5”; objective: %6")
              .arg(plain_text(t.uuid))
              .arg(t.version)
              .arg(plain_text(db::name_of(t.status)), moment_text(t.created_at),
                   plain_text(t.policy_class), plain_text(t.objective)),
          to_table);
  if (const auto it = f.comparisons.find(t.uuid); it != f.comparisons.end())
    for (const db::Comparison& c : it->second)
      out.add(QObject::tr("Compared"),
              QObject::tr("with %1: %2 of its time, at worst %3, at %4 shapes, side by side")
                  .arg(c.rival ? QObject::tr("table ") + short_id(*c.rival)
                               : QObject::tr("the default schedules"),
                       number_text(c.ratio), number_text(c.worst_ratio))
                  .arg(c.shapes));
  for (const db::Override& o : f.overrides)
    out.add(QObject::tr("Override in force"),
            QObject::tr("for %1: configuration %2, “%3”")
                .arg(plain_text(o.region), short_id(o.config), plain_text(o.reason)));
  for (const TreeStep& step : chain.path) {
    const TreeNode& n = chain.tree.nodes()[step.node];
    if (n.leaf) continue;
    out.add(QObject::tr("Test"), QObject::tr("%1? It is %2: %3")
                                     .arg(plain_text(text_of(n)))
                                     .arg(step.value)
                                     .arg(step.holds ? QObject::tr("yes") : QObject::tr("no")));
  }
  const db::DispatchEntry& e = *chain.entry;
  QString entry = QObject::tr("%1, for %2").arg(chain.path.back().value).arg(plain_text(e.range));
  if (e.expected_ns) entry += QObject::tr("; expected %1").arg(time_text(*e.expected_ns));
  if (e.regret) entry += QObject::tr("; expected regret %1").arg(percent_text(*e.regret));
  if (e.fallback) entry += QObject::tr("; falls back to %1").arg(short_id(*e.fallback));
  if (!e.reason.empty()) entry += QObject::tr("; “%1”").arg(plain_text(e.reason));
  out.add(QObject::tr("Entry"), entry, to_table);
}

void add_measurement(Steps& out, const MeasurementFacts& m) {
  const db::Measurement& of = m.measurement;
  Choice to_measurement;
  to_measurement.measurement = of.uuid;
  QStringList samples;
  for (size_t i = 0; i < of.samples_ns.size() && i < 64; ++i) {
    const bool outlier = i < of.outliers.size() && of.outliers[i];
    samples << number_text(of.samples_ns[i], 6) + (outlier ? QStringLiteral("*") : QString());
  }
  out.add(QObject::tr("Raw samples"),
          QObject::tr("ns, in the order taken, * an outlier: %1%2")
              .arg(samples.join(QStringLiteral(", ")),
                   of.samples_ns.size() > 64 ? QStringLiteral(", …") : QString()),
          to_measurement);
  out.add(QObject::tr("Taken"), QObject::tr("%1 on machine %2, host state %3; stopped: %4")
                                    .arg(moment_text(of.created_at), short_id(of.machine),
                                         short_id(of.host_state), plain_text(of.stop_reason)));
  if (m.host)
    out.add(QObject::tr("Host state"),
            QObject::tr("%1: %2").arg(plain_text(m.hostname.empty() ? of.machine : m.hostname),
                                      plain_text(text_of(*m.host))));
  if (!m.correctness.empty())
    out.add(QObject::tr("Checked"),
            QObject::tr("%1: largest error %2, allowed %3")
                .arg(m.correctness.front().pass ? QObject::tr("right") : QObject::tr("wrong"),
                     number_text(m.correctness.front().max_error),
                     number_text(m.correctness.front().tolerance)));
  if (m.trial) {
    Choice to_campaign;
    to_campaign.campaign = m.trial->key.campaign;
    out.add(QObject::tr("Campaign"),
            QObject::tr("%1, trial %2 of its queue, round %3")
                .arg(short_id(m.trial->key.campaign))
                .arg(m.trial->position)
                .arg(m.trial->round),
            to_campaign);
  }
}

}  // namespace

db::Uuid measurement_behind(const WorkloadFacts& f, const Choice& choice) {
  try {
    const Chain chain = chain_of(f, choice);
    return chain.cell ? chain.cell->result.measurement : db::Uuid();
  } catch (const Error&) {
    return {};  // why() tells
  }
}

std::vector<WhyStep> why(const WorkloadFacts& f, const Choice& choice,
                         const MeasurementFacts* measurement) {
  Steps out;
  out.add(QObject::tr("Workload"), plain_text(f.record.canonical, 4000));
  out.add(QObject::tr("Hardware"),
          QObject::tr("%1, %2, %3")
              .arg(plain_text(f.machine.model_name), plain_text(f.machine.isa),
                   plain_text(f.machine.topology)));
  Chain chain;
  try {
    chain = chain_of(f, choice);
  } catch (const Error& e) {
    out.add(QObject::tr("Broken table"), plain_text(e.what(), 1000));
    return out.steps;
  }
  if (f.shapes.empty()) return out.steps;
  const ShapeFacts& shape = f.shapes[chain.shape];
  Choice to_shape;
  to_shape.shape = shape.key;
  out.add(QObject::tr("Shape"), plain_text(shape.key), to_shape);
  if (!chain.table) {
    out.add(QObject::tr("Dispatch table"),
            QObject::tr("none: the template's default schedule serves every shape"));
    return out.steps;
  }
  add_table(out, f, chain);
  const db::Hash& config = chain.entry->config;
  Choice to_config = to_shape;
  to_config.config = config;
  const auto info = chain.table->configs.find(config);
  out.add(QObject::tr("Configuration"),
          info == chain.table->configs.end()
              ? plain_text(config)
              : QObject::tr("%1 (version %2) %3, hash %4")
                    .arg(plain_text(info->second.template_name))
                    .arg(info->second.template_version)
                    .arg(plain_text(info->second.json, 2000), plain_text(config)),
          to_config);
  if (!chain.entry->code_hash.empty())
    out.add(QObject::tr("Code"), QObject::tr("hash %1").arg(plain_text(chain.entry->code_hash)));
  if (chain.cell)
    out.add(QObject::tr("Measured here"), time_of(chain.cell->result), to_config);
  else
    out.add(QObject::tr("Measured here"), QObject::tr("never: the entry rests on other shapes"));
  if (const Cell* best = f.best_at(chain.shape)) {
    Choice to_best = to_shape;
    to_best.config = best->result.config;
    out.add(QObject::tr("Best known here"),
            time_of(best->result) + QStringLiteral(" · ") +
                plain_text(knobs_text(f.configs[best->config])),
            to_best);
  }
  for (size_t c = 0; c < f.configs.size(); ++c)
    if (const Cell* cell = f.configs[c].is_default ? f.cell(c, chain.shape) : nullptr)
      out.add(QObject::tr("Default schedule here"), time_of(cell->result));
  for (const PolicyRow& p : f.policies)
    if (p.hash == f.policy)
      out.add(QObject::tr("Policy"),
              QObject::tr("%1, %2, threads: %3, timer %4: %5")
                  .arg(plain_text(p.policy.policy_class), plain_text(db::name_of(p.policy.mode)))
                  .arg(p.policy.threads)
                  .arg(plain_text(p.policy.timer), plain_text(p.policy.stop_rule)));
  if (measurement) add_measurement(out, *measurement);
  return out.steps;
}

QString text_of(const std::vector<WhyStep>& steps) {
  QString text;
  for (const WhyStep& s : steps) text += s.what + QStringLiteral(": ") + s.text + QChar('\n');
  return text;
}

}  // namespace nimble::gui
