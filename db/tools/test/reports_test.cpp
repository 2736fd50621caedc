// nimble db peers and ceilings: what experiments and nimble doctor measured.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "db/store/host_records.h"
#include "db/tools/test/program_fixture.h"

namespace nimble::db {
namespace {

using testing::HasSubstr;

// The files that the experiments write, and what is none of them.
TEST_F(ProgramTest, PeersFiguresOfAnExperimentAreKept) {
  fill();
  nlohmann::json text =
      nlohmann::json::parse(std::ifstream(NIMBLE_SOURCE_DIR "/experiments/results/lstm.json"));
  text["date"] = "2026-11-23T01:18:46+00:00";  // whenever it was recorded
  const std::string result = file("result.json");
  std::ofstream(result) << text;
  Uuid machine;
  {
    auto store = open();
    Hardware h = host_hardware();
    h.model_name = text["machine"]["cpu"];
    machine = store->put(Machine{"", "measured-there", store->put(h)});
  }
  const std::string own = " --machine " + machine + " --format json " + db();
  const CommandResult added = run("peers --add " + result + own);
  ASSERT_EQ(added.exit_code, 0) << added.out;
  const auto runs = nlohmann::json::parse(added.out);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0]["model"], "lstm");
  EXPECT_EQ(runs[0]["host"], "measured-there");
  size_t figures = 0;
  for (const auto& c : text["cases"])
    for (const auto& entry : c["lengths"]) figures += entry["systems"].size();
  EXPECT_EQ(runs[0]["figures"], figures);
  EXPECT_EQ(nlohmann::json::parse(run("peers --add " + result + own).out), runs)
      << "the same result again adds nothing";
  const std::string id = runs[0]["run"].get<std::string>().substr(0, 8);
  const auto rows = nlohmann::json::parse(run("peers " + id + " --format json " + db()).out);
  ASSERT_EQ(rows.size(), figures);
  const auto& first = text["cases"][0]["lengths"][0];
  int met = 0;
  for (const auto& row : rows) {
    if (row["case"] != text["cases"][0]["name"] || row["system"] != "onnxruntime" ||
        row["shape"] != fmt::format("length={}", first["length"].get<int64_t>()))
      continue;
    ++met;
    EXPECT_DOUBLE_EQ(row["median_ns"],
                     1000 * first["systems"]["onnxruntime"]["median"].get<double>());
    EXPECT_DOUBLE_EQ(row["ci_high_ns"],
                     1000 * first["systems"]["onnxruntime"]["high"].get<double>());
    EXPECT_EQ(row["version"], text["systems"]["onnxruntime"]["version"]);
    EXPECT_THAT(row["settings"].get<std::string>(),
                HasSubstr(text["systems"]["onnxruntime"]["settings"].get<std::string>()));
  }
  EXPECT_EQ(met, 1);
  EXPECT_EQ(run("check " + db()).exit_code, 0);

  // A run of another hour that kept its single times.
  const auto refused = [&](const nlohmann::json& other, const std::string& arguments) {
    std::ofstream(file("other.json")) << other;
    const CommandResult bad = run("peers --add " + file("other.json") + arguments);
    EXPECT_EQ(bad.exit_code, 1) << bad.out;
    return bad.out;
  };
  nlohmann::json later = text;
  later["date"] = "2026-11-23T03:18:46+02:00";
  later["cases"].erase(1);
  later["cases"][0]["lengths"] = {later["cases"][0]["lengths"][0]};
  for (auto& [system, times] : later["cases"][0]["lengths"][0]["systems"].items())
    times["samples"] = {times["low"], times["median"], times["high"]};
  std::ofstream(file("later.json")) << later;
  const auto two = nlohmann::json::parse(run("peers --add " + file("later.json") + own).out);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0]["measured"], two[1]["measured"]) << "the same moment, told in another zone";
  int sampled = 0;
  for (const PeerRun& r : open()->peer_runs())
    for (const PeerFigure& f : open()->peer_run(r.run)) sampled += f.samples_ns.size() == 3;
  EXPECT_EQ(sampled, static_cast<int>(first["systems"].size()));

  // Models of one experiment at equal threads.
  nlohmann::json models = text;
  models["date"] = "2026-11-23T04:18:46+02:00";
  models["cases"] = {text["cases"][0], text["cases"][0]};
  for (size_t i = 0; i < 2; ++i) {
    auto& c = models["cases"][i];
    c["name"] = fmt::format("{} layers", i + 1);
    c["lengths"] = {c["lengths"][0]};
    c["lengths"][0]["systems"] = {{"onnxruntime", c["lengths"][0]["systems"]["onnxruntime"]}};
    for (const char* key : {"median", "low", "high"})
      c["lengths"][0]["systems"]["onnxruntime"][key] = 5.0 + i;
    c["lengths"][0]["systems"]["onnxruntime"].erase("samples");
  }
  std::ofstream(file("models.json")) << models;
  const auto three = nlohmann::json::parse(run("peers --add " + file("models.json") + own).out);
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[0]["figures"], 2);
  const auto told = nlohmann::json::parse(
      run("peers " + three[0]["run"].get<std::string>() + " --format json " + db()).out);
  ASSERT_EQ(told.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(told[i]["case"], fmt::format("{} layers", i + 1));
    EXPECT_EQ(told[i]["median_ns"], 5000.0 + 1000 * static_cast<double>(i));
  }
  nlohmann::json elsewhere = text;
  elsewhere["machine"]["cpu"] = "another";
  EXPECT_THAT(refused(elsewhere, " " + db()), HasSubstr("--machine"));
  EXPECT_THAT(refused({{"cpu", 1}}, own), HasSubstr("lacks \"format\""));
  nlohmann::json bad = text;
  bad["unit"] = "ms";
  EXPECT_THAT(refused(bad, own), HasSubstr("µs per run"));
  bad = text;
  bad["cases"][0]["lengths"][0]["systems"]["onnxruntime"]["median"] = -1;
  EXPECT_THAT(refused(bad, own), HasSubstr("a time of it is none"));
  bad = text;
  bad["date"] = "yesterday";
  EXPECT_THAT(refused(bad, own), HasSubstr("tells no date"));
  bad["date"] = "2199-11-23T03:18:46+02:00";
  EXPECT_THAT(refused(bad, own), HasSubstr("more than a day"));
  bad = text;
  bad["cases"] = nlohmann::json::array();
  EXPECT_THAT(refused(bad, own), HasSubstr("compares no systems"));
  EXPECT_EQ(open()->peer_runs().size(), 3u) << "nothing of a refused one stays";
}

// What nimble doctor prints, in short.
std::string doctor_report(const std::string& model, const std::string& ceilings) {
  return nlohmann::json{{"cpu", {{"model", model}}},
                        {"measured", {{"at_ms", 5}, {"ceilings", nlohmann::json::parse(ceilings)}}}}
      .dump();
}

TEST_F(ProgramTest, CeilingsOfADoctorsReportAreKept) {
  fill();
  const std::string own = host_hardware().model_name;
  const auto write = [&](const std::string& text) { std::ofstream(file("report")) << text; };
  const std::string add = "ceilings --format json " + db() + " --add ";
  write(doctor_report(own, R"([
    {"kind":"compute","dtype":"f32","threads":2,"value":4e11,"median":3e11,"unit":"op/s",
     "instructions":"avx512f"},
    {"kind":"read_l2","dtype":"any","threads":1,"value":1.5e11,"unit":"byte/s"}])"));
  auto rows = nlohmann::json::parse(run(add + file("report")).out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["kind"], "compute");
  EXPECT_EQ(rows[0]["value"], 4e11);
  EXPECT_EQ(rows[0]["unit"], "op/s");
  EXPECT_EQ(rows[1]["dtype"], "any");
  const Uuid machine = rows[0]["machine"];
  ASSERT_EQ(open()->ceilings(machine).size(), 2u);
  EXPECT_EQ(open()->ceilings(machine)[1].dtype, "") << "it makes no difference";
  // The same report again, through a pipe.
  const CommandResult piped = run(add + "- < " + file("report"));
  EXPECT_EQ(nlohmann::json::parse(piped.out), rows);
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM ceiling"), 2);
  EXPECT_EQ(nlohmann::json::parse(run("ceilings --format json " + db()).out), rows);
  EXPECT_EQ(nlohmann::json::parse(
                run("ceilings --format json --machine " + machine.substr(0, 20) + " " + db()).out),
            rows);

  const std::string row =
      R"({"kind":"compute","dtype":"f32","threads":2,"value":4e11,"unit":"op/s"})";
  const std::pair<std::string, const char*> bad[] = {
      {"{", "is not valid JSON"},
      {"[]", "tells no measured ceilings"},
      {doctor_report(own, "[]"), "tells no measured ceilings"},
      {doctor_report(own, "[7]"), "ceiling 0 lacks"},
      {doctor_report(own,
                     R"([{"kind":"compute","dtype":"f32","threads":0,"value":1,"unit":"op/s"}])"),
       "of 0 threads"},
      {doctor_report(own,
                     R"([{"kind":"compute","dtype":"f32","threads":1,"value":-1,"unit":"op/s"}])"),
       "is no rate"},
      {doctor_report(own,
                     R"([{"kind":"read_l1","dtype":"any","threads":1,"value":1,"unit":"op/s"}])"),
       "is in op/s"},
      {doctor_report("Abacus 3", "[" + row + "]"), "was measured on Abacus 3"}};
  for (const auto& [text, why] : bad) {
    write(text);
    const CommandResult refused = run(add + file("report"));
    EXPECT_EQ(refused.exit_code, 1) << text;
    EXPECT_THAT(refused.out, HasSubstr(why));
  }
  EXPECT_EQ(run(add + file("report") + " --machine ffff").exit_code, 1);
  EXPECT_EQ(connection()->integer("SELECT count(*) FROM ceiling"), 2);
}

}  // namespace
}  // namespace nimble::db
