# Precompiled headers: what most files include, parsed once for the libraries and once, with the test
# framework, for the test programs. Those two differ in how position-independent code is made.
set(standard_headers <algorithm> <array> <atomic> <bit> <cerrno> <charconv> <chrono> <cmath> <cstdint> <cstdio>
  <cstdlib> <cstring> <deque> <filesystem> <fstream> <functional> <iostream> <limits> <map> <memory> <mutex> <optional>
  <set> <span> <sstream> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector>
  <nlohmann/json.hpp>)

file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cpp "")
add_library(inferd_headers OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
target_link_libraries(inferd_headers PRIVATE inferd_flags)
target_precompile_headers(inferd_headers PRIVATE ${standard_headers})

if(INFERD_TESTS)
  add_library(inferd_test_headers OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(inferd_test_headers PRIVATE inferd_flags GTest::gmock)
  set_target_properties(inferd_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(inferd_test_headers PRIVATE -fPIE)
  target_precompile_headers(inferd_test_headers PRIVATE ${standard_headers} <gmock/gmock.h> <gtest/gtest.h>)
endif()

# Sets the headers for every target of `folder` and of the folders below it that they fit.
function(inferd_use_precompiled folder)
  get_directory_property(targets DIRECTORY ${folder} BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    if(target MATCHES "headers$" OR type STREQUAL "UTILITY" OR type STREQUAL "INTERFACE_LIBRARY" OR NOT libraries)
      continue()
    endif()
    if(type STREQUAL "EXECUTABLE" AND "GTest::gmock" IN_LIST libraries)
      target_precompile_headers(${target} REUSE_FROM inferd_test_headers)
    elseif(type MATCHES "^(STATIC|OBJECT)_LIBRARY$" AND "inferd_flags" IN_LIST libraries)
      target_precompile_headers(${target} REUSE_FROM inferd_headers)
    endif()
  endforeach()
  get_directory_property(folders DIRECTORY ${folder} SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    inferd_use_precompiled(${below})
  endforeach()
endfunction()
inferd_use_precompiled(${CMAKE_SOURCE_DIR})
