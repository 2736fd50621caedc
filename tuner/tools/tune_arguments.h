// What a campaign's programs share: the model, its sizes and what is spent on it.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tuner/service/campaign.h"

namespace nimble::tools {

struct TuneArguments {
  std::vector<std::string> shapes, fixed;
  std::string budget = "5m", only_hot = "100%", policy = "auto";
  std::optional<size_t> search_shapes;
  std::optional<int64_t> size;

  // MODEL, --shape, --random-input, --decode and what belongs to it, --precision, --winograd.
  void add_model(CLI::App& app, tuner::CampaignOptions& options);
  void add_target(CLI::App& app, tuner::CampaignOptions& options);
  // --budget, and --target.
  void add_budget(CLI::App& app, tuner::CampaignOptions& options);
  // These, --threads and --policy.
  void add_measuring(CLI::App& app, tuner::CampaignOptions& options);
  // --trace, --trace-symbol, --fix, --size.
  void add_sizes(CLI::App& app, tuner::CampaignOptions& options);
  // All of these but the model, and --beside, --top-k, --only-hot, --seed, --search-shapes,
  // --patience, --max-trials.
  void add_campaign(CLI::App& app, tuner::CampaignOptions& options);
  // Once parsed: the values of what are texts here.
  void read(tuner::CampaignOptions& options) const;
};

// What a campaign for a GPU leaves to the CPU, and the command that tunes it; empty: nothing.
// `command`: with the model, and without what says where it runs.
std::string beside_text(size_t cpu_kernels, const std::string& target, const std::string& command);

// The command line that was given, for the record and for a shell; it holds no password.
std::string command_of(const std::string& program, int argc, char** argv);

}  // namespace nimble::tools
