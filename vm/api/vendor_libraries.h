// Which libraries of vendors are here, for nimble's own programs: they see the runtime from
// outside, and models tell it of the libraries that they ask for (nimble_model_info).
#pragma once

#include <string>
#include <vector>

namespace nimble {

struct VendorLibrary {
  std::string name;     // as its routines begin: "cublaslt"
  std::string version;  // "cuBLASLt 13.0.2"; "" if it is not there
  std::string problem;  // why it cannot be used; "" if it can
};

// Those of all routines (VendorRoutines.def), in the table's order. Opens them.
std::vector<VendorLibrary> vendor_libraries();

}  // namespace nimble
