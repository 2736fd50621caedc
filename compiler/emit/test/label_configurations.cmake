# Read by ctest after the tests of nimble-emit-test are known: labels those of configuration_test.cpp.
foreach(test IN LISTS nimble-emit-test_TESTS)
  if(test MATCHES "Configured")
    set_tests_properties(${test} PROPERTIES LABELS config)
  endif()
endforeach()
