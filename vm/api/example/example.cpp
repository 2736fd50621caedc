// The same as example.c through the C++ wrapper.
#include <cstdio>
#include <nimble.hpp>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: %s MODEL\n", argv[0]), 2;
  try {
    const nimble::api::Model model(argv[1], {true});  // trust: its native code may run
    for (const nimble::api::Port& port : model.inputs()) {
      std::printf("input %s: %s (", port.name.c_str(), nimble_dtype_name(port.dtype));
      for (size_t i = 0; i < port.dims.size(); ++i)
        std::printf("%s%s", i ? ", " : "", port.dims[i].c_str());
      std::printf(")\n");
    }

    nimble::api::Session session(model);
    for (int64_t n : {1, 3, 7}) {  // any length: nothing is compiled anew
      std::vector<float> x(static_cast<size_t>(n) * 4, 0.5f);
      const auto y = session.run({{"x", nimble::api::view(x.data(), {n, 4})}});
      std::printf("n = %d: y has %d elements, the last is %g\n", static_cast<int>(n),
                  static_cast<int>(y[0].elements()), y[0].data<float>()[y[0].elements() - 1]);
    }
    session.run({{"z", nimble::api::view(static_cast<const float*>(nullptr), {0, 4})}});
  } catch (const nimble::api::Error& e) {
    std::printf("as it should, this fails: %s\n", e.what());
    return e.status() == NIMBLE_NOT_FOUND ? 0 : 1;
  }
  return 1;
}
