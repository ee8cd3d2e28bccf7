# What each room may link. The reasons are in ARCHITECTURE.md; Debian 12 carries all of them.
# All that is missing is named at once, by Debian's names: somebody's pip builds the sdist where no wheel fits, and
# CMake's own words about the first missing one tell nobody what to do.
set(TDBG_MISSING "")
macro(tdbg_needs debian_package)  # tdbg_needs(PACKAGE find_package's arguments)
  find_package(${ARGN} QUIET)
  if(NOT ${ARGV1}_FOUND)
    list(APPEND TDBG_MISSING ${debian_package})
  endif()
endmacro()
macro(tdbg_needs_file debian_package variable kind)  # kind: library or path
  cmake_language(CALL find_${kind} ${variable} ${ARGN})
  if(NOT ${variable})
    list(APPEND TDBG_MISSING ${debian_package})
  endif()
endmacro()

find_package(Threads REQUIRED)
tdbg_needs(pkg-config PkgConfig)
tdbg_needs(libhwy-dev hwy CONFIG)
tdbg_needs(nlohmann-json3-dev nlohmann_json CONFIG)
tdbg_needs(libfmt-dev fmt CONFIG)
tdbg_needs(libsimdjson-dev simdjson CONFIG)  # of the reading side only
# Static, so that the extension module that training loads brings no shared object of its own.
tdbg_needs_file(libpcre2-dev TDBG_PCRE2_STATIC library libpcre2-8.a)
tdbg_needs_file(libpcre2-dev TDBG_PCRE2_INCLUDE path pcre2.h)
tdbg_needs_file(libxxhash-dev TDBG_XXHASH_INCLUDE path xxhash.h)
tdbg_needs_file(libprotozero-dev TDBG_PROTOZERO_INCLUDE path protozero/pbf_reader.hpp)  # header-only
if(TDBG_CLI)
  tdbg_needs(libyaml-cpp-dev yaml-cpp CONFIG)
  tdbg_needs(libcli11-dev CLI11 CONFIG)
  tdbg_needs(libcurl4-openssl-dev CURL)
  tdbg_needs(libssl-dev OpenSSL)
  # Static, too: TLS of `tdbg serve --host` is no reason for every command to load it.
  tdbg_needs_file(libssl-dev TDBG_SSL_STATIC library libssl.a)
  tdbg_needs_file(libssl-dev TDBG_CRYPTO_STATIC library libcrypto.a)
  tdbg_needs(libexpat1-dev EXPAT)
  # Static: a registry of jobs is no reason for an installed program to need one more shared object.
  tdbg_needs_file(libsqlite3-dev TDBG_SQLITE_STATIC library libsqlite3.a)
  tdbg_needs_file(libsqlite3-dev TDBG_SQLITE_INCLUDE path sqlite3.h)
  tdbg_needs_file(libboost-dev TDBG_BOOST_INCLUDE path boost/beast/http.hpp)  # header-only: Beast and Asio
endif()
if(TDBG_TESTS)
  tdbg_needs("libgtest-dev;libgmock-dev" GTest CONFIG)
endif()
if(TDBG_MISSING)
  list(REMOVE_DUPLICATES TDBG_MISSING)
  list(JOIN TDBG_MISSING " " missing)
  set(why "")
  if(SKBUILD)
    set(why "tdbg is being built from source, because no wheel was given for this Python and platform. ")
  endif()
  message(FATAL_ERROR "${why}What it is built from is not all installed. On Debian 12 or Ubuntu: "
    "apt-get install ${missing}\nElsewhere: the development files of the same libraries. A C++20 compiler, Linux on "
    "x86-64 and Python 3.10 or later are needed as well.")
endif()

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

if(TDBG_CLI)
  add_library(tdbg_sqlite INTERFACE)
  target_include_directories(tdbg_sqlite SYSTEM INTERFACE ${TDBG_SQLITE_INCLUDE})
  target_link_libraries(tdbg_sqlite INTERFACE ${TDBG_SQLITE_STATIC} ${CMAKE_DL_LIBS} m)
endif()

if(TDBG_CLI)
  add_library(tdbg_boost INTERFACE)
  target_include_directories(tdbg_boost SYSTEM INTERFACE ${TDBG_BOOST_INCLUDE})
  target_compile_definitions(tdbg_boost INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ERROR_CODE_HEADER_ONLY)
endif()

if(TDBG_CLI)
  add_library(tdbg_tls INTERFACE)
  target_include_directories(tdbg_tls SYSTEM INTERFACE ${OPENSSL_INCLUDE_DIR})
  target_link_libraries(tdbg_tls INTERFACE ${TDBG_SSL_STATIC} ${TDBG_CRYPTO_STATIC} ${CMAKE_DL_LIBS} Threads::Threads)
endif()

add_library(tdbg_xxhash INTERFACE)
target_include_directories(tdbg_xxhash SYSTEM INTERFACE ${TDBG_XXHASH_INCLUDE})
target_compile_definitions(tdbg_xxhash INTERFACE XXH_INLINE_ALL)

if(TDBG_TESTS)
  enable_testing()
  include(GoogleTest)
endif()
