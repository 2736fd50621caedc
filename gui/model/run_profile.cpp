#include "gui/model/run_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "vm/base/error.h"

namespace nimble::gui {

RunProfile profile_from_json(const std::string& text) {
  try {
    const nlohmann::json j = nlohmann::json::parse(text);
    RunProfile p;
    p.wall_ns = j.at("wall_ns").get<int64_t>();
    p.kernel_ns = j.at("kernel_ns").get<int64_t>();
    p.overhead_ns = j.at("overhead_ns").get<int64_t>();
    if (j.contains("memory")) {
      const nlohmann::json& m = j["memory"];
      p.peak_live_bytes = m.at("peak_live_bytes").get<int64_t>();
      p.held_bytes = m.at("held_bytes").get<int64_t>();
      p.requests = m.at("requests").get<int64_t>();
      p.reuses = m.at("reuses").get<int64_t>();
    }
    for (const nlohmann::json& k : j.at("kernels")) {
      KernelTime t;
      t.name = k.at("name").get<std::string>();
      t.source = k.at("source").get<std::string>();
      t.implementation = k.at("implementation").get<std::string>();
      t.config = k.at("config").get<std::string>();
      t.threads = k.at("threads").get<int64_t>();
      t.count = k.at("count").get<int64_t>();
      t.total_ns = k.at("total_ns").get<int64_t>();
      t.share = k.at("share").get<double>();
      for (const auto& [symbol, extent] : k.at("shape").items())
        t.shape +=
            fmt::format("{}{}={}", t.shape.empty() ? "" : ",", symbol, extent.get<int64_t>());
      p.kernels.push_back(std::move(t));
    }
    for (const nlohmann::json& i : j.at("instructions"))
      p.instructions.push_back({i.at("name").get<std::string>(), i.at("count").get<int64_t>(),
                                i.at("total_ns").get<int64_t>()});
    const auto dearer = [](const auto& a, const auto& b) { return a.total_ns > b.total_ns; };
    std::stable_sort(p.kernels.begin(), p.kernels.end(), dearer);
    std::stable_sort(p.instructions.begin(), p.instructions.end(), dearer);
    return p;
  } catch (const nlohmann::json::exception& e) {
    throw Error(Status::kCorrupt, "nimble run", fmt::format("printed no profile: {}", e.what()),
                "use a nimble-run of the same version");
  }
}

}  // namespace nimble::gui
