// The binary interface is what it was: functions, constants and layouts of structs against files
// that say what each version has (test/abi/nimble-VERSION.txt), and programs built against an older
// header on the library of today and on one whose structs have all grown.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "vm/api/nimble.h"
#include "vm/base/fault/child.h"
#include "vm/base/file.h"

namespace nimble {
namespace {

const std::string kFolder = std::string(NIMBLE_SOURCE_DIR) + "/vm/api/";

std::string golden_path(int version) {
  return kFolder + "test/abi/nimble-" + std::to_string(version) + ".txt";
}

// nimble.h without comments and preprocessor lines, any white space one blank.
std::string header_text() {
  std::string text = read_text_file(kFolder + "nimble.h");
  for (const char* pattern : {R"(/\*[^*]*\*+([^/*][^*]*\*+)*/)", R"(#[^\n]*(\\\n[^\n]*)*)"})
    text = std::regex_replace(text, std::regex(pattern), " ");
  return std::regex_replace(text, std::regex(R"(\s+)"), " ");
}

template <typename Visit>
void each_match(const std::string& text, const char* pattern, Visit visit) {
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) visit(*it);
}

// The fields that the header gives each struct, in order.
std::map<std::string, std::vector<std::string>> declared_fields(const std::string& header) {
  std::map<std::string, std::vector<std::string>> all;
  each_match(header, R"(struct (nimble_\w+) \{([^}]*)\})", [&](const std::smatch& found) {
    each_match(found[2], R"((\w+)(\)\([^)]*\))? ?;)",
               [&](const std::smatch& field) { all[found[1]].push_back(field[1]); });
  });
  return all;
}

struct Field {
  const char *structure, *name;
  size_t offset, size, of;  // `of`: the struct's size
};
constexpr Field kFields[] = {
#define NIMBLE_FIELD(structure, field) \
  {#structure, #field, offsetof(structure, field), sizeof(structure::field), sizeof(structure)},
#include "vm/api/test/abi/layout.def"
#undef NIMBLE_FIELD
};

std::vector<std::string> functions(const std::string& header) {
  std::vector<std::string> all;
  each_match(header, R"(NIMBLE_API ([^;]*);)",
             [&](const std::smatch& found) { all.push_back(found[1]); });
  return all;
}

// One line for each thing that a program may rely on.
std::vector<std::string> interface_of_today() {
  const std::string header = header_text();
  std::vector<std::string> lines;
  for (const std::string& f : functions(header)) lines.push_back("function " + f);
  each_match(header, R"((NIMBLE_\w+) = (-?\d+))", [&](const std::smatch& found) {
    lines.push_back("constant " + found[1].str() + " = " + found[2].str());
  });
  for (const Field& f : kFields)
    lines.push_back("field " + std::string(f.structure) + "." + f.name + ": offset " +
                    std::to_string(f.offset) + ", " + std::to_string(f.size) + " bytes");
  return lines;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  const std::string text = read_text_file(path);
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1)
    lines.push_back(text.substr(at, end - at));
  return lines;
}

std::vector<std::string> missing_from(const std::vector<std::string>& lines,
                                      const std::vector<std::string>& all) {
  const std::set<std::string> there(all.begin(), all.end());
  std::vector<std::string> missing;
  for (const std::string& line : lines)
    if (!there.contains(line)) missing.push_back(line);
  return missing;
}

TEST(Abi, EveryFieldHasARow) {
  std::map<std::string, std::vector<std::string>> rows;
  for (const Field& f : kFields) rows[f.structure].push_back(f.name);
  EXPECT_EQ(rows, declared_fields(header_text())) << "see vm/api/test/abi/layout.def";
  // Nothing hides between or behind the fields.
  std::map<std::string, size_t> end;
  for (const Field& f : kFields) {
    EXPECT_EQ(f.offset, end[f.structure])
        << f.structure << "." << f.name << ": fill the gap before it with a reserved field";
    end[f.structure] = f.offset + f.size;
    EXPECT_LE(end[f.structure], f.of);
  }
  for (const Field& f : kFields) EXPECT_EQ(end[f.structure], f.of) << f.structure;
}

TEST(Abi, IsWhatItsFileSays) {
  const std::string path = golden_path(NIMBLE_API_VERSION);
  const std::vector<std::string> today = interface_of_today();
  if (std::getenv("NIMBLE_UPDATE_ABI")) {
    std::string text;
    for (const std::string& line : today) text += line + "\n";
    write_file_atomically(path, text);
  }
  ASSERT_EQ(::access(path.c_str(), R_OK), 0)
      << path << " is not there: NIMBLE_UPDATE_ABI=1 writes it";
  const std::vector<std::string> said = lines_of(path);
  EXPECT_THAT(missing_from(said, today), ::testing::IsEmpty());
  EXPECT_THAT(missing_from(today, said), ::testing::IsEmpty());
  if (HasFailure())
    ADD_FAILURE() << "nimble.h differs from " << path
                  << ".\nWhat programs were built against may not change or go. To add to it:\n"
                     "  1. append functions, constants and fields (at a struct's end, 0 the "
                     "default, its NIMBLE_*_INIT too),\n"
                     "     a row for each field in test/abi/layout.def;\n"
                     "  2. raise NIMBLE_API_VERSION, unless it was raised since the last release;\n"
                     "  3. run this test with NIMBLE_UPDATE_ABI=1 and read the difference: lines "
                     "may only be added.";
}

TEST(Abi, HoldsWhatOlderVersionsPromised) {
  const std::vector<std::string> today = interface_of_today();
  int versions = 0;
  for (int version = 1; version < NIMBLE_API_VERSION; ++version) {
    if (::access(golden_path(version).c_str(), R_OK) != 0) continue;
    ++versions;
    EXPECT_THAT(missing_from(lines_of(golden_path(version)), today), ::testing::IsEmpty())
        << "version " << version;
  }
  EXPECT_GE(versions, 1);
}

TEST(Abi, TheLibraryHasEveryFunction) {
  void* library = ::dlopen(NIMBLE_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
  const std::vector<std::string> all = functions(header_text());
  EXPECT_GT(all.size(), 40u);
  for (const std::string& declaration : all) {
    std::smatch name;
    ASSERT_TRUE(std::regex_search(declaration, name, std::regex(R"((nimble_\w+)\()")));
    EXPECT_NE(::dlsym(library, name[1].str().c_str()), nullptr) << declaration;
  }
  ::dlclose(library);
}

// Built against the header of version 3 or of today, on the library of today or on one of the
// future, in which each struct has another field at its end.
TEST(Abi, ProgramsOfOlderHeadersRun) {
  const std::string model = ::testing::TempDir() + "abi." + std::to_string(::getpid()) + ".nimble";
  auto run = [](std::vector<std::string> command) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    return in_child([&] {
      ::execv(argv[0], argv.data());
      return false;
    });
  };
  ASSERT_EQ(run({NIMBLE_MODEL_WRITER, model}), "");
  for (const char* program : {NIMBLE_CALLERS}) EXPECT_EQ(run({program, model}), "") << program;
  ::unlink(model.c_str());
}

}  // namespace
}  // namespace nimble
