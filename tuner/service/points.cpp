#include "tuner/service/points.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "compiler/ir/entry.h"
#include "tuner/dispatch/pool.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

// Odd sizes between the powers of two: tails of every tile size show up there.
constexpr int64_t kOdd[] = {3, 13, 27, 37, 53, 77, 101, 149, 203};
constexpr double kQuantiles[] = {0.05, 0.25, 0.5, 0.75, 0.95};
constexpr double kUniformMass = 0.1;
constexpr double kLikely = 0.1;      // of a trace's rows
constexpr double kBesideLine = 0.5;  // of the mass, without a trace
constexpr size_t kMedoids = 12, kDraws = 400, kMostRows = 400;
constexpr int kHeldOut = 3;
constexpr int64_t kLargestBatch = 16;  // of draws
constexpr int64_t kMostInAll = 4;      // times the largest size: batch × length

bool named_batch(const std::string& s) {
  return s == "b" || s == "batch" || s == "batch_size";
}

template <class Visit>
void visit_inputs(const ir::Module& m, const Visit& visit) {
  for (const auto& [name, f] : m.functions)
    if (ir::is_entry(m, name))
      for (const ir::VarRef& p : f->parameters)
        if (p->type && p->type->kind == ir::TypeKind::kTensor) visit(p->type->dims);
}

bool contains(const std::vector<std::string>& names, const std::string& s) {
  return std::find(names.begin(), names.end(), s) != names.end();
}

struct Drawn {
  ModelPoint at;
  double mass = 0;
};

using Logs = std::vector<double>;

// By ratio, summed over the symbols that vary.
double distance(const Logs& a, const Logs& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::fabs(a[i] - b[i]);
  return sum;
}

class Points {
 public:
  Points(const ir::Module& m, const PointOptions& o) : o_(o), symbols_(model_symbols(m)) {
    for (const auto& [s, v] : o.fixed) require(s, "--fix");
    const std::vector<std::string> batches = batch_symbols(m);
    for (const std::string& s : symbols_)
      if (const auto it = o.fixed.find(s); it != o.fixed.end())
        base_[s] = it->second;
      else
        (contains(batches, s) ? batches_ : lengths_).push_back(s);
    if (lengths_.empty()) std::swap(lengths_, batches_);
    for (const std::string& s : lengths_) base_[s] = o.representative;
    for (const std::string& s : batches_) base_[s] = 1;
    read_columns();
  }

  std::vector<WeightedPoint> run() {
    make_line();
    const std::vector<Drawn> drawn = distribution();
    if (moving_.size() > 1) add_medoids(drawn);
    if (o_.trace)
      for (const Drawn& d : drawn)
        if (d.mass >= kLikely) add(d.at);
    weigh(drawn);
    hold_out(drawn);
    return std::move(out_);
  }

 private:
  void require(const std::string& s, const char* option) const {
    if (!contains(symbols_, s))
      throw Error(Status::kInvalidArgument, option, fmt::format("the model has no symbol {}", s),
                  symbols_.empty() ? "its shapes are all constant"
                                   : fmt::format("it has {}", fmt::join(symbols_, ", ")));
  }

  // The symbols of the trace's columns, and what moves.
  void read_columns() {
    traced_ = o_.symbols;
    for (const std::string& s : traced_) require(s, "--trace-symbol");
    if (!o_.trace) {
      moving_ = lengths_;
      moving_.insert(moving_.end(), batches_.begin(), batches_.end());
      return;
    }
    const std::vector<std::string>& columns = o_.trace->columns;
    if (traced_.empty()) {
      if (std::all_of(columns.begin(), columns.end(),
                      [&](const std::string& c) { return contains(symbols_, c); }))
        traced_ = columns;
      else if (columns.size() == 1 && (contains(lengths_, "n") || !lengths_.empty()))
        traced_ = {contains(lengths_, "n") ? "n" : lengths_[0]};
    }
    if (lengths_.empty() && batches_.empty())
      throw Error(Status::kInvalidArgument, "--trace", "the model has no symbol that varies",
                  "leave --trace out");
    if (traced_.size() != columns.size() ||
        std::set<std::string>(traced_.begin(), traced_.end()).size() != columns.size())
      throw Error(
          Status::kInvalidArgument, "--trace-symbol",
          fmt::format("the trace has {} columns ({})", columns.size(), fmt::join(columns, ", ")),
          fmt::format("name as many of the model's symbols ({}), in their order",
                      fmt::join(symbols_, ", ")));
    moving_ = lengths_;
    for (const std::string& s : batches_)
      if (contains(traced_, s)) moving_.push_back(s);
  }

  Logs logs_of(const ModelPoint& at) const {
    Logs out;
    for (const std::string& s : moving_)
      out.push_back(std::log(static_cast<double>(std::max<int64_t>(1, at.at(s)))));
    return out;
  }

  // A point at which all lengths have this size.
  ModelPoint on_line(int64_t size) const {
    ModelPoint at = base_;
    for (const std::string& s : lengths_) at[s] = size;
    // A tree has no extent, and still its levels have.
    if (lengths_.empty()) at[kInside] = size;
    return at;
  }

  WeightedPoint& add(const ModelPoint& at) {
    const auto it =
        std::find_if(out_.begin(), out_.end(), [&](const WeightedPoint& p) { return p.at == at; });
    if (it != out_.end()) return *it;
    return out_.emplace_back(WeightedPoint{at});
  }

  void make_line() {
    for (int64_t size = 1; size <= o_.largest; size *= 2) add(on_line(size)).power_of_two = true;
    for (int64_t size : kOdd)
      if (size <= o_.largest) add(on_line(size));
    add(on_line(o_.representative)).representative = true;
    for (size_t c = 0; o_.trace && c < traced_.size(); ++c)
      if (contains(lengths_, traced_[c]))
        for (double q : kQuantiles) add(on_line(std::max<int64_t>(1, o_.trace->quantile(c, q))));
    line_ = out_.size();
  }

  // What shapes are met, and how often: the trace's rows, or draws.
  std::vector<Drawn> distribution() const {
    std::vector<Drawn> out;
    if (o_.trace) {
      for (const auto& [row, count] : o_.trace->counts)
        out.push_back(
            {of_row(row), static_cast<double>(count) / static_cast<double>(o_.trace->total)});
      return out;
    }
    std::mt19937_64 random(o_.seed);
    for (size_t i = 0; i < kDraws; ++i)
      out.push_back({draw(random), 1 / static_cast<double>(kDraws)});
    return out;
  }

  // Lengths that the trace does not speak of move with the first that it speaks of.
  ModelPoint of_row(const std::vector<int64_t>& row) const {
    ModelPoint at = base_;
    std::optional<int64_t> length;
    for (size_t c = 0; c < row.size(); ++c)
      if (!length && contains(lengths_, traced_[c])) length = row[c];
    for (const std::string& s : lengths_) at[s] = std::max<int64_t>(1, length.value_or(at[s]));
    for (size_t c = 0; c < row.size(); ++c)
      if (!o_.fixed.contains(traced_[c])) at[traced_[c]] = std::max<int64_t>(1, row[c]);
    return at;
  }

  ModelPoint draw(std::mt19937_64& random) const {
    const auto by_ratio = [&](int64_t largest) {
      std::uniform_real_distribution<double> exponent(0, std::log2(largest));
      return static_cast<int64_t>(std::exp2(exponent(random)));
    };
    ModelPoint at = base_;
    int64_t longest = 1;
    for (const std::string& s : lengths_) longest = std::max(longest, at[s] = by_ratio(o_.largest));
    for (const std::string& s : batches_)
      if (random() % 2)
        at[s] = std::clamp<int64_t>(kMostInAll * o_.largest / longest, 1, by_ratio(kLargestBatch));
    if (lengths_.empty()) at[kInside] = by_ratio(o_.largest);
    return at;
  }

  void add_medoids(const std::vector<Drawn>& drawn) {
    // Of a long trace its most frequent rows stand for the rest.
    std::vector<const Drawn*> from;
    for (const Drawn& d : drawn) from.push_back(&d);
    std::stable_sort(from.begin(), from.end(),
                     [](const Drawn* a, const Drawn* b) { return a->mass > b->mass; });
    from.resize(std::min(from.size(), kMostRows));
    std::vector<Logs> logs;
    for (const Drawn* d : from) logs.push_back(logs_of(d->at));
    std::vector<double> to_line(from.size(), HUGE_VAL);
    for (size_t p = 0; p < line_; ++p) {
      const Logs on = logs_of(out_[p].at);
      for (size_t i = 0; i < from.size(); ++i)
        to_line[i] = std::min(to_line[i], distance(on, logs[i]));
    }
    CostMatrix cost;
    for (const Logs& medoid : logs) {
      cost.emplace_back();
      for (size_t i = 0; i < from.size(); ++i)
        cost.back().push_back(std::min(to_line[i], distance(medoid, logs[i])) * from[i]->mass);
    }
    for (size_t i : choose_pool(cost, kMedoids)) add(from[i]->at);
  }

  void weigh(const std::vector<Drawn>& drawn) {
    const auto spread = [&](size_t begin, size_t end, double mass) {
      for (size_t p = begin; p < end; ++p)
        out_[p].weight += mass / static_cast<double>(end - begin);
    };
    if (o_.trace) {
      std::vector<Logs> logs;
      for (const WeightedPoint& p : out_) logs.push_back(logs_of(p.at));
      for (const Drawn& d : drawn) {
        const Logs here = logs_of(d.at);
        const auto nearest = std::min_element(logs.begin(), logs.end(), [&](auto& a, auto& b) {
          return distance(a, here) < distance(b, here);
        });
        WeightedPoint& at = out_[static_cast<size_t>(nearest - logs.begin())];
        at.weight += (1 - kUniformMass) * d.mass;
        if (d.mass >= kLikely && at.at == d.at) at.exact += (1 - kUniformMass) * d.mass;
      }
      spread(0, out_.size(), kUniformMass);
    } else if (out_.size() > line_) {
      spread(0, line_, 1 - kBesideLine);
      spread(line_, out_.size(), kBesideLine);
    } else {
      spread(0, out_.size(), 1);
    }
  }

  // Shapes that nothing above names: of one symbol drawn evenly by ratio, of several such as are
  // met.
  void hold_out(const std::vector<Drawn>& drawn) {
    std::mt19937_64 random(o_.seed + 1);
    std::uniform_real_distribution<double> exponent(1, std::log2(o_.largest));
    for (int i = 0, tries = 0; i < kHeldOut && tries < 100; ++tries) {
      const ModelPoint at = moving_.size() > 1
                                ? drawn[random() % drawn.size()].at
                                : on_line(static_cast<int64_t>(std::exp2(exponent(random))));
      const size_t before = out_.size();
      WeightedPoint& p = add(at);
      if (out_.size() == before) continue;
      p.held_out = true;
      ++i;
    }
  }

  const PointOptions& o_;
  std::vector<std::string> symbols_, batches_, lengths_;  // the latter two: not fixed
  std::vector<std::string> traced_;                       // by column
  std::vector<std::string> moving_;                       // what varies
  ModelPoint base_;
  std::vector<WeightedPoint> out_;
  size_t line_ = 0;  // so many of them lie on the line
};

}  // namespace

std::vector<std::string> model_symbols(const ir::Module& m) {
  std::vector<std::string> out;
  visit_inputs(m, [&](const std::vector<ir::Dim>& dims) {
    for (const ir::Dim& d : dims)
      if (!d.is_any())
        for (const std::string& s : d.symbols())
          if (s[0] != '?' && !contains(out, s)) out.push_back(s);
  });
  return out;
}

std::vector<std::string> batch_symbols(const ir::Module& m) {
  std::vector<std::string> named;
  for (const std::string& s : model_symbols(m))
    if (named_batch(s)) named.push_back(s);
  if (!named.empty()) return named;
  std::optional<std::string> leading;
  bool all = true, others = false;
  visit_inputs(m, [&](const std::vector<ir::Dim>& dims) {
    std::vector<std::string> found;
    for (size_t i = 0; i < dims.size(); ++i)
      if (!dims[i].is_any())
        for (const std::string& s : dims[i].symbols())
          if (s[0] != '?') {
            if (i > 0 && s != leading) others = true;
            if (i == 0 && !leading) leading = s;
            all = all && (i > 0 ? s != leading : s == leading);
            found.push_back(s);
          }
    all = all && (found.empty() || found[0] == leading);
  });
  return leading && all && others ? std::vector<std::string>{*leading} : std::vector<std::string>{};
}

std::vector<WeightedPoint> model_points(const ir::Module& m, const PointOptions& options) {
  return Points(m, options).run();
}

}  // namespace nimble::tuner
