// Bad input as a user meets it: each case is one error on stderr that names the place and the
// remedy, the right exit code, no abort, and no file overwritten.
#include "compiler/tools/test/bad_input.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

#include "db/store/store.h"

namespace nimble::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kFixtures = fs::path(NIMBLE_SOURCE_DIR) / "compiler/frontend/test/data";

// A copy of a folder of Hugging Face's.
std::string hugging_face(const std::string& to) {
  fs::copy(kFixtures / "tiny_bert", to);
  return to;
}

// ---- models

TEST_F(BadInput, NoSuchModel) {
  expect_error(compile(file("none.onnx")), {file("none.onnx")});
  expect_error(compile(file("none")), {file("none")});
  write(file("model.txt"), "hello");
  expect_error(compile(file("model.txt")), {file("model.txt")});
  expect_nothing_written();
}

TEST_F(BadInput, TextWithFaults) {
  write(file("bad.nir"), "fn @main(%x: Tensor[(n), f32]) {\n  let %y = exq(%x);\n  %y\n}\n");
  Ran r = compile(file("bad.nir"));
  EXPECT_EQ(r.code, kExitFailure);
  EXPECT_THAT(r.error, HasSubstr("bad.nir:2:12: there is no operator exq; did you mean exp?"));
  write(file("types.nir"), "fn @main(%x: Tensor[(2, 3), f32]) { let %y = matmul(%x, %x); %y }");
  expect_error(compile(file("types.nir")), {"types.nir:1:"});
  write(file("constant.nir"),
        "fn @main(%x: Tensor[(2), f32]) { let %y = add(%x, const(\"w\")); %y }");
  r = compile(file("constant.nir"));
  EXPECT_EQ(r.code, kExitFailure);
  EXPECT_THAT(r.error, HasSubstr("constant.nir"));
  EXPECT_THAT(r.error, Not(HasSubstr("internal error")));
  expect_nothing_written();
}

TEST_F(BadInput, EntryFunctionsThatNobodyCanCall) {
  const auto refused = [&](const std::string& text, const std::vector<std::string>& parts) {
    write(file("entry.nir"), text);
    const Ran r = compile(file("entry.nir"));
    EXPECT_EQ(r.code, kExitFailure);
    for (const std::string& part : parts) EXPECT_THAT(r.error, HasSubstr(part));
    EXPECT_TRUE(r.error.ends_with("^\n")) << r.error;
  };
  refused(
      "fn @main(%x: Tensor[(n), f32]) {\n"
      "  let %f = fn (%y: Tensor[(n), f32]) { let %r = add(%x, %y); %r };\n  %f\n}\n",
      {"entry.nir:3:3: ", "cannot return fn("});
  refused(
      "fn @main(%x: Tensor[(n), f32],\n         %f: fn(Tensor[(n), f32]) -> Tensor[(n), f32]) {\n"
      "  let %r = %f(%x);\n  %r\n}\n",
      {"entry.nir:2:10: ", "cannot take fn("});
  refused(
      "fn @main(%x: Tensor[(n), f32]) {\n  let %r = (%x, %x);\n  %r\n}\n"
      "signature @main {inputs = [\"x\"], outputs = [\"z\", \"z\"]};\n",
      {"two outputs of main have the name z", "give each a name of its own"});
  expect_nothing_written();
}

TEST_F(BadInput, HuggingFaceFolderWithoutItsFiles) {
  std::string model = hugging_face(file("hf"));
  ASSERT_EQ(compile(model, {}, "good.nimble").code, 0);
  fs::remove(model + "/config.json");
  expect_error(compile(model), {model});
  write(model + "/config.json", "{\"model_type\": ");
  expect_error(compile(model), {"config.json"});
  expect_nothing_written();
}

TEST_F(BadInput, HuggingFaceWeightsMissingOrTruncated) {
  std::string model = hugging_face(file("hf")), weights = model + "/model.safetensors";
  std::string whole = contents(weights);
  for (size_t size : {size_t{0}, size_t{5}, size_t{100}, whole.size() / 2, whole.size() - 1}) {
    write(weights, whole.substr(0, size));
    expect_error(compile(model), {"model.safetensors"});
  }
  // A weight under another name is a missing weight.
  std::string renamed = whole;
  size_t at = renamed.find("query.weight");
  ASSERT_NE(at, std::string::npos);
  renamed[at] = 'Q';
  write(weights, renamed);
  expect_error(compile(model), {"query.weight"});
  fs::remove(weights);
  expect_error(compile(model), {model});
  expect_nothing_written();
}

TEST_F(BadInput, OnnxTruncated) {
  std::string whole = contents(kFixtures / "mlp_dynamo.onnx");
  for (size_t size : {size_t{0}, size_t{1}, whole.size() / 3, whole.size() / 2, whole.size() - 1}) {
    write(file("cut.onnx"), whole.substr(0, size));
    expect_error(compile(file("cut.onnx")), {"cut.onnx"});
  }
  // External data that is not there.
  fs::copy_file(kFixtures / "mlp_external.onnx", file("external.onnx"));
  expect_error(compile(file("external.onnx")), {"mlp_external.onnx.data"});
  expect_nothing_written();
}

TEST_F(BadInput, OptionsThatMeanNothing) {
  for (const char* program : {"nimble-compile", "nimble-check", "nimble-opt"}) {
    const auto refused = [&](const std::vector<std::string>& more,
                             const std::vector<std::string>& parts) {
      std::vector<std::string> words = {program, file("model.nir")};
      words.insert(words.end(), more.begin(), more.end());
      expect_error(run(words), parts, kExitUsage);
    };
    refused({"--target", "z80"}, {"--target: target z80: there is no such target", "x86-64-v3"});
    refused({"--target", "x86-64-v3,x86-64-v3"}, {"two levels"});
    refused({"--precision", "fp7"},
            {"--precision: precision fp7: there is no such precision", "f32, bf16"});
    refused({"--winograd", "3"}, {"--winograd", "3 not in {0,2,4}"});
    refused({"--shape", "n"}, {"--shape: 'n' is not SYMBOL=EXTENT"});
    refused({"--shape", "n=x"}, {"extent of n"});
  }
  expect_error(compile(file("model.nir"), {"--shape", "q=4"}), {"q"});
  expect_error(compile(file("model.nir"), {"--disable-pass", "fuze"}), {"fuze"}, kExitUsage);
  expect_error(compile(file("model.nir"), {"--disable-pass", "fuse"}), {"cannot be disabled"},
               kExitUsage);
  for (const char* option : {"--passes=infer,fuze", "--print-after=fuze"})
    expect_error(run({"nimble-opt", file("model.nir"), option}), {"there is no such pass"},
                 kExitUsage);
  expect_error(compile(file("model.nir"), {"--decode-state", "cache"}), {"--decode-state", "cache"},
               kExitUsage);
  expect_error(compile(file("model.nir"), {"--shape", "n=1", "--shape", "n=2"}),
               {"n is given twice"});
  for (const char* option : {"--decode-end=-7", "--decode-context=-1", "--decode-top-k=0"})
    EXPECT_EQ(compile(file("model.nir"), {"--decode", "greedy", option}).code, kExitUsage)
        << option;
  expect_error(compile(file("model.nir"), {"--knobs", "dense"}), {"is not TEMPLATE=JSON"},
               kExitUsage);
  expect_error(compile(file("model.nir"), {"--knobs", "elementwise={\"unroll\""}),
               {"is not valid JSON"}, kExitUsage);
  expect_error(compile(file("model.nir"), {"--knobs", "elementwise={\"unrol\":2}"}),
               {"knobs of elementwise", "no knob unrol", "its knobs: "});
  write(file("list.tsv"), file("none.nir") + "\t" + file("out.nimble") + "\nno output\n");
  expect_error(run({"nimble-compile", "--batch", file("list.tsv")}),
               {file("list.tsv") + ":2: 'no output' has no tab; write MODEL<tab>OUTPUT"});
  EXPECT_EQ(run({"nimble-compile", file("model.nir")}).code, kExitUsage) << "no output";
  EXPECT_EQ(run({"nimble-compile", "--nonsense"}).code, kExitUsage);
  expect_nothing_written();
}

// ---- outputs

TEST_F(BadInput, ReadOnlyOutputKeepsTheOldFile) {
  expect_error(run({"nimble-compile", file("model.nir"), "-o", file("no/such/folder/x.nimble")}),
               {file("no/such/folder/x.nimble")});
  fs::create_directory(folder_ / "locked");
  write(file("locked/out.nimble"), "old");
  fs::permissions(folder_ / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  auto as_nobody = [&] {
    // root may write anywhere
    if (geteuid() == 0 && (setegid(65534) != 0 || seteuid(65534) != 0)) _exit(124);
  };
  fs::permissions(folder_, fs::perms::all);
  write(file("stdout"), "");
  write(file("stderr"), "");
  // exec keeps effective ids: the program itself runs without root's rights.
  Ran r = run({"nimble-compile", file("model.nir"), "-o", file("locked/out.nimble"), "-j", "1"},
              as_nobody);
  fs::permissions(folder_ / "locked", fs::perms::owner_all);
  if (r.code == 126) GTEST_SKIP() << "another user cannot run the programs here";
  expect_error(r, {file("locked/out.nimble")});
  EXPECT_EQ(contents(file("locked/out.nimble")), "old");
  expect_error(run({"nimble-compile", file("model.nir"), "-o", "/dev/full"}), {"/dev/full"});
}

TEST_F(BadInput, FullDiskKeepsTheOldFile) {
  // As a full disk does, a limit on file sizes fails a write half way.
  auto limited = [](rlim_t bytes) {
    return [bytes] {
      signal(SIGXFSZ, SIG_IGN);
      rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_FSIZE, &limit);
    };
  };
  compiled();
  const auto whole = static_cast<rlim_t>(fs::file_size(file("model.nimble")));
  write(file("old.nimble"), "old");
  // From no room at all to one byte less than needed; the linker's own file is among the victims.
  for (rlim_t bytes : {rlim_t{4096}, rlim_t{8192}, whole / 2, whole - 1}) {
    Ran r = run({"nimble-compile", file("model.nir"), "-o", file("old.nimble"), "-j", "1"},
                limited(bytes));
    expect_error(r, {});
    EXPECT_EQ(contents(file("old.nimble")), "old");
  }
  for (const auto& f : fs::directory_iterator(folder_))
    EXPECT_THAT(f.path().filename().string(), Not(HasSubstr("old.nimble."))) << "left behind";
}

// By whatever name: what a file is made from is worth more than the file.
TEST_F(BadInput, NothingIsWrittenOverWhatItIsMadeFrom) {
  compiled();
  fs::copy_file(kFixtures / "mlp_dynamo.onnx", folder_ / "mlp_dynamo.onnx");
  fs::create_symlink(folder_ / "mlp_dynamo.onnx", folder_ / "link.onnx");
  db::Store::open(file("tuning.db"));
  write(file("model.nir.safetensors"), "constants");
  const auto kept = [&](const std::string& name, const std::vector<std::string>& words,
                        const std::vector<std::string>& parts) {
    const std::string before = contents(file(name));
    expect_error(run(words), parts);
    EXPECT_EQ(contents(file(name)), before) << words[0];
  };
  const std::string onnx = file("mlp_dynamo.onnx"), text = file("model.nir"),
                    executable = file("model.nimble"), itself = ": is the model itself; name";
  kept("mlp_dynamo.onnx", {"nimble-compile", onnx, "-o", onnx}, {onnx + itself});
  kept("mlp_dynamo.onnx", {"nimble-compile", onnx, "-o", file("link.onnx")}, {itself});
  kept("mlp_dynamo.onnx", {"nimble-opt", onnx, "--passes", "", "-o", onnx}, {onnx + itself});
  kept("model.nir", {"nimble-compile", text, "-o", text}, {text + itself});
  kept("model.nir.safetensors", {"nimble-compile", text, "-o", file("model.nir.safetensors")},
       {": is the file of its constants; "});
  kept("tuning.db", {"nimble-compile", text, "--db", file("tuning.db"), "-o", file("tuning.db")},
       {": is the tuning database; "});
  for (const char* option : {"--output", "--trace", "--record-shapes"})
    kept("model.nimble",
         {"nimble-run", executable, "-i", "x=ones:1x4", "-i", "m=[1]", option, executable},
         {executable + ": is the executable itself; "});
  // Text may be printed anew where it was.
  fs::remove(file("model.nir.safetensors"));
  EXPECT_EQ(run({"nimble-opt", text, "--passes", "infer", "-o", text}).code, 0);
}

// ---- databases

TEST_F(BadInput, DatabaseMissingDamagedOrNewer) {
  expect_error(compile(file("model.nir"), {"--db", file("none.db")}), {file("none.db")});
  EXPECT_FALSE(fs::exists(file("none.db")));
  write(file("text.db"), std::string(8192, 'x'));
  Ran r = compile(file("model.nir"), {"--db", file("text.db")});
  EXPECT_TRUE(r.code == kExitFailure || r.code == kExitStale) << r.code;
  expect_error(r, {file("text.db")}, r.code);

  { db::Store::open(file("new.db")); }
  ASSERT_EQ(compile(file("model.nir"), {"--db", file("new.db")}, "good.nimble").code, 0);
  std::string bytes = contents(file("new.db"));
  bytes[62] = 0x7f;  // the schema's number, PRAGMA user_version: bytes 60 to 63 of the file
  write(file("new.db"), bytes);
  for (const char* program : {"nimble-compile", "nimble-check"}) {
    std::vector<std::string> a = {program, file("model.nir"), "--db", file("new.db")};
    if (program == std::string("nimble-compile")) a.insert(a.end(), {"-o", file("out.nimble")});
    expect_error(run(a), {file("new.db"), "newer"}, kExitStale);
  }
  EXPECT_EQ(contents(file("new.db")), bytes);
  expect_nothing_written();
}

}  // namespace
}  // namespace nimble::tools
