#include "db/store/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace nimble::db {

static_assert(std::endian::native == std::endian::little,
              "samples are stored as little-endian doubles; swap bytes here on other machines");

std::vector<uint8_t> encode_samples(std::span<const double> ns) {
  std::vector<uint8_t> bytes(ns.size_bytes());
  if (!ns.empty()) std::memcpy(bytes.data(), ns.data(), bytes.size());
  return bytes;
}

std::vector<uint8_t> encode_flags(const std::vector<bool>& flags) {
  return {flags.begin(), flags.end()};
}

std::vector<double> decode_samples(std::span<const uint8_t> bytes) {
  std::vector<double> ns(bytes.size() / sizeof(double));
  if (!ns.empty()) std::memcpy(ns.data(), bytes.data(), ns.size() * sizeof(double));
  return ns;
}

std::vector<bool> decode_flags(std::span<const uint8_t> bytes) {
  std::vector<bool> flags;
  flags.reserve(bytes.size());
  for (uint8_t byte : bytes) flags.push_back(byte != 0);
  return flags;
}

std::string problem_of_samples(std::span<const uint8_t> bytes, std::span<const uint8_t> flags,
                               double median_ns) {
  const std::vector<double> ns = decode_samples(bytes);
  for (double sample : ns)
    if (!(sample > 0) || !std::isfinite(sample))
      return fmt::format("the sample {} is not a time", sample);
  for (uint8_t flag : flags)
    if (flag > 1) return fmt::format("the outlier flag {} is neither 0 nor 1", flag);
  if (ns.empty()) return "there are no samples";
  const auto [low, high] = std::minmax_element(ns.begin(), ns.end());
  if (median_ns < *low || median_ns > *high)
    return fmt::format("the median {} lies outside the samples [{}, {}]", median_ns, *low, *high);
  return {};
}

}  // namespace nimble::db
