# Read by ctest after the tests of nimble-driver-test are known: labels those of
# configuration_test.cpp.
foreach(test IN LISTS nimble-driver-test_TESTS)
  if(test MATCHES "Configured")
    set_tests_properties(${test} PROPERTIES LABELS config)
  endif()
endforeach()
