// A task's entries in the cache of work.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tuner/service/work_cache.h"

namespace nimble::tuner {

class TaskCache {
 public:
  // `whose`: what every entry depends on, beyond the campaign, whose file it is in.
  TaskCache(WorkCache* cache, std::string whose) : cache_(cache), whose_(std::move(whose)) {}

  std::string key(const std::string& kind, const std::string& name) const {
    return kind + " " + whose_ + " " + name;
  }
  void put(const std::string& key, const nlohmann::json& value) const {
    if (cache_) cache_->put(key, nlohmann::json::to_cbor(value));
  }
  std::optional<nlohmann::json> get(const std::string& key) const {
    if (!cache_) return std::nullopt;
    const std::optional<std::vector<uint8_t>> bytes = cache_->get(key);
    if (!bytes) return std::nullopt;
    return nlohmann::json::from_cbor(*bytes);
  }
  // As they are: results of an image model are megabytes.
  void put_bytes(const std::string& key, std::span<const uint8_t> bytes) const {
    if (cache_) cache_->put(key, bytes);
  }
  std::optional<std::vector<uint8_t>> get_bytes(const std::string& key) const {
    return cache_ ? cache_->get(key) : std::nullopt;
  }

 private:
  WorkCache* cache_;
  std::string whose_;
};

}  // namespace nimble::tuner
