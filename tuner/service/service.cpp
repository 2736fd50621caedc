#include "tuner/service/service.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "db/store/gpu_records.h"
#include "db/store/pages.h"
#include "db/store/place.h"
#include "tuner/fleet/patience.h"
#include "tuner/measure/machine_lock.h"
#include "tuner/service/campaign_lock.h"
#include "tuner/service/campaign_service.h"
#include "tuner/service/status.h"
#include "tuner/service/tuning_machine.h"
#include "vm/base/error.h"

namespace nimble::tuner {
namespace {

using Clock = std::chrono::steady_clock;
// The first pause between two looks; each after it is twice as long while nothing happens.
constexpr double kSoonS = 0.02;
// A look at what is wanted though nothing happened: cases come to straggle by the clock.
constexpr double kLookAgain = 1;

// Times of one code generator say nothing about another's.
void check_version(const db::Campaign& campaign, const kernels::TargetInfo& target) {
  const nlohmann::json options = nlohmann::json::parse(campaign.key.options, nullptr, false);
  tuned::require_toolchain(target);
  const db::Toolchain own = tuned::toolchain_record(target);
  const auto same = [&](const char* name, const nlohmann::json& mine) {
    return !options.contains(name) || options.at(name) == mine;
  };
  if (!same("codegen", own.codegen_version) || !same("backend", own.version))
    throw Error(Status::kIncompatible, "campaign " + campaign.uuid,
                fmt::format("was submitted for another version of the code generator, or of {}",
                            own.compiler),
                "submit it again, or serve it with that version");
}

// A campaign that is held, with what it is served by.
struct Served {
  kernels::TargetInfo target;
  std::unique_ptr<CampaignLock> lock;
  std::unique_ptr<WorkCache> cache;
  std::unique_ptr<Publishing> publishing;
  std::unique_ptr<CampaignService> service;
  Clock::time_point looked{};  // at what it wants
  int64_t seen = -1;           // events by then
};

class Service {
 public:
  Service(const ServiceOptions& options, Backend& backend, const trust::SigningKey& key,
          const LoadSubmission& load, const std::atomic<bool>& cancel,
          const std::function<void(const std::string&)>& say)
      : options_(options), backend_(backend), key_(key), load_(load), cancel_(cancel), say_(say) {}

  ServiceTally run() {
    RunnerOptions runner;
    runner.program = options_.program;
    runner.hang_ms = options_.hang_ms;
    runner.cancel = &cancel_;
    runner_.emplace(runner);
    double wait = 0.1, pause_s = kSoonS;
    // A database that cannot be opened at all is the caller's affair.
    store_ = db::Store::open(options_.database, options_.open);
    while (!cancel_) {
      try {
        if (!store_) store_ = db::Store::open(options_.database, options_.open);
        const bool work = step();
        wait = 0.1;
        if (options_.looked) options_.looked();
        if (options_.once && !work) break;
        // Where something happened more is to be expected: workers wait for what it gives rise to.
        pause_s = moved_ ? kSoonS : 2 * pause_s;
        pause_s = std::min(pause_s, static_cast<double>(options_.poll_ms) / 1e3);
        sleep_unless(cancel_, pause_s);
      } catch (const MachineLockError&) {
        throw;
      } catch (const Error& e) {
        if (e.status() == Status::kCancelled) break;
        if (!may_pass(e)) throw;
        say_(std::string("the database does not answer, trying again: ") + e.what());
        forget();
        sleep_unless(cancel_, wait);
        wait = std::min(kMostPatience, 2 * wait);
      }
    }
    served_.clear();
    return tally_;
  }

 private:
  // All that is known is in the database.
  void forget() {
    served_.clear();
    store_.reset();
  }

  // False: there is no campaign that it could serve.
  bool step() {
    moved_ = false;
    find_campaigns();
    std::set<db::Uuid> ended;
    for (auto& [uuid, s] : served_) {
      if (cancel_) return true;
      if (!bear(uuid, [&, &uuid = uuid, &s = s] {
            if (attend(uuid, s)) ended.insert(uuid);
          }))
        ended.insert(uuid);
    }
    leave(ended);
    publish_all();
    return !served_.empty() || waiting_;
  }

  // What happened to a campaign since, and what people ask of it. True: it ended.
  bool attend(const db::Uuid& uuid, Served& s) {
    if (s.service->steer()) {
      say_(fmt::format("campaign {}: cancelled or ended elsewhere", uuid.substr(0, 8)));
      return true;
    }
    const int64_t seen = s.service->seen();
    fair_.charge(uuid, s.service->follow());
    moved_ |= s.service->seen() != seen;
    if (!s.service->finish(options_.stop_patience_s)) return false;
    s.cache->clear();
    ++tally_.finished;
    say_(fmt::format("campaign {}: finished, {:.1f} machine-seconds", uuid.substr(0, 8),
                     s.service->plan().spent_s()));
    const std::unique_ptr<MachineLock> here = machine();
    s.service->keep_code();
    return true;
  }

  // Does something for one campaign. What is wrong with that ends no other's service: false, it is
  // told of and served no more.
  bool bear(const db::Uuid& uuid, const std::function<void()>& something) {
    try {
      something();
      return true;
    } catch (const MachineLockError&) {
      throw;
    } catch (const Error& e) {
      if (e.status() == Status::kCancelled || may_pass(e)) throw;
      refused_.insert(uuid);
      ++tally_.refused;
      say_(fmt::format("campaign {} cannot be served: {}", uuid.substr(0, 8), e.what()));
      return false;
    }
  }

  void leave(const std::set<db::Uuid>& ended) {
    for (const db::Uuid& uuid : ended) {
      served_.erase(uuid);
      fair_.leave(uuid);
    }
  }

  // ---- which campaigns ----------------------------------------------------------------------

  void find_campaigns() {
    waiting_ = false;
    std::vector<db::Campaign> open;
    db::each_campaign(*store_, [&](db::Campaign c) {
      if (c.resumable() && is_submitted(c) && (!options_.campaign || *options_.campaign == c.uuid))
        open.push_back(std::move(c));
    });
    // The oldest first.
    std::reverse(open.begin(), open.end());
    for (const db::Campaign& c : open) {
      if (served_.contains(c.uuid) || refused_.contains(c.uuid) || cancel_) continue;
      if (!store_->is_at_home(c.uuid)) {
        if (told_.insert("merged " + c.uuid).second)
          say_(
              fmt::format("campaign {}: was merged from another database and is not served; "
                          "nimble campaigns resume lets it go on here",
                          c.uuid.substr(0, 8)));
        continue;
      }
      bear(c.uuid, [&] { serve(c); });
    }
  }

  void serve(const db::Campaign& campaign) {
    const CampaignFiles files(options_.database, *store_, campaign.uuid);
    Served s;
    try {
      s.lock = std::make_unique<CampaignLock>(*store_, files.lock, campaign.uuid);
    } catch (const Error& e) {
      if (e.status() != Status::kInvalidArgument) throw;
      waiting_ = true;
      if (told_.insert(campaign.uuid).second)
        say_(fmt::format("campaign {}: another service has it; waiting", campaign.uuid));
      return;
    }
    // Another may have ended it since it was listed.
    const std::optional<db::Campaign> now = store_->campaign(campaign.uuid);
    if (!now || !now->resumable()) return;
    if (now->state == db::CampaignState::kInterrupted)
      store_->set_campaign_state(campaign.uuid, db::CampaignState::kRunning);
    Submission submission = load_(*store_, campaign.uuid);
    s.target =
        target_on(submission.target, store_->hardware(now->key.hardware).value_or(db::Hardware{}));
    check_version(*now, s.target);
    s.cache = std::make_unique<WorkCache>(files.work);
    const db::Hash toolchain = store_->put(toolchain_on(s.target, db::driver_of(now->key)));
    auto& place = served_[campaign.uuid];
    place = std::move(s);
    try {
      place.publishing.reset(new Publishing{*store_, backend_, *runner_, key_, options_.key_name,
                                            place.target, submission.policy, *now, toolchain,
                                            place.cache.get(), options_.compile_threads, say_});
      const auto turn = machine();
      place.service = std::make_unique<CampaignService>(*place.publishing, std::move(submission));
    } catch (...) {
      served_.erase(campaign.uuid);
      throw;
    }
    fair_.join(campaign.uuid);
    say_(fmt::format("campaign {}: serving it, {:.0f} of {:.0f} machine-seconds spent",
                     campaign.uuid.substr(0, 8), place.service->plan().spent_s(),
                     place.service->plan().budget_s()));
  }

  // ---- what they want -----------------------------------------------------------------------

  std::unique_ptr<MachineLock> machine() {
    return std::make_unique<MachineLock>(options_.device,
                                         "service of " + db::printable_place(options_.database),
                                         cancel_, [](const std::string&) {});
  }

  void publish_all() {
    std::map<db::Uuid, std::vector<plan::WantedCase>> wanted;
    std::set<db::Uuid> ended;
    std::unique_ptr<MachineLock> turn;
    for (auto& [uuid, s] : served_) {
      const plan::Fleet fleet = s.service->fleet();
      const bool due = s.seen != s.service->seen() || seconds_since(s.looked) > kLookAgain;
      if (!due || !s.service->may_want(fleet) || cancel_) continue;
      if (!turn) turn = machine();
      s.looked = Clock::now();
      s.seen = s.service->seen();
      std::vector<plan::WantedCase> cases;
      if (!bear(uuid, [&, &s = s] { cases = s.service->want(fleet); }))
        ended.insert(uuid);
      else if (!cases.empty())
        wanted[uuid] = std::move(cases);
    }
    // In turn, whoever has used the least first: nobody waits for all of another's to be compiled.
    std::vector<db::Uuid> left, order;
    for (const auto& [uuid, cases] : wanted) left.push_back(uuid);
    while (!left.empty()) {
      order.push_back(fair_.next(left).value_or(left[0]));
      std::erase(left, order.back());
    }
    for (size_t i = 0; !order.empty(); ++i) {
      const size_t n = i % order.size();
      std::vector<plan::WantedCase>& cases = wanted.at(order[n]);
      if (bear(order[n], [&] { served_.at(order[n]).service->publish(cases.front()); })) {
        ++tally_.cases;
        moved_ = true;
        cases.erase(cases.begin());
      } else {
        ended.insert(order[n]);
        cases.clear();
      }
      if (cases.empty()) order.erase(order.begin() + static_cast<long>(n)), i = n - 1;
      // Those that are not in the database yet are wanted again.
      if (cancel_) break;
    }
    leave(ended);
  }

  static double seconds_since(Clock::time_point t) {
    return std::chrono::duration<double>(Clock::now() - t).count();
  }

  const ServiceOptions& options_;
  Backend& backend_;
  const trust::SigningKey& key_;
  const LoadSubmission& load_;
  const std::atomic<bool>& cancel_;
  const std::function<void(const std::string&)>& say_;
  std::optional<Runner> runner_;
  std::unique_ptr<db::Store> store_;
  std::map<db::Uuid, Served> served_;
  std::set<db::Uuid> refused_;
  std::set<std::string> told_;
  plan::FairShare fair_;
  bool waiting_ = false;  // another service has a campaign
  bool moved_ = false;    // the latest look found something to do
  ServiceTally tally_;
};

}  // namespace

ServiceTally serve_campaigns(const ServiceOptions& options, Backend& backend,
                             const trust::SigningKey& key, const LoadSubmission& load,
                             const std::atomic<bool>& cancel,
                             const std::function<void(const std::string&)>& say) {
  return Service(options, backend, key, load, cancel, say).run();
}

}  // namespace nimble::tuner
