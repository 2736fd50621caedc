// Vendors' routines and the versions of their libraries: what was measured with one version tells
// nothing of another.
#pragma once

#include <string>

#include "compiler/kernels/target.h"
#include "compiler/kernels/workload.h"

namespace nimble::exec {
struct VendorCall;
}

namespace nimble::driver {

// A library's version that no library is of: what was measured is not known, so ours is to run.
inline constexpr char kUnknownVersion[] = "an unknown version";

// Why no kernel can be made of this routine here; "" if one can.
std::string why_no_vendor(const std::string& routine);
// Of the routine's library on this machine; "" if it is not there.
std::string version_here(const std::string& routine);

// A vendor's routine as a record names its code: with the version of its library.
std::string code_of_routine(const std::string& routine, const std::string& version);
// The same of a call that is told what to compute. Where factors may be rounded to TF32 the code
// says so: the library then has other kernels, whose times tell nothing of those without.
std::string code_of_call(const exec::VendorCall& call);
// The version that a record's code names; "" if it names none.
std::string version_in(const std::string& code, const std::string& routine);

// What the routine is told: what to compute, and by which version of its library; "": any will do.
// Empty if it does not compute the workload; then the runtime passes over it.
std::string vendor_configuration(const kernels::Workload& w, const kernels::TargetInfo& target,
                                 const std::string& routine, std::string version);

}  // namespace nimble::driver
