// A JSON file whose members are read with checks: every fault names the file and the key.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "vm/base/error.h"
#include "vm/base/file.h"

namespace nimble::frontend {

class JsonFile {
 public:
  // Errors: kNotFound and kIo of the file, kCorrupt if it is no JSON.
  explicit JsonFile(const std::string& path) : path_(path) {
    const std::string text = read_text_file(path);
    try {
      root_ = nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception&) {
      throw Error(Status::kCorrupt, path, "is not JSON, or is truncated", "download it again");
    }
  }

  const nlohmann::json& root() const { return root_; }
  const std::string& path() const { return path_; }

  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(Status::kCorrupt, path_, problem, "correct the file or download it again");
  }
  [[noreturn]] void unsupported(const std::string& problem, const std::string& remedy) const {
    throw Error(Status::kUnsupported, path_, problem, remedy);
  }

  bool has(const char* key) const { return root_.is_object() && root_.contains(key); }

  int64_t positive(const char* key) const {
    const nlohmann::json& v = member(key);
    constexpr int64_t kMost = int64_t{1} << 32;  // far above any model, far below overflow
    if (!v.is_number_integer() || v.get<int64_t>() < 1 || v.get<int64_t>() > kMost)
      fail(fmt::format("\"{}\" is not a positive integer", key));
    return v.get<int64_t>();
  }
  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!member(key).is_number()) fail(fmt::format("\"{}\" is not a number", key));
    return member(key).get<double>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!member(key).is_string()) fail(fmt::format("\"{}\" is not a string", key));
    return member(key).get<std::string>();
  }
  bool flag(const char* key) const {
    if (!has(key)) return false;
    if (!member(key).is_boolean()) fail(fmt::format("\"{}\" is neither true nor false", key));
    return member(key).get<bool>();
  }

 private:
  const nlohmann::json& member(const char* key) const {
    if (!has(key)) fail(fmt::format("\"{}\" is missing", key));
    return root_[key];
  }

  std::string path_;
  nlohmann::json root_;
};

}  // namespace nimble::frontend
