// nimble run: runs an executable once on tensors from files or the command line.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "vm/api/nimble.hpp"
#include "vm/arguments/command_line.h"
#include "vm/arguments/table.h"
#include "vm/base/element.h"
#include "vm/base/file.h"
#include "vm/base/npy.h"
#include "vm/base/printable.h"
#include "vm/tools/argument_forms.h"
#include "vm/tools/given_inputs.h"
#include "vm/tools/load_arguments.h"
#include "vm/tools/memory_text.h"
#include "vm/tools/shape_record.h"

namespace nimble {
namespace {

constexpr char kAbout[] =
    "Runs a compiled model.\n\n"
    "Naming the file here is your consent to run the native code in it, with your rights: run\n"
    "only files whose origin you trust. With --no-native none of it runs: kernels run in their\n"
    "portable form, every access checked, on any CPU, and some ten to hundred times slower.\n\n"
    "Inputs: NAME=@FILE.npy, NAME=@FILE.npz, @FILE.npz (every member), NAME=[[1, 2], [3, 4]],\n"
    "NAME=random:2x16, NAME=zeros:2x16, NAME=ones:2x16; values of data types as text:\n"
    "NAME=Node(Leaf(@words.npy[0]), Leaf(@words.npy[1])), NAME=@FILE for a file with one value,\n"
    "NAME=@FILE[7] for value 7 of it, counted from 0. Without --output-dir or --output the "
    "results\n"
    "are summarised on stdout.\n\n"
    "Ctrl-C stops the run at the end of the kernel that runs, a second one at once; both with "
    "exit\n"
    "code 130.";

struct Options {
  std::string model, entry, output_dir, output, record_shapes, trace;
  Format format = Format::kTable;
  std::vector<std::string> inputs, expected;
  int threads = 0;
  uint32_t trace_limit = 200'000;
  bool no_native = false, profile = false, verify = false, pin = false;
  double tolerance = 1e-5;
  uint64_t memory_limit = 0, fuel = 0;
  uint32_t depth = 0;
  exec::LoadLimits load;
  RandomOptions random;
};

nimble_session* interrupted_session = nullptr;
volatile std::sig_atomic_t interrupted = 0;

double value_at(const Array& a, size_t i) {
  return number_at(a.dtype, a.bytes.data() + i * size_of(a.dtype));
}

size_t count_of(const Array& a) {
  return a.bytes.size() / size_of(a.dtype);
}

// "" if `actual` is `expected` within |a - e| <= tolerance * max(1, |e|), else the worst place.
std::string difference(const Array& actual, const Array& expected, double tolerance) {
  if (actual.dtype != expected.dtype)
    return fmt::format("is {}, not {}", name_of(actual.dtype), name_of(expected.dtype));
  if (actual.shape != expected.shape)
    return fmt::format("has shape ({}), not ({})", fmt::join(actual.shape, ", "),
                       fmt::join(expected.shape, ", "));
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < count_of(actual); ++i) {
    const double a = value_at(actual, i), e = value_at(expected, i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    double d = std::abs(a - e) / std::max(1.0, std::abs(e));
    if (std::isnan(d)) d = INFINITY;
    if (d > worst) worst = d, at = i;
  }
  if (worst <= tolerance) return {};
  return fmt::format("differs by {:.3g} at element {}: {} instead of {}", worst, at,
                     value_at(actual, at), value_at(expected, at));
}

// The same for values of data types: in structure, and within the tolerance in each tensor.
std::string difference(const api::Value& actual, const api::Value& expected, double tolerance) {
  std::vector<std::pair<api::Value, api::Value>> rest = {{actual, expected}};
  std::set<std::pair<const nimble_value*, const nimble_value*>> seen;
  while (!rest.empty()) {
    const auto [a, e] = std::move(rest.back());
    rest.pop_back();
    if (!seen.insert({a.handle(), e.handle()}).second) continue;
    if (a.tag() != e.tag() || a.size() != e.size()) return "has another constructor";
    if (a.is_tensor()) {
      const std::string bad = difference(array_of(a), array_of(e), tolerance);
      if (!bad.empty()) return bad;
    }
    for (size_t i = 0; i < a.size(); ++i) rest.emplace_back(a.field(i), e.field(i));
  }
  return {};
}

void summarise(const std::string& name, const Array& a) {
  std::string values;
  const size_t n = count_of(a);
  for (size_t i = 0; i < std::min<size_t>(n, 6); ++i)
    values += fmt::format("{}{:.6g}", i ? ", " : "", value_at(a, i));
  fmt::print("{}: {} ({}) [{}{}]\n", name, name_of(a.dtype), fmt::join(a.shape, ", "), values,
             n > 6 ? ", …" : "");
}

// Writes what the session's run did, also of one that failed.
void write_trace(const std::string& file, api::Session& session) {
  const std::string text = session.trace_json();
  if (text.empty())
    throw Error(Status::kExhausted, file, "there is no memory for the trace",
                "keep less of it: --trace-limit");
  write_file_atomically(file, text);
  // The counts stand in an object of their own before the events, which may be long.
  const size_t counts = text.find('{', 1);
  const nlohmann::json head =
      nlohmann::json::parse(text.substr(counts, text.find('}') + 1 - counts), nullptr, false);
  const auto dropped = head.value("dropped_instructions", uint64_t{0});
  if (dropped == 0) return;
  const auto kept = head.value("instructions", uint64_t{0});
  fmt::print(stderr,
             "nimble run: {} has the first {} of {} instructions; --trace-limit keeps more\n", file,
             kept, kept + dropped);
}

struct Expectation {
  size_t output;
  api::Value value;
  std::string text;
};

// What --expect names, read before anything runs.
std::vector<Expectation> parse_expected(const Options& o, const std::vector<api::Port>& ports,
                                        const std::vector<api::Type>& types) {
  std::vector<Expectation> out;
  for (const std::string& text : o.expected) {
    const auto [name, value] = split_assignment(text, "--expect");
    const auto port = std::find_if(ports.begin(), ports.end(),
                                   [&, &n = name](const api::Port& p) { return p.name == n; });
    if (port == ports.end()) {
      std::vector<std::string> names;
      for (const api::Port& p : ports) names.push_back(p.name);
      throw Error(Status::kNotFound, "--expect", fmt::format("there is no output {}", name),
                  fmt::format("the outputs are {}", fmt::join(names, ", ")));
    }
    api::Value expected =
        port->type_index >= 0
            ? parse_one_value(value, "--expect " + name, types, port->type_index)
            : api::Value::of(view_of(read_npy(value.starts_with("@") ? value.substr(1) : value)));
    out.push_back({static_cast<size_t>(port - ports.begin()), std::move(expected), value});
  }
  return out;
}

// Where --output-dir puts each output, without the suffix. A model names its outputs as it likes,
// but must not choose the folder: "/decoder/y" and "../y" are files like others.
std::vector<std::string> files_of(const Options& o, const std::vector<api::Port>& ports) {
  constexpr size_t kLongest = 200;
  std::vector<std::string> out;
  std::map<std::string, std::string> taken;  // by which output
  for (const api::Port& port : ports) {
    std::string name = port.name.substr(0, kLongest);
    for (char& c : name)
      if (c == '/' || static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '_';
    if (name.starts_with('.')) name[0] = '_';
    const auto [other, is_new] = taken.try_emplace(name, port.name);
    if (!is_new)
      throw Error(Status::kUnsupported, "--output-dir " + o.output_dir,
                  fmt::format("outputs {} and {} would both be {}", printable(other->second),
                              printable(port.name), printable(name)),
                  "use --output, which writes one .npz");
    out.push_back(o.output_dir + "/" + name);
  }
  return out;
}

const char* suffix_of(const api::Port& port) {
  return port.type_index >= 0 ? ".txt" : ".npy";
}

// Whatever the run will write, before it runs: it may take long, and its results would be lost.
void require_outputs(const Options& o, const std::vector<std::string>& files,
                     const std::vector<api::Port>& ports) {
  if (!o.output_dir.empty())
    for (size_t i = 0; i < files.size(); ++i) require_writable(files[i] + suffix_of(ports[i]));
  for (const std::string& file : {o.output, o.trace})
    if (!file.empty()) require_writable(file);
}

int run(const Options& o) {
  for (const std::string& file : {o.output, o.trace, o.record_shapes})
    if (is_same_file(file, o.model))
      throw Error(Status::kInvalidArgument, file, "is the executable itself", "name another file");
  const api::Model model(
      o.model, {!o.no_native, false, o.load.memory, o.load.constants, o.load.verification_steps});
  if (nimble_model_find_entry(model.handle(), o.entry.empty() ? nullptr : o.entry.c_str()) < 0)
    throw Error(Status::kNotFound, o.model, fmt::format("it has no entry point {}", o.entry),
                fmt::format("it has {}", fmt::join(model.entries(), ", ")));
  const std::vector<api::Port> ports = model.outputs(o.entry);
  const std::vector<api::Type> types = model.types();
  if (!o.output.empty())
    for (const api::Port& p : ports)
      if (p.type_index >= 0)
        throw Error(Status::kUnsupported, "--output " + o.output,
                    fmt::format("output {} is a {}, which .npz cannot hold", p.name, p.type),
                    "use --output-dir, which writes it as text");
  const std::vector<std::string> files =
      o.output_dir.empty() ? std::vector<std::string>(ports.size()) : files_of(o, ports);
  const std::vector<api::NamedValue> inputs =
      parse_given(o.inputs, model.inputs(o.entry), types, o.random).all();
  const std::vector<Expectation> expected = parse_expected(o, ports, types);
  if (!o.record_shapes.empty()) require_named_dims(model, o.entry);
  if (!o.output_dir.empty() && ::mkdir(o.output_dir.c_str(), 0777) != 0 && errno != EEXIST)
    throw Error(Status::kIo, o.output_dir,
                fmt::format("cannot make the folder ({})", std::strerror(errno)),
                "name a folder that you may write to");
  require_outputs(o, files, ports);
  api::SessionOptions options{o.threads, o.pin,     o.memory_limit,          o.fuel,
                              o.depth,   o.profile, !o.record_shapes.empty()};
  if (!o.trace.empty()) options.trace = o.trace_limit;
  auto run_with = [&](const api::SessionOptions& with, std::string* profile) {
    api::Session session(model, with);
    if (with.record_shapes) require_recordable(o.record_shapes, session, o.entry);
    interrupted_session = session.handle();
    std::signal(SIGINT, [](int) {
      if (interrupted) ::_exit(kExitInterrupted);  // a kernel runs to its end
      interrupted = 1;
      nimble_cancel(interrupted_session);
    });
    std::vector<api::Value> results;
    try {
      results = session.run_values(inputs, o.entry);
    } catch (...) {
      std::signal(SIGINT, SIG_DFL);
      if (with.trace != 0) write_trace(o.trace, session);
      throw;
    }
    std::signal(SIGINT, SIG_DFL);
    if (with.trace != 0) write_trace(o.trace, session);
    if (with.record_shapes) append_shapes(o.record_shapes, session, o.entry);
    if (profile) *profile = profile_text(session, o.format);
    return results;
  };
  std::string profile;
  const std::vector<api::Value> outputs = run_with(options, o.profile ? &profile : nullptr);

  NamedArrays arrays;  // for --output
  for (size_t i = 0; i < outputs.size(); ++i) {
    const api::Port& port = ports[i];
    const bool on_stdout = o.output_dir.empty() && o.output.empty() && !o.profile;
    if (port.type_index >= 0) {
      if (!o.output_dir.empty())
        write_file_atomically(files[i] + suffix_of(port),
                              text_of(outputs[i], types, port.type_index) + "\n");
      else if (on_stdout)
        fmt::print("{}: {}\n", port.name, text_of(outputs[i], types, port.type_index, 6));
      continue;
    }
    Array array = array_of(outputs[i]);
    if (!o.output_dir.empty()) write_npy(files[i] + suffix_of(port), array);
    if (on_stdout) summarise(port.name, array);
    if (!o.output.empty()) arrays.emplace_back(port.name, std::move(array));
  }
  if (!o.output.empty()) write_npz(o.output, arrays);
  if (o.profile) fmt::print("{}", profile);

  int code = kExitOk;
  auto compare = [&](size_t output, const api::Value& expected, const std::string& what) {
    const std::string bad = difference(outputs[output], expected, o.tolerance);
    if (bad.empty()) return;
    fmt::print(stderr, "nimble run: wrong result: {} {} ({})\n", ports[output].name, bad, what);
    code = kExitWrongResult;
  };
  for (const Expectation& e : expected) compare(e.output, e.value, e.text);
  auto compare_all = [&](const std::vector<api::Value>& again, const std::string& what) {
    for (size_t i = 0; i < again.size(); ++i) compare(i, again[i], what);
  };
  if (o.verify) {
    options.profile = options.record_shapes = false;
    options.trace = 0;
    compare_all(run_with(options, nullptr), "a second run");
    options.threads = 1;
    compare_all(run_with(options, nullptr), "a run on one thread");
  }
  return code;
}

int main_of(int argc, char** argv) {
  Options o;
  CLI::App app(kAbout, "nimble run");
  app.add_option("MODEL", o.model, "The .nimble file")->required();
  app.add_option("-i,--input", o.inputs, "An input, as above; once per input")
      ->type_name("INPUT")
      ->check(input_form());
  app.add_option("--entry", o.entry, "Entry point (default: the first)");
  app.add_option(
         "-o,--output-dir", o.output_dir,
         "Write each output to DIR/NAME.npy, a data type's value to DIR/NAME.txt; a \"/\" in "
         "a name\nbecomes \"_\"")
      ->type_name("DIR");
  app.add_option("--output", o.output, "Write all outputs to one .npz")->type_name("FILE");
  app.add_option("--threads", o.threads, "Threads (default: all that the process may use)")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--pin", o.pin, "Bind threads to cores");
  app.add_flag("--profile", o.profile, "Print where the time went");
  app.add_option("--trace", o.trace,
                 "Write what the run did in its order to FILE: instructions, kernels, shapes and\n"
                 "live bytes over time, as JSON that Perfetto and chrome://tracing open. A run\n"
                 "that fails leaves what it did until then")
      ->type_name("FILE");
  app.add_option("--trace-limit", o.trace_limit,
                 "Instructions that --trace keeps, the first ones; some 300 bytes each")
      ->check(CLI::Range(1, 2'000'000))
      ->capture_default_str();
  app.add_option("--record-shapes", o.record_shapes,
                 "Append the extents of the model's named dims to a table, which\n"
                 "nimble tune --trace FILE:DIM reads")
      ->type_name("FILE");
  add_format(app, &o.format, "The profile (of csv: its kernels)");
  app.add_flag("--verify", o.verify,
               "Run again, and once more on one thread, and compare the results");
  app.add_option("--expect", o.expected,
                 "NAME=@FILE.npy, or NAME=@FILE.txt with a value, that an output must equal;\nexit "
                 "code 3 if not")
      ->check(assignment_form("--expect"));
  app.add_option("--tolerance", o.tolerance,
                 "For --verify and --expect: absolute up to 1, relative above")
      ->check(number_from_zero())
      ->capture_default_str();
  app.add_flag("--no-native", o.no_native, "Run kernels checked, without native code");
  app.add_option("--memory-limit", o.memory_limit,
                 "Bytes of tensors, scratch and calls, also as 512MiB (default: no limit)")
      ->transform(ByteSize())
      ->envname("NIMBLE_MEMORY_LIMIT");
  app.add_option("--fuel", o.fuel,
                 "Instructions that the run may take, and steps of --no-native kernels\n(default: "
                 "no limit)")
      ->check(whole_number())
      ->envname("NIMBLE_FUEL");
  app.add_option("--max-depth,--depth", o.depth,
                 "Nested calls that the run may make (default: 100000)")
      ->check(whole_number())
      ->envname("NIMBLE_MAX_DEPTH");
  add_load_limits(app, &o.load);
  app.add_option("--seed", o.random.seed, "Of random inputs")
      ->check(whole_number())
      ->capture_default_str();
  app.add_option("--int-range", o.random.int_range, "Random integers are below this")
      ->check(number_above_zero())
      ->capture_default_str();
  if (const auto code = parse_arguments(app, argc, argv, {kExitWrongResult, kExitInterrupted}))
    return *code;
  try {
    return run(o);
  } catch (const api::Error& e) {
    if (e.status() != NIMBLE_CANCELLED) throw;
    fmt::print(stderr, "nimble run: interrupted\n");
    return kExitInterrupted;
  }
}

}  // namespace
}  // namespace nimble

int main(int argc, char** argv) {
  return nimble::run_program("nimble run", [&] { return nimble::main_of(argc, argv); });
}
