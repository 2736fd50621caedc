// Lists of CPUs, written as Linux writes them ("0-3,8"), and binding to them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nimble {

// In ascending order, each once. Error(kInvalidArgument) naming `place` for a text that is no list,
// or an empty one.
std::vector<int> cpu_list_from_text(std::string_view text, const std::string& place);
// The inverse, for numbers in ascending order.
std::string cpu_list_text(const std::vector<int>& cpus);

// Error(kInvalidArgument) if the calling thread may not use one of them.
void check_cpus(const std::vector<int>& cpus);
// Binds the calling thread, and those that it will start, to these CPUs.
// Error(kInvalidArgument) if it may not use one of them; it is then bound as before.
void bind_to_cpus(const std::vector<int>& cpus);

}  // namespace nimble
