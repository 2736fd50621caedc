// nimble-residue-bench: what kernels for the residues of a symbolic extent are worth (the paper,
// 3.5 and Figure 3).
//
// BERT's dense layers with one schedule, tiles of eight rows, at the lengths 121 to 128: a kernel
// for each of the eight residues, for four and for two of them, one for all, and a kernel compiled
// for the length alone. The tail modes that the paper does not have stand beside them. All variants
// of a length take turns; printed are, as JSON, the medians of their bursts in µs.
//
//     nimble-residue-bench --threads 1 --rounds 15 --runs 7 --matrices 2
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "compiler/tools/kernel_runner.h"
#include "vm/base/json_writer.h"

namespace nimble {
namespace {

using namespace bench;

constexpr int64_t kRows = 8, kFirst = 121, kLast = 128;

struct Layer {
  int64_t k, n;
  const char* activation;
};
constexpr Layer kLayers[] = {{768, 768, ""}, {768, 3072, "gelu"}, {3072, 768, ""}};

struct Options {
  // Of the weights, which a layer meets in turn: 1 leaves them where the last call did.
  int64_t matrices = 2;
  int64_t threads = 1, rounds = 15, runs = 7;
};

Options parse(int argc, char** argv) {
  Options o;
  const std::map<std::string, int64_t*> known = {{"--matrices", &o.matrices},
                                                 {"--threads", &o.threads},
                                                 {"--rounds", &o.rounds},
                                                 {"--runs", &o.runs}};
  for (int i = 1; i < argc; i += 2) {
    const auto at = known.find(argv[i]);
    const int64_t value = at != known.end() && i + 1 < argc ? std::atoll(argv[i + 1]) : 0;
    if (value < 1) {
      fmt::print(stderr,
                 "usage: nimble-residue-bench [--threads N] [--rounds N] [--runs N] "
                 "[--matrices N]\n");
      std::exit(2);
    }
    *at->second = value;
  }
  return o;
}

kernels::Config schedule(const std::string& tails) {
  return {{"rows", kRows}, {"tails", tails}};
}

struct Variant {
  std::string name;
  std::unique_ptr<Compiled> kernel;
  std::vector<int64_t> symbols;
  std::vector<double> us;
};

class LayerBench {
 public:
  LayerBench(const Layer& layer, const Options& o)
      : layer_(layer),
        options_(o),
        x_(static_cast<size_t>(kLast * layer.k)),
        y_(static_cast<size_t>(kLast * layer.n)),
        expected_(static_cast<size_t>(kLast * layer.n)),
        bias_(static_cast<size_t>(layer.n)),
        matrix_(static_cast<size_t>(layer.k * ((layer.n + 255) / 256 * 256))),
        weights_(matrix_ * static_cast<size_t>(o.matrices)) {
    const kernels::Workload any =
        dense_workload(Dim::symbol("m"), layer.k, layer.n, layer.activation);
    for (const auto& [name, tails] :
         {std::pair("8", "residue"), std::pair("4", "residue/4"), std::pair("2", "residue/2"),
          std::pair("1", "checked"), std::pair("even", "even"), std::pair("masked", "masked")})
      variants_.push_back({name, std::make_unique<Compiled>(any, schedule(tails)), {}, {}});
    variants_.push_back({"static", nullptr, {}, {}});
  }

  void write(JsonWriter* json) {
    json->begin_object()
        .member("k", layer_.k)
        .member("n", layer_.n)
        .member("activation", layer_.activation)
        .member("config", kernels::to_json(variants_[0].kernel->config()))
        .key("lengths")
        .begin_array();
    for (int64_t m = kFirst; m <= kLast; ++m) {
      measure(m);
      json->begin_object().member("m", m).key("us").begin_object();
      for (const Variant& v : variants_) {
        json->key(v.name).begin_array();
        for (const double us : v.us) json->value(us);
        json->end_array();
      }
      json->end_object().end_object();
    }
    json->end_array().end_object();
  }

 private:
  double call(const Variant& v, const HugeBuffer& y) {
    float* weights =
        weights_.data() +
        matrix_ * static_cast<size_t>(turn_++ % static_cast<uint64_t>(options_.matrices));
    const double start = now();
    v.kernel->run(the_pool(), static_cast<int>(options_.threads),
                  {x_.data(), weights, bias_.data(), y.data()}, v.symbols);
    return 1e6 * (now() - start);
  }

  // All variants compute the same sums in the same order.
  void compare(int64_t m) {
    for (size_t i = 0; i < variants_.size(); ++i) {
      turn_ = 0;
      call(variants_[i], i == 0 ? expected_ : y_);
      const auto count = static_cast<size_t>(m * layer_.n);
      for (size_t e = 0; i > 0 && e < count; ++e)
        if (const float a = expected_.data()[e], b = y_.data()[e];
            !(std::abs(a - b) <= 1e-4F * std::max(1.0F, std::abs(a))))
          throw Error(Status::kFatal, "nimble-residue-bench",
                      fmt::format("{} at {} rows differs: {} and {}", variants_[i].name, m, a, b));
    }
  }

  void measure(int64_t m) {
    for (Variant& v : variants_) {
      v.symbols = {m};
      v.us.clear();
    }
    Variant& fixed = variants_.back();
    fixed.kernel = std::make_unique<Compiled>(
        dense_workload(m, layer_.k, layer_.n, layer_.activation), schedule("checked"));
    fixed.symbols = {};
    compare(m);
    for (int64_t round = 0; round < options_.rounds; ++round)
      for (size_t turn = 0; turn < variants_.size(); ++turn) {
        Variant& v = variants_[(turn + static_cast<size_t>(round)) % variants_.size()];
        call(v, y_);  // its code and the weights are met again
        std::vector<double> times;
        for (int64_t i = 0; i < options_.runs; ++i) times.push_back(call(v, y_));
        v.us.push_back(quantile(times, 0.5));
      }
  }

  const Layer layer_;
  const Options& options_;
  const HugeBuffer x_, y_, expected_, bias_;
  const size_t matrix_;
  const HugeBuffer weights_;
  std::vector<Variant> variants_;
  uint64_t turn_ = 0;
};

int main_of(int argc, char** argv) {
  const Options o = parse(argc, argv);
  JsonWriter json;
  json.begin_object()
      .member("rows", kRows)
      .member("threads", o.threads)
      .member("matrices", o.matrices)
      .key("layers")
      .begin_array();
  for (const Layer& layer : kLayers) LayerBench(layer, o).write(&json);
  json.end_array().end_object();
  fmt::print("{}\n", json.text());
  return 0;
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  try {
    return nimble::main_of(argc, argv);
  } catch (const nimble::Error& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
