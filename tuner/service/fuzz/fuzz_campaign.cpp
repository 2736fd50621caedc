// Fuzz target `campaign`: what a service and its workers read of a shared database and believe
// nothing of. A campaign's record, a job's place in the plan, and a case are read and written again
// as they were, or refused.
//
// An input is a letter and the text: 'S' a submission; 'G' a submission whose groups' identities
// are put right first, so that what is behind that check is reached; 'P' a job's limits; 'C' a
// case's fills, a byte 0, and its expected results. The case's policy is the one that the fills
// tell.
#include <nlohmann/json.hpp>

#include "compiler/ir/infer.h"
#include "compiler/ir/text.h"
#include "compiler/passes/pipeline.h"
#include "tuner/fleet/case_record.h"
#include "tuner/service/plan_record.h"
#include "tuner/service/submission.h"
#include "tuner/service/submission_group.h"
#include "vm/base/fuzz/fuzz.h"
#include "vm/base/json_text.h"

namespace nimble::fuzz {
namespace {

using namespace tuner;  // NOLINT: the target is about nothing else
using nlohmann::json;

// A gather with indices, a product, a loop's counter; a length that another group asserts.
constexpr const char* kModels[] = {R"(
fn @main(%x: Tensor[(b, n, 16), f32], %ids: Tensor[(b, n), i64], %t: Tensor[(50, 16), f32])
    -> Tensor[(b, n, 16), f32] {
  let %e = gather(%t, %ids) {axis = 0};
  let %s = add(%e, %x);
  let %y = softmax(%s) {axis = 2};
  %y
})",
                                   R"(
fn @main(%x: Tensor[(n, 8), f32], %t: Tensor[(512, 8), f32]) -> Tensor[(n, 8), f32] {
  let %p: Tensor[(n, 8), f32] = slice(%t) {axes = [0], ends = (n), starts = (0)};
  let %y = add(%x, %p);
  %y
}
)",
                                   R"(
fn @main(%a: Tensor[(b, n, k), f32], %w: Tensor[(b, k, 12), f32]) -> Tensor[(b, n, 12), f32] {
  let %p = matmul(%a, %w);
  let %y = relu(%p);
  %y
}
)"};

Submission submission_from(const char* model) {
  Submission s;
  const kernels::TargetInfo target = kernels::target_by_name("x86-64-v3");
  const ir::Module typed = ir::infer_types(ir::parse_module(model));
  passes::PassContext context;
  context.target = target;
  s.tasks =
      tuning_tasks(passes::run_pipeline(typed, context), model_points(typed, {}), target, nullptr);
  s.threads = {1, 2};
  s.target = target.level;
  s.policy = Policy::of_class("cached");
  return s;
}

// What a refusal must look like; whether it was one.
template <class Body>
bool refuses(const Body& body) {
  try {
    body();
    return false;
  } catch (const Error& e) {
    const std::string message = e.what();
    NIMBLE_FUZZ_REQUIRE(e.status() != Status::kInternal, "{}", message);
    NIMBLE_FUZZ_REQUIRE(message.find('\n') == std::string::npos, "of several lines: {}", message);
    return true;
  }
}

// The record with each task's identity as this program makes it, where its group can be read.
std::string with_identities(std::string_view text) {
  json j = json::parse(text, nullptr, false);
  if (!j.is_object() || !j.contains("tasks") || !j["tasks"].is_array()) return std::string(text);
  for (json& task : j["tasks"]) {
    try {
      const auto constant = integers_at<int>(task, "constant", "task");
      const ir::FunctionRef group =
          group_of(task.at("group").get<std::string>(),
                   task.at("passed").get<std::vector<std::string>>(), "task");
      if (constant.size() != group->parameters.size()) continue;
      const std::vector<bool> constants(constant.begin(), constant.end());
      task["identity"] = kernels::make_workload(*group, constants).identity();
    } catch (const std::exception&) {
      continue;  // submission_of says what is wrong
    }
  }
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

void read_submission(const std::string& text) {
  refuses([&] {
    const Submission s = submission_of(text);
    const std::string written = to_json(s);
    NIMBLE_FUZZ_REQUIRE(to_json(submission_of(written)) == written, "is read back as another");
    for (const TuningTask& t : s.tasks)
      for (const WorkloadPoint& p : t.points) (void)t.fills_at(p);
  });
}

void read_limits(const std::string& text) {
  refuses([&] {
    const std::optional<PlanRecord> record = plan_record_of(text);
    if (!record) return;
    const std::string written = limits_of(*record, 1);
    const std::optional<PlanRecord> back = plan_record_of(written);
    NIMBLE_FUZZ_REQUIRE(back && limits_of(*back, 1) == written, "is read back as another");
  });
}

void read_case(std::string_view text) {
  const size_t end = std::min(text.find('\0'), text.size());
  db::MeasureCase record;
  record.fills = text.substr(0, end);
  const std::string_view expected = text.substr(std::min(text.size(), end + 1));
  refuses([&] {
    const json j = json::parse(record.fills, nullptr, false);
    if (j.is_object() && j.contains("policy") && j.contains("threads"))
      record.policy = db::key_of(policy_record(policy_from_json(j["policy"].dump(), "case"),
                                               integer_at<int32_t>(j, "threads", "case")));
    const Case c = case_of(
        record, std::span(reinterpret_cast<const uint8_t*>(expected.data()), expected.size()));
    const db::MeasureCase again = case_record(c, {}, {}, {});
    const Case back = case_of(again, expected_bytes(c));
    NIMBLE_FUZZ_REQUIRE(encode(back) == encode(c), "is read back as another");
  });
}

Case small_case() {
  Case c;
  c.symbols = {3, 17};
  c.threads = 2;
  c.seed = 5;
  c.inputs = {{0, 1, false}, {0, 16, true}};
  c.stepping = {1, 0};
  c.policy = Policy::of_class("cached");
  return c;
}

}  // namespace

void run(std::span<const uint8_t> input) {
  const std::string_view text = text_of(input);
  if (text.empty()) return;
  const std::string_view body = text.substr(1);
  switch (text[0]) {
    case 'S':
      return read_submission(std::string(body));
    case 'G':
      return read_submission(with_identities(body));
    case 'P':
      return read_limits(std::string(body));
    case 'C':
      return read_case(body);
    default:
      return;
  }
}

std::vector<Seed> seeds() {
  std::vector<Seed> out;
  for (size_t m = 0; m < std::size(kModels); ++m) {
    const Submission whole = submission_from(kModels[m]);
    out.push_back({fmt::format("model-{}", m), "S" + to_json(whole)});
    // A task of two points alone: small enough to be changed where it matters.
    for (size_t t = 0; t < whole.tasks.size(); ++t) {
      Submission one = whole;
      one.tasks = {whole.tasks[t]};
      one.tasks[0].points.resize(std::min<size_t>(2, one.tasks[0].points.size()));
      out.push_back({fmt::format("model-{}-task-{}", m, t), "G" + to_json(one)});
    }
  }
  PlanRecord record;
  record.wanted.key = "0:search:1";
  record.wanted.anchors = {std::string(64, 'a')};
  record.wanted.configs = {std::string(64, 'b'), std::string(64, 'c')};
  record.wanted.machine = "m";
  record.budget_s = 60;
  out.push_back({"limits", "P" + limits_of(record, 2.5)});
  const Case c = small_case();
  const std::vector<uint8_t> expected = expected_bytes(c);
  out.push_back({"case", "C" + case_record(c, {}, {}, {}).fills + std::string(1, '\0') +
                             std::string(expected.begin(), expected.end())});
  return out;
}

std::vector<std::string> dictionary() {
  return {"\"group\"",  "\"passed\"",   "\"constant\"", "\"points\"",   "\"symbols\"",
          "\"weight\"", "\"held_out\"", "\"identity\"", "\"threads\"",  "\"policy\"",
          "\"top_k\"",  "\"plan\"",     "\"anchors\"",  "\"stepping\"", "\"fills\"",
          "2147483648", "-1",           "1e308",        "null",         "[]",
          "{}",         "Tensor[(",     ", f32]",       "assert_shape", "gather(",
          "{axis = 0}", "let %y = ",    "\\n",          "\xff",         "9223372036854775807"};
}

}  // namespace nimble::fuzz
