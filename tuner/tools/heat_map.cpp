#include "tuner/tools/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nimble::tools {
namespace {

constexpr double kWidth = 420, kHeight = 300, kLeft = 62, kRight = 20, kTop = 46, kBottom = 48;
constexpr int kColumns = 2;
constexpr double kHead = 64;         // above the panels: title and colours
constexpr double kFullColour = 0.1;  // of regret; beyond, the colour stays

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  return out;
}

// From a light grey over orange to a dark red.
std::string colour(double regret) {
  const double x = std::clamp(regret / kFullColour, 0.0, 1.0);
  const auto mix = [&](double none, double half, double full) {
    return static_cast<int>(x < 0.5 ? none + (half - none) * 2 * x
                                    : half + (full - half) * (2 * x - 1));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(205, 245, 140), mix(215, 150, 15),
                     mix(225, 50, 30));
}

struct Axis {
  double low = 0, high = 1;  // of what is drawn; logarithms of sizes
  bool sizes = true;
  double at(double value) const { return (value - low) / (high - low); }
};

Axis axis_of(const std::vector<double>& values, bool sizes) {
  Axis a;
  a.sizes = sizes;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  a.low = sizes ? std::floor(*least) : std::min(0.0, *least);
  a.high = sizes ? std::max(a.low + 1, std::ceil(*most)) : std::max(0.02, *most);
  return a;
}

// The least of 1, 2, 5, 10, 20, … thousandths that divides the range into five steps or fewer.
double step_of(double range) {
  double step = 1e-3;
  for (int i = 0; range / step > 5; ++i) step *= i % 3 == 1 ? 2.5 : 2;
  return step;
}

std::vector<std::pair<double, std::string>> ticks_of(const Axis& a) {
  std::vector<std::pair<double, std::string>> out;
  const double step =
      a.sizes ? std::max(1.0, std::ceil((a.high - a.low) / 6)) : step_of(a.high - a.low);
  for (double v = std::ceil(a.low / step) * step; v <= a.high + 1e-9; v += step)
    out.emplace_back(
        v, a.sizes ? fmt::format("{:.0f}", std::exp2(v)) : fmt::format("{:.3g} %", 100 * v + 0.0));
  return out;
}

void text(std::string& svg, double x, double y, const std::string& words, const char* anchor,
          int size = 11, const std::string& more = "") {
  svg += fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
      size, anchor, more, escaped(words));
}

void panel(std::string& svg, double x0, double y0, const tuner::WorkloadRegret& w) {
  const bool plane = w.symbols.size() > 1;
  std::vector<double> across, up;
  for (const tuner::ShapeRegret& s : w.shapes) {
    const auto log = [&](size_t i) {
      return i < s.symbols.size()
                 ? std::log2(static_cast<double>(std::max<int64_t>(1, s.symbols[i])))
                 : 0;
    };
    across.push_back(log(0));
    up.push_back(plane ? log(1) : s.regret());
  }
  const Axis x = axis_of(across, true), y = axis_of(up, plane);
  const double left = x0 + kLeft, top = y0 + kTop, wide = kWidth - kLeft - kRight,
               high = kHeight - kTop - kBottom;
  const tuner::RegretSummary all = summary_of(w.shapes, &tuner::ShapeRegret::regret);
  text(svg, left, y0 + 18, fmt::format("{}, threads: {}", w.label, w.threads), "start", 12);
  text(svg, left, y0 + 34,
       fmt::format("{} shapes: median {:.1f} %, 95 % below {:.1f} %, worst {:.1f} %",
                   w.shapes.size(), 100 * all.median, 100 * all.p95, 100 * all.worst),
       "start");
  svg += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"none\" "
      "stroke=\"#888\"/>\n",
      left, top, wide, high);
  for (const auto& [value, words] : ticks_of(x))
    text(svg, left + wide * x.at(value), top + high + 15, words, "middle");
  for (const auto& [value, words] : ticks_of(y))
    text(svg, left - 5, top + high * (1 - y.at(value)) + 4, words, "end");
  const auto name = [&](size_t i) {
    return i < w.symbols.size() ? w.symbols[i] + " (elements)" : std::string("size");
  };
  text(svg, left + wide / 2, top + high + 34, name(0), "middle");
  const double middle = top + high / 2;
  text(svg, x0 + 10, middle, plane ? name(1) : "regret", "middle", 11,
       fmt::format(" transform=\"rotate(-90 {:.1f} {:.1f})\"", x0 + 10, middle));
  for (size_t i = 0; i < w.shapes.size(); ++i) {
    const tuner::ShapeRegret& s = w.shapes[i];
    std::string shape;
    for (size_t k = 0; k < s.symbols.size() && k < w.symbols.size(); ++k)
      shape += fmt::format("{}{}={}", k > 0 ? ", " : "", w.symbols[k], s.symbols[k]);
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\" stroke=\"#555\" "
        "stroke-width=\"0.4\"><title>{}: regret {:.1f} %, of the tree {:.1f} %, of the pool "
        "{:.1f} %; A/A {:.1f} %</title></circle>\n",
        left + wide * x.at(across[i]), top + high * (1 - y.at(up[i])), colour(s.regret()),
        escaped(shape), 100 * s.regret(), 100 * s.tree_regret(), 100 * s.pool_regret(),
        100 * s.noise);
  }
}

}  // namespace

std::string heat_map(const tuner::DispatchReport& report) {
  std::vector<const tuner::WorkloadRegret*> shown;
  for (const tuner::WorkloadRegret& w : report.workloads)
    if (!w.shapes.empty()) shown.push_back(&w);
  const size_t rows = (shown.size() + kColumns - 1) / kColumns;
  const double width = kColumns * kWidth,
               height = kHead + static_cast<double>(std::max<size_t>(1, rows)) * kHeight;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" fill=\"#222\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      width, height);
  text(svg, 14, 26, "What dispatch tables lose at shapes that nobody measured before", "start", 15);
  text(svg, 14, 48, "regret:", "start");
  for (int i = 0; i <= 10; ++i)
    svg += fmt::format("<rect x=\"{}\" y=\"38\" width=\"14\" height=\"12\" fill=\"{}\"/>\n",
                       92 + 14 * i, colour(kFullColour * i / 10));
  text(svg, 86, 48, "0 %", "end");
  text(svg, 252, 48, fmt::format("{:.0f} % and more", 100 * kFullColour), "start");
  if (shown.empty()) text(svg, 14, kHead + 30, "no shape was measured", "start", 12);
  for (size_t i = 0; i < shown.size(); ++i)
    panel(svg, static_cast<double>(i % kColumns) * kWidth,
          kHead + static_cast<double>(i / kColumns) * kHeight, *shown[i]);
  return svg + "</svg>\n";
}

}  // namespace nimble::tools
