// A window as a file: CSV and JSON of its table, PNG and SVG of its picture.
#pragma once

#include <QSize>
#include <QString>
#include <QStringList>

namespace nimble::gui {

class View;

struct PictureOptions {
  QSize size{1200, 800};  // logical pixels
  double scale = 1;       // of a PNG: pixels per logical pixel
};

QStringList export_formats();  // "csv", "json", "png", "svg"

// Error(kInvalidArgument) if the ending of `path` is none of them.
void require_export_format(const QString& path);

// Writes the window to `path`, whose ending tells the format. Throws Error: kInvalidArgument for an
// ending that is none of them, kIo.
void export_view(View& view, const QString& path, const PictureOptions& options = {});

}  // namespace nimble::gui
