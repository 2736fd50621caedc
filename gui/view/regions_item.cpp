#include "gui/view/regions_item.h"

namespace nimble::gui {
namespace {

// Pixels of the ground: a border is drawn as a line besides, so it need not be exact here.
constexpr int kAcross = 240, kDown = 160;

}  // namespace

QColor entry_colour(int64_t entry, bool dark) {
  // After Okabe and Ito (2008).
  constexpr QRgb kColours[] = {0x56B4E9, 0xE69F00, 0x009E73, 0xCC79A7,
                               0x0072B2, 0xF0E442, 0xD55E00, 0x999999};
  QColor colour(kColours[static_cast<size_t>(entry) % std::size(kColours)]);
  colour.setAlpha(dark ? 110 : 90);
  return colour;
}

RegionsItem::RegionsItem(QCPAxis* x, QCPAxis* y) : QCPAbstractItem(x->parentPlot()), x_(x), y_(y) {
  setSelectable(false);
  setLayer(QStringLiteral("background"));
  setClipAxisRect(x->axisRect());
  setClipToAxisRect(true);
}

void RegionsItem::set(EntryAt entry_at, bool along_x_only, bool dark) {
  entry_at_ = std::move(entry_at);
  along_x_only_ = along_x_only;
  dark_ = dark;
  image_ = {};
}

void RegionsItem::draw(QCPPainter* painter) {
  if (!entry_at_) return;
  const QRect box = x_->axisRect()->rect();
  if (image_.isNull() || !(image_x_ == x_->range()) || !(image_y_ == y_->range())) {
    image_x_ = x_->range();
    image_y_ = y_->range();
    const int down = along_x_only_ ? 1 : kDown;
    image_ = QImage(kAcross, down, QImage::Format_ARGB32);
    for (int row = 0; row < down; ++row)
      for (int column = 0; column < kAcross; ++column) {
        const double x = x_->pixelToCoord(box.left() + (column + 0.5) * box.width() / kAcross);
        const double y = y_->pixelToCoord(box.top() + (row + 0.5) * box.height() / down);
        image_.setPixelColor(column, row, entry_colour(entry_at_(x, y), dark_));
      }
  }
  painter->drawImage(box, image_);
}

}  // namespace nimble::gui
