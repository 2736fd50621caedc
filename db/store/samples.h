// Samples as they lie in the database: little-endian doubles in ns, and one flag byte each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace nimble::db {

std::vector<uint8_t> encode_samples(std::span<const double> ns);
std::vector<uint8_t> encode_flags(const std::vector<bool>& flags);
std::vector<double> decode_samples(std::span<const uint8_t> bytes);
std::vector<bool> decode_flags(std::span<const uint8_t> bytes);

// What is wrong with stored samples of a measurement whose median is `median_ns`: a sample that is
// no time, a flag other than 0 and 1, a median outside their range. Empty if nothing is.
std::string problem_of_samples(std::span<const uint8_t> ns, std::span<const uint8_t> flags,
                               double median_ns);

}  // namespace nimble::db
