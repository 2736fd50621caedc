#include "gui/view/picture.h"

#include <QBuffer>
#include <QFileInfo>
#include <QImage>
#include <QPainter>
#include <QSvgGenerator>

#include "gui/view/view.h"
#include "vm/base/error.h"

namespace nimble::gui {
namespace {

std::string png_of(View& view, const PictureOptions& o) {
  QImage image(o.size * o.scale, QImage::Format_ARGB32_Premultiplied);
  if (image.isNull())
    throw Error(Status::kExhausted, "picture", "is too large for memory",
                "choose a smaller --size");
  image.setDevicePixelRatio(o.scale);
  image.fill(view.palette().color(QPalette::Window));
  {
    QPainter painter(&image);
    painter.setRenderHint(QPainter::Antialiasing);
    view.draw(painter, o.size);
  }
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  image.save(&buffer, "PNG");
  return bytes.toStdString();
}

std::string svg_of(View& view, const PictureOptions& o) {
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  QSvgGenerator generator;
  generator.setOutputDevice(&buffer);
  generator.setSize(o.size);
  generator.setViewBox(QRect(QPoint(), o.size));
  generator.setTitle(view.heading());
  generator.setResolution(96);
  {
    QPainter painter(&generator);
    view.draw(painter, o.size);
  }
  return bytes.toStdString();
}

}  // namespace

QStringList export_formats() {
  return {QStringLiteral("csv"), QStringLiteral("json"), QStringLiteral("png"),
          QStringLiteral("svg")};
}

void require_export_format(const QString& path) {
  if (!export_formats().contains(QFileInfo(path).suffix().toLower()))
    throw Error(Status::kInvalidArgument, path.toStdString(), "names no format that is known",
                "end it with .csv, .json, .png or .svg");
}

void export_view(View& view, const QString& path, const PictureOptions& options) {
  require_export_format(path);
  const QString format = QFileInfo(path).suffix().toLower();
  write_file(path, format == QLatin1String("csv")    ? csv_of(view.table())
                   : format == QLatin1String("json") ? json_of(view.table())
                   : format == QLatin1String("png")  ? png_of(view, options)
                                                     : svg_of(view, options));
}

}  // namespace nimble::gui
