// "Generated code": what the compiler made of two configurations, side by side, lines that differ
// coloured. The left one stays; the selection moves the right one. It is text of a database, so it
// is shown as plain text and never runs.
#include <QComboBox>
#include <QFontDatabase>
#include <QHBoxLayout>
#include <QLabel>
#include <QPlainTextEdit>
#include <QScrollBar>
#include <QSplitter>
#include <QTextBlock>
#include <map>

#include "gui/model/text_diff.h"
#include "gui/model/units.h"
#include "gui/view/theme.h"
#include "gui/view/view.h"

namespace nimble::gui {
namespace {

struct Code {
  std::vector<CodeText> left, right;
};
struct Compared {
  QString left, right;  // with gaps as empty lines
  std::vector<DiffLine> rows;
};

// Control characters would change what the lines say.
QString line_text(std::string_view line) {
  QString text = QString::fromUtf8(line.data(), static_cast<qsizetype>(line.size()));
  for (QChar& c : text)
    if (c != u'\t' && (c.category() == QChar::Other_Control || c.category() == QChar::Other_Format))
      c = QChar::ReplacementCharacter;
  return text;
}

Compared compare_texts(const std::string& a, const std::string& b, const Cancel& cancel) {
  const auto left = lines_of(a), right = lines_of(b);
  Compared out;
  out.rows = diff_of(left, right, cancel);
  QStringList l, r;
  for (const DiffLine& row : out.rows) {
    l << (row.left < 0 ? QString() : line_text(left[static_cast<size_t>(row.left)]));
    r << (row.right < 0 ? QString() : line_text(right[static_cast<size_t>(row.right)]));
  }
  out.left = l.join(u'\n');
  out.right = r.join(u'\n');
  return out;
}

class CodeView final : public View {
 public:
  CodeView(const ViewInfo& info, Context& context) : View(info, context) {
    left_ = add_choice(tr("Left:"), "left", 18);
    right_ = add_choice(tr("right:"), "right", 18);
    kind_ = add_choice(tr("form:"), "kind", 18);
    for (QComboBox* box : {left_, right_})
      connect(box, &QComboBox::activated, this, &CodeView::ask);
    connect(kind_, &QComboBox::activated, this, &CodeView::compare);
    auto* split = new QSplitter(Qt::Horizontal);
    for (auto& [text, name, title] :
         {std::tuple(&left_text_, "left_text", tr("Code of the left configuration")),
          std::tuple(&right_text_, "right_text", tr("Code of the right configuration"))}) {
      *text = new QPlainTextEdit;
      (*text)->setObjectName(QLatin1String(name));
      (*text)->setAccessibleName(title);
      (*text)->setReadOnly(true);
      (*text)->setTabChangesFocus(true);
      (*text)->setLineWrapMode(QPlainTextEdit::NoWrap);
      (*text)->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
      split->addWidget(*text);
    }
    split->setFocusProxy(left_text_);
    set_content(split);
    const auto follow = [](QScrollBar* bar, QScrollBar* other) {
      connect(bar, &QScrollBar::valueChanged, other, &QScrollBar::setValue);
    };
    for (const auto& [x, y] : {std::pair(left_text_, right_text_), {right_text_, left_text_}}) {
      follow(x->verticalScrollBar(), y->verticalScrollBar());
      follow(x->horizontalScrollBar(), y->horizontalScrollBar());
    }
    connect(&context.workload, &WorkloadModel::changed, this, &CodeView::fill);
    connect(&context.selection, &Selection::changed, this, [this](const Choice& before) {
      if (this->context().selection.now().config != before.config) fill();
    });
    fill();
  }

  bool loading() const override { return asked_ || context().workload.loading(); }

  TableData table() const override {
    TableData t{{"left_line", "right_line", "same", "left", "right"}, {}};
    const QStringList l = shown_.left.split(u'\n'), r = shown_.right.split(u'\n');
    const auto number = [](std::ptrdiff_t line) {
      return line < 0 ? QVariant() : QVariant::fromValue(static_cast<qlonglong>(line + 1));
    };
    for (size_t i = 0; i < shown_.rows.size(); ++i) {
      const DiffLine& row = shown_.rows[i];
      t.rows.push_back({number(row.left), number(row.right), row.same, l[static_cast<qsizetype>(i)],
                        r[static_cast<qsizetype>(i)]});
    }
    return t;
  }

 protected:
  void changeEvent(QEvent* event) override {
    View::changeEvent(event);
    if (event->type() == QEvent::PaletteChange && left_text_) colour();
  }

 private:
  // The newest code of each configuration; several shapes share one.
  void fill() {
    const auto facts = context().workload.facts();
    const QVariant left = left_->currentData(), kind = kind_->currentData();
    left_->clear();
    right_->clear();
    set_message(facts ? QString() : context().workload.problem());
    if (!facts) {
      set_status({});
      return show({});
    }
    set_heading(plain_text(title_of(*facts)));
    std::map<size_t, std::string> code;
    for (const Cell& c : facts->cells) code[c.config] = c.result.code_hash;
    int standard = 0, chosen = -1;
    for (const auto& [config, hash] : code) {
      const ConfigFacts& c = facts->configs[config];
      const QString text = (c.is_default ? tr("default ") : QString()) + short_id(c.hash) +
                           QStringLiteral(" · ") + plain_text(knobs_text(c), 120);
      if (c.is_default) standard = left_->count();
      if (c.hash == context().selection.now().config) chosen = left_->count();
      for (QComboBox* b : {left_, right_}) b->addItem(text, QString::fromStdString(hash));
    }
    const int pinned = left.isValid() ? left_->findData(left) : -1;
    left_->setCurrentIndex(pinned >= 0 ? pinned : standard);
    right_->setCurrentIndex(chosen >= 0 ? chosen : 0);
    ask();
  }

  void ask() {
    const std::string left = left_->currentData().toString().toStdString();
    const std::string right = right_->currentData().toString().toStdString();
    asked_ = context().session.is_open() && !left.empty();
    if (!asked_) return question_.drop();
    question_ = context().session.ask<Code>(
        this,
        [left, right](Reader& reader, const Cancel& cancel) {
          return Code{reader.code(left, cancel), reader.code(right, cancel)};
        },
        [this](Answer<Code> answer) {
          asked_ = false;
          code_ = answer.value ? std::move(*answer.value) : Code{};
          const QString was = kind_->currentText();
          kind_->clear();
          for (const auto* side : {&code_.left, &code_.right})
            for (const CodeText& c : *side)
              if (kind_->findText(plain_text(c.kind)) < 0) kind_->addItem(plain_text(c.kind));
          kind_->setCurrentIndex(std::max(0, kind_->findText(was)));
          set_message(!answer.value ? answer.error
                      : kind_->count() == 0
                          ? tr("The database has no generated code of these "
                               "configurations: hashes %1 and %2.")
                                .arg(short_id(left_hash()), short_id(right_hash()))
                          : QString());
          compare();
        });
  }

  std::string left_hash() const { return left_->currentData().toString().toStdString(); }
  std::string right_hash() const { return right_->currentData().toString().toStdString(); }

  void compare() {
    const auto text_of = [&](const std::vector<CodeText>& side) {
      for (const CodeText& c : side)
        if (plain_text(c.kind) == kind_->currentText()) return c.text;
      return std::string();
    };
    if (kind_->count() == 0) return show({});
    asked_ = true;
    question_ = context().session.ask<Compared>(
        this,
        [a = text_of(code_.left), b = text_of(code_.right)](Reader&, const Cancel& cancel) {
          return compare_texts(a, b, cancel);
        },
        [this](Answer<Compared> answer) {
          asked_ = false;
          if (!answer.value) set_message(answer.error);
          show(answer.value ? std::move(*answer.value) : Compared{});
        });
  }

  void show(Compared compared) {
    shown_ = std::move(compared);
    left_text_->setPlainText(shown_.left);
    right_text_->setPlainText(shown_.right);
    int64_t only_left = 0, only_right = 0;
    for (const DiffLine& row : shown_.rows) {
      only_left += !row.same && row.left >= 0;
      only_right += !row.same && row.right >= 0;
    }
    colour();
    set_status(shown_.rows.empty() ? QString()
               : left_hash() == right_hash()
                   ? tr("One code: any difference of their times is noise.")
                   : tr("%1 rows; %2 lines only left, %3 only right")
                         .arg(count_text(static_cast<int64_t>(shown_.rows.size())),
                              count_text(only_left), count_text(only_right)));
  }

  void colour() {
    constexpr size_t kMostColoured = 20'000;
    QList<QTextEdit::ExtraSelection> left, right;
    QColor removed = ink(Ink::kDefault, palette()), added = ink(Ink::kBest, palette());
    QColor gap = palette().color(QPalette::Text);
    removed.setAlpha(70);
    added.setAlpha(70);
    gap.setAlpha(20);
    const auto mark = [](QPlainTextEdit* text, size_t row, const QColor& colour,
                         QList<QTextEdit::ExtraSelection>& into) {
      QTextEdit::ExtraSelection s;
      s.cursor = QTextCursor(text->document()->findBlockByNumber(static_cast<int>(row)));
      s.format.setBackground(colour);
      s.format.setProperty(QTextFormat::FullWidthSelection, true);
      into << s;
    };
    for (size_t i = 0; i < std::min(shown_.rows.size(), kMostColoured); ++i) {
      const DiffLine& row = shown_.rows[i];
      if (row.same) continue;
      mark(left_text_, i, row.left < 0 ? gap : removed, left);
      mark(right_text_, i, row.right < 0 ? gap : added, right);
    }
    left_text_->setExtraSelections(left);
    right_text_->setExtraSelections(right);
  }

  QComboBox *left_ = nullptr, *right_ = nullptr, *kind_ = nullptr;
  QPlainTextEdit *left_text_ = nullptr, *right_text_ = nullptr;
  Code code_;
  Compared shown_;
  Question question_;
  bool asked_ = false;
};

}  // namespace

View* make_code(const ViewInfo& info, Context& context) {
  return new CodeView(info, context);
}

}  // namespace nimble::gui
