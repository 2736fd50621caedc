#include "tuner/trust/claim.h"

#include <string_view>

#include "db/store/hash.h"
#include "vm/base/bytes.h"
#include "vm/base/error.h"
#include "vm/base/printable.h"

namespace nimble::trust {
namespace {

constexpr std::string_view kCandidate = "nimble candidate 1";
constexpr std::string_view kCostModel = "nimble cost model 1";

bool is_hash(std::string_view text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

class Encoder {
 public:
  explicit Encoder(std::string_view domain) {
    raw(domain);
    out_.u8(0);
  }
  void field(std::string_view text) {
    out_.u64(text.size());
    raw(text);
  }
  void field(const char* what, const std::string& text, bool is_right) {
    if (!is_right)
      throw Error(Status::kInvalidArgument, "claim",
                  fmt::format("its {} is \"{}\", which is none", what, printable(text)),
                  "the record was not written by nimble");
    field(text);
  }
  Claim finish(std::string name) {
    Claim c{out_.take(), std::move(name), {}};
    c.subject = db::digest_of(c.message);
    return c;
  }

 private:
  void raw(std::string_view text) {
    out_.bytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  ByteWriter out_;
};

}  // namespace

Claim claim_of(const Candidate& c) {
  Encoder e(kCandidate);
  e.field("campaign", c.campaign, db::is_uuid(c.campaign));
  e.field("case", c.measure_case, is_hash(c.measure_case));
  e.field("code", c.code, db::is_digest(c.code));
  e.field("target", c.target, !c.target.empty());
  e.field("limits", c.limits, !c.limits.empty());
  return e.finish("candidate " + c.code.substr(0, 12));
}

Claim claim_of(const LearntModel& m) {
  Encoder e(kCostModel);
  e.field("campaign", m.campaign, db::is_uuid(m.campaign));
  e.field("workload", m.workload, is_hash(m.workload));
  e.field("model", m.model, db::is_digest(m.model));
  return e.finish("cost model " + m.model.substr(0, 12));
}

}  // namespace nimble::trust
