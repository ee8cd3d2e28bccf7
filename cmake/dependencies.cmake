# What each room may link. The reasons are in ARCHITECTURE.md; Debian 12 carries all of them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(simdjson CONFIG REQUIRED)  # of the reading side only
# Static, so that the extension module that training loads brings no shared object of its own.
find_library(TDBG_PCRE2_STATIC libpcre2-8.a REQUIRED)
find_path(TDBG_PCRE2_INCLUDE pcre2.h REQUIRED)
find_path(TDBG_XXHASH_INCLUDE xxhash.h REQUIRED)
find_path(TDBG_PROTOZERO_INCLUDE protozero/pbf_reader.hpp REQUIRED)  # header-only

# Of fmt 9, Debian 12's, what the headers declare is compiled once (src/base/fmt.cc).
add_library(tdbg_fmt INTERFACE)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  target_include_directories(tdbg_fmt SYSTEM INTERFACE $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  target_link_libraries(tdbg_fmt INTERFACE fmt::fmt-header-only)
endif()

add_library(tdbg_pcre2 INTERFACE)
target_include_directories(tdbg_pcre2 SYSTEM INTERFACE ${TDBG_PCRE2_INCLUDE})
target_compile_definitions(tdbg_pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8 PCRE2_STATIC)
target_link_libraries(tdbg_pcre2 INTERFACE ${TDBG_PCRE2_STATIC})

add_library(tdbg_xxhash INTERFACE)
target_include_directories(tdbg_xxhash SYSTEM INTERFACE ${TDBG_XXHASH_INCLUDE})
target_compile_definitions(tdbg_xxhash INTERFACE XXH_INLINE_ALL)

if(TDBG_CLI)
  find_package(yaml-cpp CONFIG REQUIRED)
  find_package(CLI11 CONFIG REQUIRED)
  find_package(CURL REQUIRED)
endif()
if(TDBG_TESTS)
  find_package(GTest CONFIG REQUIRED)
  enable_testing()
  include(GoogleTest)
endif()
