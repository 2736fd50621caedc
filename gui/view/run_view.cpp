// "Model run": an executable file, run in a process of its own; its time line with the memory that
// was live, and where its time went by kernel and shape and by instruction. A file's native code
// runs only once the user trusts its digest. "Why this kernel?" leads from the chosen kernel to the
// records of the open database that decided it.
#include <QCheckBox>
#include <QComboBox>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QLineEdit>
#include <QMouseEvent>
#include <QPushButton>
#include <QSettings>
#include <QSplitter>

#include "gui/model/model_run.h"
#include "gui/model/units.h"
#include "gui/view/plot_view.h"
#include "gui/view/table_pane.h"
#include "gui/view/timeline.h"

namespace nimble::gui {
namespace {

constexpr size_t kMostBars = 40;

std::vector<PagedColumn> run_columns() {
  return {
      {"What", "what", "A kernel, or an instruction of the machine.", true, false},
      {"Name", "name", "Of the kernel or instruction.", true, false},
      {"Operators", "source", "That the kernel was fused of.", true, false},
      {"Shape", "shape", "Extents of the kernel's symbols.", true, false},
      {"Operands", "operands", "Types and shapes that the kernel was given, then its results'.",
       true, false},
      {"Calls", "count", "In this run.", true, true},
      {"Total", "total_ns", "Time of all calls; of InvokePacked with its kernels.", true, true},
      {"Mean", "mean_ns", "Time of a call.", true, true},
      {"Share", "share", "Of the run's time.", true, true},
      {"Threads", "threads", "That the kernel ran on.", true, true},
      {"Implementation", "implementation", "portable: its checked form.", true, false},
      {"Configuration", "config", "The knobs of the kernel's template.", false, false},
  };
}

// `group`: of the trace, or nothing.
PagedRow run_row(const KernelTime& k, bool kernel, const TraceGroup* group) {
  const QString what = kernel ? QObject::tr("kernel") : QObject::tr("instruction");
  const auto integer = [](int64_t n) { return QVariant::fromValue(n); };
  const double mean =
      static_cast<double>(k.total_ns) / static_cast<double>(std::max<int64_t>(k.count, 1));
  const QString name = plain_text(k.name), source = plain_text(k.source);
  const QString shape = plain_text(k.shape), implementation = plain_text(k.implementation);
  const QString config = plain_text(k.config);
  QString operands = group ? group->operands : QString();
  if (group && group->operands_differ) operands += QObject::tr(", and others");
  PagedRow row;
  row.cells = {what,
               name,
               source,
               shape,
               operands,
               count_text(k.count),
               time_text(static_cast<double>(k.total_ns)),
               time_text(mean),
               percent_text(k.share),
               kernel ? count_text(k.threads) : QString(),
               implementation,
               config};
  row.raw = {what,
             name,
             source,
             shape,
             operands,
             integer(k.count),
             integer(k.total_ns),
             mean,
             k.share,
             kernel ? integer(k.threads) : QVariant(),
             implementation,
             config};
  return row;
}

class RunView final : public PlotView {
 public:
  RunView(const ViewInfo& info, Context& context) : PlotView(info, context), line_(plot()) {
    const auto field = [&](const QString& label, const char* name, const QString& hint) {
      auto* line = new QLineEdit;
      line->setObjectName(QLatin1String(name));
      line->setAccessibleName(label);
      line->setPlaceholderText(hint);
      controls()->addWidget(line, 2);
      return line;
    };
    file_ = field(tr("Executable file"), "file", tr("File: model.nimble"));
    const auto button = [&](const QString& text, const char* name, auto run) {
      auto* b = new QPushButton(text);
      b->setObjectName(QLatin1String(name));
      controls()->addWidget(b);
      connect(b, &QPushButton::clicked, this, run);
      return b;
    };
    button(tr("&Browse…"), "browse", [this] { browse(); });
    inputs_ = field(tr("Inputs"), "inputs", tr("Inputs: x=random:4x64 n=@n.npy"));
    trust_ = new QCheckBox(tr("&Trust"));
    trust_->setObjectName(QStringLiteral("trust"));
    trust_->setToolTip(
        tr("Runs native code of files with this digest, with your rights. Without, "
           "kernels run in their checked form, slower."));
    trust_->setEnabled(false);
    controls()->addWidget(trust_);
    run_button_ = button(tr("&Run"), "run", [this] { start(); });
    cancel_ = button(tr("E&nd"), "end", [this] { run_.cancel(); });
    cancel_->setEnabled(false);
    why_ = button(tr("Why this &kernel?"), "why", [this] { explain(); });
    why_->setToolTip(
        tr("Runs the file once more (nimble explain) and shows what decided the chosen kernel."));
    why_->setEnabled(false);
    shown_ = new QComboBox;
    shown_->setObjectName(QStringLiteral("shown"));
    shown_->setAccessibleName(tr("What the plot shows"));
    shown_->addItems({tr("Time line"), tr("Time by kernel")});
    controls()->addWidget(shown_);
    connect(shown_, &QComboBox::currentIndexChanged, this, [this] { redraw(); });
    plot().setMinimumHeight(240);
    pane_ = new TablePane(run_columns());
    pane_->rows().setAccessibleName(tr("Kernels and instructions"));
    auto* split = new QSplitter(Qt::Vertical);
    split->addWidget(&plot());
    plot().show();  // it was no longer the content, so it was hidden
    split->addWidget(pane_);
    split->setFocusProxy(pane_);
    set_content(split);
    set_message(tr("Choose an executable file (nimble compile makes them) and run it."));
    connect(file_, &QLineEdit::editingFinished, this, &RunView::look);
    connect(inputs_, &QLineEdit::returnPressed, this, &RunView::start);
    connect(trust_, &QCheckBox::clicked, this, &RunView::set_trust);
    connect(&run_, &ModelRun::finished, this, &RunView::take);
    connect(pane_, &TablePane::chosen, this, &RunView::choose_row);
  }

  bool loading() const override { return run_.busy() || asked_; }
  TableData table() const override { return pane_->table(); }

 protected:
  void redraw() override {
    plot().clearPlottables();
    if (trace_ && shown_->currentIndex() == 0) return draw_line();
    line_.hide();
    if (!profile_ || profile_->kernels.empty()) return set_marks({});
    auto* bars = new QCPBars(plot().xAxis, plot().yAxis);
    bars->setBrush(ink(Ink::kChosen, palette()));
    bars->setPen(Qt::NoPen);
    bars->setWidth(0.7);
    auto names = QSharedPointer<QCPAxisTickerText>::create();
    const size_t shown = std::min(profile_->kernels.size(), kMostBars);
    most_ = 0;
    std::vector<Mark> marks;
    const TimeUnit unit = time_unit_for(static_cast<double>(profile_->kernels.front().total_ns));
    for (size_t i = 0; i < shown; ++i) {
      const KernelTime& k = profile_->kernels[i];
      const double x = static_cast<double>(i), y = static_cast<double>(k.total_ns) / unit.ns;
      bars->addData(x, y);
      most_ = std::max(most_, y);
      if (shown <= 12) names->addTick(x, plain_text(k.name, 18));
      Mark m{x,
             y,
             tr("%1 (%2) at %3 · %4 calls, %5 · %6 of the run · %7")
                 .arg(plain_text(k.name), plain_text(k.source), plain_text(k.shape),
                      count_text(k.count), time_text(static_cast<double>(k.total_ns)),
                      percent_text(k.share), plain_text(k.implementation)),
             {}};
      marks.push_back(std::move(m));
    }
    if (shown <= 12)
      plot().xAxis->setTicker(names);
    else
      plot().xAxis->setTicker(QSharedPointer<QCPAxisTickerFixed>::create());
    plot().xAxis->setLabel(tr("kernel at a shape, the dearest first"));
    plot().yAxis->setTicker(QSharedPointer<QCPAxisTicker>::create());
    plot().yAxis->setLabel(tr("time (%1)").arg(unit.name));
    show_all();
    set_marks(std::move(marks));
  }

  void show_all() override {
    if (on_line()) return line_.show_all();
    const size_t n = profile_ ? std::min(profile_->kernels.size(), kMostBars) : 1;
    plot().xAxis->setRange(-0.7, static_cast<double>(n) - 0.3);
    plot().yAxis->setRange(0, most_ * 1.08);
  }
  bool is_selected(const Mark&) const override { return false; }

  int mark_at(const QPointF& pixel) const override {
    return on_line() ? line_.span_at(pixel) : PlotView::mark_at(pixel);
  }

  // A bar's kernel or instruction becomes the table's row, and all its bars are marked.
  void mark_chosen(int mark) override {
    const size_t at = static_cast<size_t>(mark);
    if (!on_line()) return pane_->show_row([&](const Choice& c) { return c.shape == row_of(at); });
    choose_group(trace_->spans[at].group);
  }

  bool eventFilter(QObject* object, QEvent* event) override {
    const bool done = PlotView::eventFilter(object, event);
    if (object == &plot() && event->type() == QEvent::MouseMove && on_line()) {
      const QString live = line_.memory_at(static_cast<QMouseEvent*>(event)->position());
      if (!live.isEmpty()) set_status(live);
    }
    return done;
  }

 private:
  bool on_line() const { return trace_ && shown_->currentIndex() == 0; }

  // A row of the table is told from others by what stands in its choice's `shape`: nothing of the
  // database, so nothing else looks at it.
  static std::string row_key(SpanKind kind, const std::string& name, const std::string& shape) {
    return (kind == SpanKind::kKernel ? "k\n" : "i\n") + name + '\n' + shape;
  }
  std::string row_of(size_t kernel) const {
    const KernelTime& k = profile_->kernels[kernel];
    return row_key(SpanKind::kKernel, k.name, k.shape);
  }
  const TraceGroup* group_of(const std::string& key, uint32_t* at = nullptr) const {
    if (!trace_) return nullptr;
    for (size_t i = 0; i < trace_->groups.size(); ++i) {
      const TraceGroup& g = trace_->groups[i];
      if (g.kind == SpanKind::kFunction || row_key(g.kind, g.name, g.shape) != key) continue;
      if (at) *at = static_cast<uint32_t>(i);
      return &g;
    }
    return nullptr;
  }

  void choose_group(uint32_t group) {
    const TraceGroup& g = trace_->groups[group];
    line_.choose(group);
    plot().replot(QCustomPlot::rpQueuedReplot);
    if (g.kind == SpanKind::kFunction) return;
    const std::string key = row_key(g.kind, g.name, g.shape);
    pane_->show_row([&](const Choice& c) { return c.shape == key; });
  }

  // The kernel of the chosen row; nothing if it is of an instruction, or of another run.
  const KernelTime* chosen_kernel() const {
    const PagedRow* row = pane_->current();
    if (!row || !profile_) return nullptr;
    for (const KernelTime& k : profile_->kernels)
      if (row_key(SpanKind::kKernel, k.name, k.shape) == row->choice.shape) return &k;
    return nullptr;
  }

  void choose_row(const PagedRow& row) {
    enable();
    uint32_t group = 0;
    const bool found = group_of(row.choice.shape, &group) != nullptr;
    line_.choose(found ? std::optional(group) : std::nullopt);
    plot().replot(QCustomPlot::rpQueuedReplot);
    if (!found || !on_line()) return;
    const auto first = std::find_if(trace_->spans.begin(), trace_->spans.end(),
                                    [&](const TraceSpan& s) { return s.group == group; });
    move_cursor(static_cast<int>(first - trace_->spans.begin()));
  }

  void draw_line() {
    line_.show(trace_, palette());
    std::vector<Mark> marks;
    marks.reserve(trace_->spans.size());
    for (const TraceSpan& s : trace_->spans)
      marks.push_back({line_.x_of(s), TimeLine::y_of(s, *trace_), s.text, {}});
    set_marks(std::move(marks));
  }

  static QSet<QString> trusted() {
    const QStringList all = QSettings().value(QStringLiteral("trusted_files")).toStringList();
    return {all.begin(), all.end()};
  }

  void browse() {
    const QString file =
        QFileDialog::getOpenFileName(this, tr("Open an executable file"), file_->text(),
                                     tr("Executable files (*.nimble);;All files (*)"));
    if (file.isEmpty()) return;
    file_->setText(file);
    look();
  }

  // Whose digest the box speaks of.
  void look() {
    if (file_->text().isEmpty() || (file_->text() == looked_at_ && !digest_.isEmpty())) return;
    if (run_.busy()) return;
    looked_at_ = file_->text();
    run_.look(looked_at_);
  }

  void set_trust(bool on) {
    QSet<QString> all = trusted();
    if (on)
      all.insert(digest_);
    else
      all.remove(digest_);
    QSettings().setValue(QStringLiteral("trusted_files"), QStringList(all.values()));
    set_status(
        on ? tr("Files of digest %1… run their native code from now on.").arg(digest_.left(16))
           : tr("Files of digest %1… run checked from now on.").arg(digest_.left(16)));
  }

  void enable() {
    run_button_->setEnabled(!run_.busy());
    cancel_->setEnabled(run_.busy());
    why_->setEnabled(!run_.busy() && chosen_kernel());
  }

  void start() {
    if (file_->text().isEmpty()) return set_status(tr("Choose a file first."));
    looked_at_ = file_->text();
    running_ = true;
    wanted_.reset();
    ran_ = {looked_at_, QProcess::splitCommand(inputs_->text()), trusted(), 0};
    run_.start(ran_);
    enable();
    set_status(tr("Running…"));
  }

  // Of the file and inputs that were run, whatever the fields say by now.
  void explain() {
    const KernelTime* k = chosen_kernel();
    if (!k) return;
    wanted_ = *k;
    RunRequest request = ran_;
    request.trusted = trusted();
    request.explain = QString::fromStdString(k->name);
    run_.start(request);
    enable();
    set_status(tr("Asking what decided %1…").arg(plain_text(k->name)));
  }

  void take_explained(const RunResult& r) {
    const KernelTime wanted = *std::exchange(wanted_, std::nullopt);
    if (!r.error.isEmpty()) return set_status(r.error);
    if (r.digest != ran_digest_)
      return set_status(tr("The file is another one than was run: run it again."));
    FileOperator found{ran_.file.toStdString(), r.digest.toStdString(), {}, {}};
    const auto at = std::ranges::find(
        r.explained, wanted.shape, [](const ExplainedKernel& e) { return db::text_of(e.symbols); });
    if (at == r.explained.end())
      return set_status(tr("The kernel did not run at %1 this time: its shapes depend on the "
                           "inputs; give them.")
                            .arg(plain_text(wanted.shape)));
    found.kernel = *at;
    if (!context().session.is_open()) return show_why(std::move(found), std::nullopt);
    asked_ = true;
    question_ = context().session.ask<std::optional<KernelPlace>>(
        this,
        [kernel = found.kernel](Reader& reader, const Cancel& cancel) {
          return reader.place_of(kernel, cancel);
        },
        [this, found](const Answer<std::optional<KernelPlace>>& answer) {
          asked_ = false;
          if (!answer.value) return set_status(answer.error);
          show_why(found, *answer.value);
        });
  }

  void show_why(FileOperator found, const std::optional<KernelPlace>& place) {
    const ExplainedKernel& k = found.kernel;
    Choice next = context().selection.now();
    if (place) {
      next = {};
      next.hardware = place->hardware;
      next.workload = place->workload;
      next.policy = place->policy;
      next.table = place->table;
      next.shape = db::text_of(k.symbols);
    } else if (!context().session.is_open()) {
      found.problem = "no database is open";
    } else if (k.table.empty() && k.override_uuid.empty()) {
      found.problem = "nothing: no record of a tuning database decided this kernel";
    } else {
      found.problem = "the open database has not the records that decided";
    }
    context().selection.set(next, std::move(found));
    set_status({});
    emit view_wanted(QStringLiteral("why"));
  }

  void take(const RunResult& r) {
    const bool ran = std::exchange(running_, false);
    enable();
    digest_ = r.digest;
    trust_->setEnabled(!digest_.isEmpty());
    trust_->setChecked(trusted().contains(digest_));
    const QString of =
        tr("digest %1…, %2")
            .arg(digest_.left(16), trust_->isChecked() ? tr("trusted") : tr("not trusted"));
    if (wanted_) return take_explained(r);
    if (!ran) return set_status(r.error.isEmpty() ? of : r.error);
    ran_digest_ = digest_;
    profile_ = r.profile;
    trace_ = r.trace && !r.trace->spans.empty() ? r.trace : nullptr;
    line_.choose(std::nullopt);
    set_heading(looked_at_.section(u'/', -1));
    std::vector<PagedRow> rows;
    if (profile_) {
      const auto add = [&](const KernelTime& k, SpanKind kind) {
        const std::string key = row_key(kind, k.name, k.shape);
        rows.push_back(run_row(k, kind == SpanKind::kKernel, group_of(key)));
        rows.back().choice.shape = key;
      };
      for (const KernelTime& k : profile_->kernels) add(k, SpanKind::kKernel);
      const double wall = static_cast<double>(std::max<int64_t>(profile_->wall_ns, 1));
      for (const InstructionTime& i : profile_->instructions) {
        KernelTime k;
        k.name = i.name;
        k.count = i.count;
        k.total_ns = i.total_ns;
        k.share = static_cast<double>(i.total_ns) / wall;
        add(k, SpanKind::kInstruction);
      }
    }
    pane_->set_rows(std::move(rows));
    set_message(profile_ || trace_ ? QString() : r.error);
    if (profile_)
      set_status(tr("%1, of which kernels %2 · at most %3 of tensors, %4 held · %5 · %6")
                     .arg(time_text(static_cast<double>(profile_->wall_ns)),
                          time_text(static_cast<double>(profile_->kernel_ns)),
                          bytes_text(profile_->peak_live_bytes), bytes_text(profile_->held_bytes),
                          r.native ? tr("native code") : tr("checked, without native code"), of));
    else
      set_status(trace_ ? tr("The run failed; this is what it did until then. %1").arg(r.error)
                        : QString());
    if (profile_ && !trace_)
      set_status(status() + tr(" · no time line: %1").arg(r.trace_error));
    else if (trace_ && trace_->dropped > 0)
      set_status(status() + tr(" · the time line ends %1 instructions before the run")
                                .arg(count_text(trace_->dropped)));
    redraw();
  }

  QLineEdit *file_, *inputs_;
  QCheckBox* trust_;
  QPushButton *run_button_, *cancel_, *why_;
  TablePane* pane_;
  QComboBox* shown_;
  TimeLine line_;
  ModelRun run_;
  std::optional<RunProfile> profile_;
  std::shared_ptr<const RunTrace> trace_;
  RunRequest ran_;                    // what the profile is of
  std::optional<KernelTime> wanted_;  // that is being explained
  Question question_;
  bool asked_ = false;
  QString looked_at_, digest_, ran_digest_;
  double most_ = 1;
  bool running_ = false;
};

}  // namespace

View* make_run(const ViewInfo& info, Context& context) {
  return new RunView(info, context);
}

}  // namespace nimble::gui
