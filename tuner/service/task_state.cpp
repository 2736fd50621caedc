#include "tuner/service/task_state.h"

#include <nlohmann/json.hpp>

namespace nimble::tuner {

std::string json_text(const TaskState& s) {
  nlohmann::json detail = {
      {"trials", s.trials}, {"failed", s.failed}, {"share", s.share}, {"spent_s", s.spent_s}};
  if (s.best_ratio > 0) detail["best_ratio"] = s.best_ratio;
  if (s.allotted_s) detail["allotted_s"] = *s.allotted_s;
  if (s.verified_on) detail["verified_on"] = *s.verified_on;
  if (s.noise) detail["noise"] = *s.noise;
  if (!s.note.empty()) detail["note"] = s.note;
  return detail.dump();
}

}  // namespace nimble::tuner
