#include "gui/view/view.h"

#include <QComboBox>
#include <QLabel>
#include <QPainter>
#include <QStackedLayout>
#include <QVBoxLayout>

namespace nimble::gui {

#define NIMBLE_VIEW(name, title, area, shortcut, sentence) \
  View* make_##name(const ViewInfo&, Context&);
#include "gui/view/Views.def"
#undef NIMBLE_VIEW

const std::vector<ViewInfo>& views() {
  static const std::vector<ViewInfo> all = {
#define NIMBLE_VIEW(name, title, area, shortcut, sentence) \
  {#name, title, Area::area, shortcut, sentence, &make_##name},
#include "gui/view/Views.def"
#undef NIMBLE_VIEW
  };
  return all;
}

const ViewInfo* find_view(std::string_view name) {
  for (const ViewInfo& v : views())
    if (v.name == name) return &v;
  return nullptr;
}

QLabel* plain_label(const QString& text, QWidget* parent) {
  auto* label = new QLabel(text, parent);
  label->setTextFormat(Qt::PlainText);
  return label;
}

View::View(const ViewInfo& info, Context& context) : info_(info), context_(context) {
  setObjectName(QString::fromLatin1(info.name));
  setAccessibleName(tr(info.title));
  setAccessibleDescription(tr(info.sentence));
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(6, 6, 6, 4);
  column->setSpacing(4);
  heading_ = plain_label();
  heading_->setObjectName(QStringLiteral("heading"));
  heading_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
  QFont bold = heading_->font();
  bold.setBold(true);
  heading_->setFont(bold);
  column->addWidget(heading_);
  controls_ = new ControlRow;
  column->addLayout(controls_);
  stack_ = new QStackedLayout;
  message_label_ = plain_label();
  message_label_->setObjectName(QStringLiteral("message"));
  message_label_->setAlignment(Qt::AlignCenter);
  message_label_->setWordWrap(true);
  message_label_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  stack_->addWidget(message_label_);
  column->addLayout(stack_, 1);
  status_ = plain_label();
  status_->setObjectName(QStringLiteral("status"));
  status_->setWordWrap(true);
  QSizePolicy wraps(QSizePolicy::Ignored, QSizePolicy::Minimum);
  wraps.setHeightForWidth(true);  // or its lines are cut off in a low window
  status_->setSizePolicy(wraps);
  status_->setTextInteractionFlags(Qt::TextSelectableByMouse);
  column->addWidget(status_);
  set_heading({});
}

void View::set_content(QWidget* content) {
  content_ = content;
  stack_->addWidget(content);
  stack_->setCurrentWidget(content);
  setFocusProxy(content);
}

QComboBox* View::add_choice(const QString& label, const char* name, int characters) {
  auto* box = new QComboBox;
  box->setObjectName(QLatin1String(name));
  box->setAccessibleName(label);
  box->setMinimumContentsLength(characters);
  box->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
  controls_->addWidget(plain_label(label));
  controls_->addWidget(box, 1);
  return box;
}

QString View::heading() const {
  return heading_->text();
}
QString View::status() const {
  return status_->text();
}

void View::set_heading(const QString& text) {
  heading_->setText(text.isEmpty() ? tr(info_.title)
                                   : tr(info_.title) + QStringLiteral(" — ") + text);
  heading_->setToolTip(plain_tool_tip(heading_->text()));
}

void View::set_status(const QString& text) {
  if (text == status_->text()) return;
  status_->setText(text);
  emit status_changed(text);
}

void View::set_message(const QString& message) {
  message_ = message;
  message_label_->setText(message);
  const bool shows_content = message.isEmpty() && content_;
  stack_->setCurrentWidget(shows_content ? content_ : message_label_);
  setFocusProxy(shows_content ? content_ : message_label_);  // what is hidden hears no keys
}

void View::draw(QPainter& painter, const QSize&) {
  render(&painter, QPoint(), QRegion(), DrawChildren);
}

}  // namespace nimble::gui
