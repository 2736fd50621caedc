// External data (onnx/external_data.h): each case is a model that tries to read what it should not,
// among them those of CVE-2022-25882, 2024-27318, 2026-27489 and 2026-34447.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "compiler/frontend/test/onnx_writer.h"
#include "compiler/frontend/test/support.h"

namespace nimble::frontend {
namespace {

namespace fs = std::filesystem;
using proto::GraphParts;
using proto::node;
using proto::value;

class ExternalFile : public testing::Test {
 protected:
  using Entries = std::vector<std::pair<std::string, std::string>>;

  void SetUp() override {
    // 64 floats 0…63 in the model's folder, below it and beside it.
    std::vector<float> values(64);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    contents_.assign(reinterpret_cast<const char*>(values.data()), values.size() * 4);
    scratch_.write("folder/w.bin", contents_);
    scratch_.write("folder/sub/w.bin", contents_);
    scratch_.write("outside.bin", contents_);
  }

  std::string model_with(const Entries& entries, std::vector<int64_t> dims = {4}) {
    GraphParts g = graph();
    g.initialisers = {proto::external_tensor("w", dims, entries)};
    g.nodes[0] = node("Add", {"x", "w"}, {"y"});
    scratch_.write("folder/m.onnx", proto::model(g));
    return scratch_.path("folder/m.onnx");
  }
  void expect_refused(const Entries& entries, const std::string& text,
                      Status status = Status::kCorrupt) {
    const std::string path = model_with(entries);
    const Error e = error_of([&] { import_model(path); });
    EXPECT_EQ(e.status(), status) << e.what();
    EXPECT_THAT(e.what(), testing::HasSubstr(text));
    EXPECT_THAT(e.place(), testing::HasSubstr("initialiser w"));
  }
  void expect_first(const Entries& entries, float first) {
    const ir::Module m = import_model(model_with(entries));
    const std::vector<float> x = {0, 0, 0, 0}, y = {first, first + 1, first + 2, first + 3};
    expect_close(run_reference(m, {{"x", array_of({1, 4}, x)}}).at("y"), array_of({1, 4}, y), 0,
                 "");
  }
  // y = relu(x), for the caller to change.
  static GraphParts graph() {
    return {{node("Relu", {"x"}, {"y"})}, {}, {value("x", {"n", "4"})}, {value("y", {"n", "4"})}};
  }
  Scratch scratch_;
  std::string contents_;
};

TEST_F(ExternalFile, PlainFilesAreRead) {
  expect_first({{"location", "w.bin"}}, 0);
  expect_first({{"location", "w.bin"}, {"offset", "8"}}, 2);
  expect_first({{"location", "sub/w.bin"}, {"offset", "240"}, {"length", "16"}}, 60);
  expect_first({{"location", "w.bin"}, {"offset", "4"}, {"checksum", "unused"}}, 1);
}

TEST_F(ExternalFile, ReadsBytesThatAreNotAligned) {
  scratch_.write("folder/odd.bin", "!" + contents_);
  expect_first({{"location", "odd.bin"}, {"offset", "1"}}, 0);
}

TEST_F(ExternalFile, ReadsAModelNamedWithoutAFolder) {
  const std::string path = model_with({{"location", "w.bin"}});
  const fs::path before = fs::current_path();
  fs::current_path(scratch_.path("folder"));
  EXPECT_NO_THROW(import_model("m.onnx"));
  fs::current_path(before);
}

TEST_F(ExternalFile, LocationsThatLeaveTheFolder) {
  expect_refused({{"location", "../outside.bin"}}, "'..'");
  expect_refused({{"location", "sub/../../outside.bin"}}, "'..'");
  expect_refused({{"location", "sub/.."}}, "'..'");
  expect_refused({{"location", scratch_.path("outside.bin")}}, "absolute");
  expect_refused({{"location", "/etc/passwd"}}, "absolute");
}

TEST_F(ExternalFile, LocationsThatAreNotPlain) {
  expect_refused({{"location", ""}}, "no location");
  expect_refused({}, "no location");
  expect_refused({{"location", "./w.bin"}}, "'.'");
  expect_refused({{"location", "sub//w.bin"}}, "''");
  expect_refused({{"location", "sub/"}}, "''");
  expect_refused({{"location", "sub\\w.bin"}}, "forbidden");
  expect_refused({{"location", std::string("w.bin\0.png", 10)}}, "forbidden");
  expect_refused({{"location", "w.bin\n"}}, "forbidden");
  expect_refused({{"location", std::string(5000, 'a')}}, "too long");
}

TEST_F(ExternalFile, SymbolicLinks) {
  fs::create_symlink(scratch_.path("outside.bin"), scratch_.path("folder/link.bin"));
  expect_refused({{"location", "link.bin"}}, "symbolic link");
  fs::create_symlink("w.bin", scratch_.path("folder/inner.bin"));
  expect_refused({{"location", "inner.bin"}}, "symbolic link");
  fs::create_directory_symlink(scratch_.path(), scratch_.path("folder/up"));
  expect_refused({{"location", "up/outside.bin"}}, "symbolic link");
  fs::create_directory_symlink("sub", scratch_.path("folder/alias"));
  expect_refused({{"location", "alias/w.bin"}}, "symbolic link");
}

TEST_F(ExternalFile, HardLinks) {
  fs::create_hard_link(scratch_.path("outside.bin"), scratch_.path("folder/hard.bin"));
  expect_refused({{"location", "hard.bin"}}, "hard links");
}

TEST_F(ExternalFile, ThingsThatAreNoFiles) {
  expect_refused({{"location", "sub"}}, "not a regular file");
  ASSERT_EQ(::mkfifo(scratch_.path("folder/fifo").c_str(), 0600), 0);
  expect_refused({{"location", "fifo"}}, "not a regular file");
  expect_refused({{"location", "absent.bin"}}, "absent.bin", Status::kNotFound);
  expect_refused({{"location", "w.bin/x"}}, "w.bin/x");
}

TEST_F(ExternalFile, BoundsOutsideTheFile) {
  expect_refused({{"location", "w.bin"}, {"offset", "244"}}, "outside");
  expect_refused({{"location", "w.bin"}, {"offset", "18446744073709551615"}}, "not a number");
  expect_refused({{"location", "w.bin"}, {"offset", "9223372036854775807"}}, "outside");
  expect_refused({{"location", "w.bin"}, {"offset", "99999999999999999999999"}}, "not a number");
  expect_refused({{"location", "w.bin"}, {"offset", "-4"}}, "not a number");
  expect_refused({{"location", "w.bin"}, {"offset", "4x"}}, "not a number");
  expect_refused({{"location", "w.bin"}, {"offset", ""}}, "not a number");
  expect_refused({{"location", "w.bin"}, {"length", "12"}}, "12 bytes where the shape needs 16");
  scratch_.write("folder/empty.bin", "");
  expect_refused({{"location", "empty.bin"}}, "outside");
  fs::resize_file(scratch_.path("folder/w.bin"), 15);
  expect_refused({{"location", "w.bin"}}, "outside");
}

// Numbers that some reader would take for an offset.
TEST_F(ExternalFile, OffsetsThatAreNoPlainDecimals) {
  for (const char* offset : {"0x10", "+16", " 16", "16 ", "1e1", "16.0", "0b1", "１６", "16,0"})
    expect_refused({{"location", "w.bin"}, {"offset", offset}}, "not a number");
  expect_refused({{"location", "w.bin"}, {"length", "-1"}}, "not a number");
  expect_refused({{"location", "w.bin"}, {"length", "18446744073709551632"}}, "not a number");
}

// The second wins in some readers and the first in others, so that a check of one is no check.
TEST_F(ExternalFile, KeysGivenTwice) {
  expect_refused({{"location", "w.bin"}, {"location", "../outside.bin"}}, "'location' twice");
  expect_refused({{"location", "../outside.bin"}, {"location", "w.bin"}}, "'location' twice");
  expect_refused({{"location", "w.bin"}, {"offset", "0"}, {"offset", "244"}}, "'offset' twice");
}

// Names that other readers decode once more, or that a shell would expand: plain names here.
TEST_F(ExternalFile, EncodedNamesAreNotDecoded) {
  for (const char* location :
       {"%2e%2e/outside.bin", "..%2foutside.bin", "~/outside.bin", "$HOME/outside.bin", "C:/w.bin",
        "..;/outside.bin", ".. /outside.bin", "\xc0\xae\xc0\xae/outside.bin", "．．/outside.bin"})
    expect_refused({{"location", location}}, "cannot open", Status::kNotFound);
  expect_refused({{"location", "file:///etc/passwd"}}, "''");
  expect_refused({{"location", "C:\\w.bin"}}, "forbidden");
  expect_refused({{"location", "/etc/pass\nwd"}}, "forbidden");
  expect_refused({{"location", "w.bin\x7f"}}, "forbidden");
}

TEST_F(ExternalFile, ParentsBehindLinks) {
  fs::create_directories(scratch_.path("elsewhere/deep"));
  scratch_.write("elsewhere/deep/w.bin", contents_);
  fs::create_directories(scratch_.path("folder/a/b"));
  fs::create_directory_symlink(scratch_.path("elsewhere/deep"), scratch_.path("folder/a/b/c"));
  expect_refused({{"location", "a/b/c/w.bin"}}, "symbolic link");
  fs::create_symlink("absent", scratch_.path("folder/dangling"));
  expect_refused({{"location", "dangling"}}, "symbolic link");
  fs::create_symlink("circle", scratch_.path("folder/circle"));
  expect_refused({{"location", "circle"}}, "symbolic link");
  fs::create_symlink("/proc/self/environ", scratch_.path("folder/environ"));
  expect_refused({{"location", "environ"}}, "symbolic link");
}

TEST_F(ExternalFile, LinkedFilesInside) {
  fs::create_hard_link(scratch_.path("folder/w.bin"), scratch_.path("folder/again.bin"));
  expect_refused({{"location", "again.bin"}}, "2 hard links");
  expect_refused({{"location", "w.bin"}}, "2 hard links");
}

TEST_F(ExternalFile, Sockets) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = scratch_.path("folder/socket");
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  expect_refused({{"location", "socket"}}, "not a regular file");
  ::close(fd);
}

TEST_F(ExternalFile, DepthAndSizeAreBounded) {
  std::string deep;
  for (int i = 0; i < 20; ++i) deep += "d/";
  expect_refused({{"location", deep + "w.bin"}}, "folders deep");
  expect_refused({{"location", std::string(300, 'a')}}, "cannot open", Status::kIo);
  fs::resize_file(scratch_.path("folder/w.bin"), uintmax_t{1} << 39);  // sparse
  expect_refused({{"location", "w.bin"}}, "more than");
}

TEST_F(ExternalFile, ManyFilesAreRefused) {
  GraphParts g = graph();
  for (int i = 0; i < 1030; ++i) {
    const std::string name = "w" + std::to_string(i);
    scratch_.write("folder/" + name, contents_);
    g.initialisers.push_back(proto::external_tensor(name, {4}, {{"location", name}}));
  }
  scratch_.write("folder/m.onnx", proto::model(g));
  EXPECT_THAT(error_of([&] { import_model(scratch_.path("folder/m.onnx")); }).what(),
              testing::HasSubstr("more than 1024 external files"));
}

// Data in both places, and external data in an attribute, where a check of initialisers alone
// would not look.
TEST_F(ExternalFile, TensorsInOtherPlaces) {
  GraphParts both = graph();
  both.initialisers = {proto::external_tensor("w", {4}, {{"location", "w.bin"}}) +
                       proto::bytes(9, std::string(16, '\0'))};
  both.nodes[0] = node("Add", {"x", "w"}, {"y"});
  scratch_.write("folder/m.onnx", proto::model(both));
  EXPECT_THAT(error_of([&] { import_model(scratch_.path("folder/m.onnx")); }).what(),
              testing::HasSubstr("both inside and outside"));

  for (const char* location : {"../outside.bin", "/etc/passwd"}) {
    GraphParts attribute = graph();
    const std::string t = proto::external_tensor("", {4}, {{"location", location}});
    attribute.nodes = {node("Constant", {}, {"w"},
                            proto::bytes(5, proto::bytes(1, "value") + proto::bytes(5, t) +
                                                proto::integer(20, 4))),
                       node("Add", {"x", "w"}, {"y"})};
    scratch_.write("folder/m.onnx", proto::model(attribute));
    EXPECT_EQ(error_of([&] { import_model(scratch_.path("folder/m.onnx")); }).status(),
              Status::kCorrupt)
        << location;
  }
}

// The order of such a file's making: checked as a plain file, then swapped for a link. Whatever a
// check may have seen, what is opened is what is judged.
TEST_F(ExternalFile, WhatIsOpenedIsWhatIsJudged) {
  expect_first({{"location", "w.bin"}}, 0);
  fs::remove(scratch_.path("folder/w.bin"));
  fs::create_symlink(scratch_.path("outside.bin"), scratch_.path("folder/w.bin"));
  expect_refused({{"location", "w.bin"}}, "symbolic link");
}

TEST_F(ExternalFile, ShapesThatAreTooLarge) {
  const std::string path = model_with({{"location", "w.bin"}}, {int64_t{1} << 40, 4});
  EXPECT_EQ(error_of([&] { import_model(path); }).status(), Status::kCorrupt);
}

}  // namespace
}  // namespace nimble::frontend
