// Colours: light or dark as the palette says, and scales that people who cannot tell red from green
// read as well.
#pragma once

#include <QColor>
#include <QPalette>
#include <QString>

class QCPColorGradient;
class QCustomPlot;

namespace nimble::gui {

enum class Theme { kSystem, kLight, kDark };
// Sets the application's palette; kSystem is the palette that it started with.
void set_theme(Theme theme);
QString name_of(Theme theme);
Theme theme_from_name(const QString& name);

bool is_dark(const QPalette& palette);

// Colours of lines and points, after Okabe and Ito (2008): distinct in hue and in lightness.
enum class Ink { kBest, kChosen, kDefault, kVendor, kOther, kCursor };
QColor ink(Ink which, const QPalette& palette);

// A scale that rises evenly in lightness and runs from dark blue to yellow, as viridis does; values
// that are missing stay transparent.
QCPColorGradient rising_gradient();

// Axes, grid, legend and text of a plot in the colours of the palette.
void dress(QCustomPlot& plot, const QPalette& palette);

}  // namespace nimble::gui
