#include "gui/model/why.h"

#include <algorithm>
#include <cmath>

#include "gui/model/serving.h"
#include "gui/model/units.h"
#include "vm/base/error.h"

namespace nimble::gui {
namespace {

// The measured shape that is nearest to 64 of each symbol.
size_t middle_shape(const WorkloadFacts& f) {
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
  db::Dims dims;
  std::string key;              // of the shape
  std::optional<size_t> shape;  // nothing: it was never measured
  std::optional<Serving> serving;
  Served served;
  const Cell* cell = nullptr;  // of what serves, at the shape
};

// Throws Error(kCorrupt) for a tree that cannot be read.
Chain chain_of(const WorkloadFacts& f, const Choice& choice) {
  Chain chain;
  chain.table = f.table(choice.table);
  chain.shape = f.shape_index(choice.shape);
  try {
    if (!chain.shape && !choice.shape.empty()) chain.dims = db::dims_from_text(choice.shape);
  } catch (const Error&) {
    chain.dims.clear();  // of no shape at all
  }
  if (!chain.shape && chain.dims.empty()) {
    if (f.shapes.empty()) return chain;
    chain.shape = middle_shape(f);
  }
  if (chain.shape) chain.dims = f.shapes[*chain.shape].dims;
  chain.key = chain.shape ? f.shapes[*chain.shape].key : choice.shape;
  chain.serving.emplace(f, chain.table, Serving::Overrides::kLaid);
  chain.served = chain.serving->at(chain.dims);
  if (chain.shape) chain.cell = cell_of(f, chain.served, *chain.shape);
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

// What a kernel of a file was decided by, as the file tells it.
void add_origin(Steps& out, const FileOperator& o) {
  const ExplainedKernel& k = o.kernel;
  out.add(QObject::tr("Executable file"),
          QObject::tr("%1, BLAKE2b %2").arg(plain_text(o.file), plain_text(o.digest)));
  out.add(
      QObject::tr("Operator"),
      QObject::tr("%1 at %2: kernel %3, %4 calls, %5 %6")
          .arg(plain_text(k.operators), plain_text(db::text_of(k.symbols)), plain_text(k.kernel),
               count_text(k.calls), plain_text(k.implementation), plain_text(k.config, 2000)));
  QStringList path;
  for (const std::string& step : k.path) path << plain_text(step);
  out.add(QObject::tr("In the file"),
          QObject::tr("%1; by %2%3")
              .arg(path.isEmpty() ? QObject::tr("there is only one kernel")
                                  : path.join(QStringLiteral(", ")),
                   plain_text(k.summary, 1000),
                   k.range.empty() ? QString() : QObject::tr("; for %1").arg(plain_text(k.range))));
  if (!o.problem.empty()) out.add(QObject::tr("In the database"), plain_text(o.problem, 1000));
}

QString override_text(const db::Override& o) {
  return QObject::tr("%1 of %2, for %3: configuration %4, “%5”")
      .arg(short_id(o.uuid), moment_text(o.created_at), plain_text(o.region), short_id(o.config),
           plain_text(o.reason));
}

// The latest that holds serves; those before it are hidden by it or are of other shapes.
void add_overrides(Steps& out, const WorkloadFacts& f, const Chain& chain) {
  const auto& refused = chain.serving->refused();
  for (const db::Override& o : f.overrides) {
    Choice to_evidence;
    to_evidence.config = o.config;
    if (o.evidence) to_evidence.measurement = *o.evidence;
    const auto bad = std::ranges::find(refused, &o, [](const auto& r) { return r.first; });
    if (bad != refused.end())
      out.add(QObject::tr("Override left out"), plain_text(bad->second, 1000));
    else if (&o == chain.served.by)
      out.add(QObject::tr("Override serves"), override_text(o), to_evidence);
    else
      out.add(QObject::tr("Override elsewhere"), override_text(o), to_evidence);
  }
}

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
  for (const TreeStep& step : chain.serving->path_at(chain.dims)) {
    const TreeNode& n = chain.serving->tree().nodes()[step.node];
    if (n.leaf) continue;
    out.add(QObject::tr("Test"), QObject::tr("%1? It is %2: %3")
                                     .arg(plain_text(text_of(n)))
                                     .arg(step.value)
                                     .arg(step.holds ? QObject::tr("yes") : QObject::tr("no")));
  }
  const db::DispatchEntry& e = t.entries[static_cast<size_t>(chain.served.entry)];
  QString entry = QObject::tr("%1, for %2").arg(chain.served.entry).arg(plain_text(e.range));
  if (e.expected_ns) entry += QObject::tr("; expected %1").arg(time_text(*e.expected_ns));
  if (e.regret) entry += QObject::tr("; expected regret %1").arg(percent_text(*e.regret));
  if (!e.reason.empty()) entry += QObject::tr("; “%1”").arg(plain_text(e.reason));
  if (chain.served.by)
    entry += QObject::tr("; configuration %1, which the override hides").arg(short_id(e.config));
  out.add(chain.served.by ? QObject::tr("Entry hidden") : QObject::tr("Entry"), entry, to_table);
}

// Its configuration and code, as the override or the table knows them.
void add_configuration(Steps& out, const Chain& chain, const Choice& to_config) {
  const Served& served = chain.served;
  const db::ConfigInfo* info = served.by ? &served.by->info : nullptr;
  std::string code = served.by ? served.by->code_hash : std::string();
  if (!served.by) {
    const auto found = chain.table->configs.find(served.config);
    if (found != chain.table->configs.end()) info = &found->second;
    code = chain.table->entries[static_cast<size_t>(served.entry)].code_hash;
  }
  out.add(QObject::tr("Configuration"),
          info ? QObject::tr("%1 (version %2) %3, hash %4")
                     .arg(plain_text(info->template_name))
                     .arg(info->template_version)
                     .arg(plain_text(info->json, 2000), plain_text(served.config))
               : plain_text(served.config),
          to_config);
  if (!code.empty()) out.add(QObject::tr("Code"), QObject::tr("hash %1").arg(plain_text(code)));
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
          of.samples_ns.empty()
              ? removed_text(m)
              : QObject::tr("ns, in the order taken, * an outlier: %1%2")
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
    if (chain.cell) return chain.cell->result.measurement;
    // Never measured at this shape: what the override or the entry rests on.
    if (chain.served.by) return chain.served.by->evidence.value_or(db::Uuid());
    if (chain.served.entry < 0) return {};
    return chain.table->entries[static_cast<size_t>(chain.served.entry)].evidence.value_or(
        db::Uuid());
  } catch (const Error&) {
    return {};  // why() tells
  }
}

std::vector<WhyStep> why(const FileOperator& origin) {
  Steps out;
  add_origin(out, origin);
  return out.steps;
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
  if (!chain.serving) return out.steps;
  Choice to_shape;
  to_shape.shape = chain.key;
  out.add(QObject::tr("Shape"), plain_text(chain.key), to_shape);
  add_overrides(out, f, chain);
  if (chain.table)
    add_table(out, f, chain);
  else
    out.add(QObject::tr("Dispatch table"),
            chain.served.by
                ? QObject::tr("none: elsewhere the template's default schedule serves")
                : QObject::tr("none: the template's default schedule serves every shape"));
  if (chain.served.config.empty()) return out.steps;
  Choice to_config = to_shape;
  to_config.config = chain.served.config;
  add_configuration(out, chain, to_config);
  if (chain.cell)
    out.add(QObject::tr("Measured here"), time_of(chain.cell->result), to_config);
  else
    out.add(QObject::tr("Measured here"),
            chain.served.by ? QObject::tr("never: a person decided")
                            : QObject::tr("never: the entry rests on other shapes"));
  if (chain.shape) {
    if (const Cell* best = f.best_at(*chain.shape)) {
      Choice to_best = to_shape;
      to_best.config = best->result.config;
      out.add(QObject::tr("Best known here"),
              time_of(best->result) + QStringLiteral(" · ") +
                  plain_text(knobs_text(f.configs[best->config])),
              to_best);
    }
    for (size_t c = 0; c < f.configs.size(); ++c)
      if (const Cell* cell = f.configs[c].is_default ? f.cell(c, *chain.shape) : nullptr)
        out.add(QObject::tr("Default schedule here"), time_of(cell->result));
  }
  for (const PolicyRow& p : f.policies)
    if (p.hash == f.policy)
      out.add(QObject::tr("Policy"),
              QObject::tr("%1, %2, threads: %3, timer %4: %5")
                  .arg(plain_text(p.policy.policy_class), plain_text(db::name_of(p.policy.mode)))
                  .arg(p.policy.threads)
                  .arg(plain_text(p.policy.timer), plain_text(p.policy.stop_rule)));
  if (measurement) {
    const db::Measurement& m = measurement->measurement;
    if (measurement->shape != chain.key)
      out.add(
          QObject::tr("Evidence"),
          QObject::tr("%1 at %2 (95 %: %3 to %4), %5 samples")
              .arg(time_text(m.median_ns), plain_text(measurement->shape), time_text(m.ci_low_ns),
                   time_text(m.ci_high_ns), count_text(measurement->samples)));
    add_measurement(out, *measurement);
  }
  return out.steps;
}

QString removed_text(const MeasurementFacts& m) {
  return m.samples_removed ? QObject::tr(
                                 "the %1 raw samples were removed (nimble db clean); median and "
                                 "interval stay")
                                 .arg(count_text(m.samples))
                           : QObject::tr("the database has no raw samples of it");
}

QString text_of(const std::vector<WhyStep>& steps) {
  QString text;
  for (const WhyStep& s : steps) text += s.what + QStringLiteral(": ") + s.text + QChar('\n');
  return text;
}

}  // namespace nimble::gui
