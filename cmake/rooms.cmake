# A room is a folder of src/. Files are found by their suffix: x.cc is the room, x_test.cc its tests.
# Sub-folders belong to the room, except where a CMakeLists line names them as a room of their own
# and except main/, which holds a program's main function.
set(TDBG_ROOMS "" CACHE INTERNAL "")

# Most of what it takes to compile a small file are its headers, so neighbours that include the same are compiled a
# few at a time, as one file that includes them. The names of some files begin a batch,
# whatever is around them: an edit moves no border, and a new file only those up to the next such name, so that a
# compiler cache keeps the rest. OFF for an editor that wants each file's own command, and to find an #include that
# a neighbour stands in for.
option(TDBG_BATCHES "Compile neighbours a few at a time" ON)
set(TDBG_ALONE_FROM 14000)  # bytes; a large file would make its neighbours wait
set(TDBG_ALONE "^cli/flags\\.cc$")  # 4 s of CLI11's headers
# Rooms whose sources are compiled one by one: what runs in a training's step, and what has flags or
# files of its own, set by its name below.
set(TDBG_ONE_BY_ONE "^(base|tensor|stats|cuda|tfevents|plan|format|store/writer|capture|session|page|http)$")
# Rooms that read a command or a request, and print: nothing in them takes time at -O1 that is not spent below them.
set(TDBG_WINDOWS "^(cli|service)$")

function(tdbg_batched out)  # sets `out` to what is compiled in place of the files that follow
  set(units "")
  set(batches "")  # each by its first file; of_FILE holds them all
  set(room 0)  # for so many more in the last batch
  foreach(source IN LISTS ARGN)
    file(RELATIVE_PATH file ${CMAKE_CURRENT_SOURCE_DIR}/src ${source})
    file(SIZE ${source} bytes)
    string(MD5 hash ${file})
    if(bytes GREATER_EQUAL TDBG_ALONE_FROM OR file MATCHES "${TDBG_ALONE}" OR NOT TDBG_BATCHES)
      list(APPEND units ${source})
      set(room 0)
    elseif(room GREATER 0 AND NOT hash MATCHES "^[0-2]")  # three of sixteen names begin one
      list(APPEND of_${first} ${file})
      math(EXPR room "${room} - 1")
    else()
      set(first ${file})
      set(of_${first} ${file})
      list(APPEND batches ${first})
      set(room 4)
    endif()
  endforeach()
  foreach(first IN LISTS batches)
    list(LENGTH of_${first} length)
    if(length EQUAL 1)
      list(APPEND units ${CMAKE_CURRENT_SOURCE_DIR}/src/${first})
      continue()
    endif()
    set(unit ${CMAKE_CURRENT_BINARY_DIR}/batches/src/${first})
    list(TRANSFORM of_${first} REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE lines)
    # g++ takes what is included for a header, which several files may include.
    list(JOIN lines "" text)
    string(PREPEND text "#pragma GCC diagnostic ignored \"-Wsubobject-linkage\"\n")
    file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)  # written where it differs
    list(APPEND units ${unit})
  endforeach()
  set(${out} ${units} PARENT_SCOPE)
endfunction()

# Gives `target` a path of this clone as `extern const char* const NAME;`, in a file of its own: a definition on the command
# line would have each file that is compiled with it compiled anew in every other clone, whatever the compiler cache has.
function(tdbg_path target name path)
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/paths/${target}_${name}.cc)
  file(GENERATE OUTPUT ${unit} CONTENT
       "namespace tdbg { extern const char* const ${name}; const char* const ${name} = \"${path}\"; }\n")
  target_sources(${target} PRIVATE ${unit})
endfunction()

function(tdbg_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS" ${ARGN})
  string(REPLACE "/" "_" target "tdbg_${name}")
  set(dir ${CMAKE_CURRENT_SOURCE_DIR}/src/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  # What only tests are linked with: a library of its own in rooms that have it.
  file(GLOB_RECURSE helpers CONFIGURE_DEPENDS ${dir}/testing/*.cc)
  if(helpers)
    list(REMOVE_ITEM sources ${helpers})
    list(REMOVE_ITEM tests ${helpers})
  endif()
  # By name and not by a "/main/" in the path: the checkout itself may lie in a folder called main.
  file(GLOB mains ${dir}/main/*.cc)
  list(REMOVE_ITEM sources ${mains})
  if(name MATCHES "^(jobs|query|page|http|server|service|cli|storage)$" AND NOT TDBG_CLI)
    return()
  endif()
  if(NOT sources)
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  else()
    set(units ${sources})
    if(NOT name MATCHES "${TDBG_ONE_BY_ONE}")
      tdbg_batched(units ${sources})
    endif()
    add_library(${target} STATIC ${units})
    set(scope PUBLIC)
  endif()
  if(name MATCHES "${TDBG_WINDOWS}")
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
  endif()
  target_include_directories(${target} ${scope} ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${target} ${scope} tdbg_fmt nlohmann_json::nlohmann_json Threads::Threads)
  foreach(dep ${ROOM_DEPS})
    string(REPLACE "/" "_" dep_target "tdbg_${dep}")
    target_link_libraries(${target} ${scope} ${dep_target})
  endforeach()
  if(name STREQUAL "base")
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set_source_files_properties(${dir}/hash_avx2.cc PROPERTIES COMPILE_OPTIONS "-mavx2")
    endif()
    target_link_libraries(${target} ${scope} tdbg_pcre2 tdbg_xxhash)
  elseif(name STREQUAL "stats")
    # Highway's fallback for plain x86-64 is scalar; v2 (2009 and later) makes SSSE3 the floor.
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "-march=x86-64-v2;-O3")
    endif()
    target_link_libraries(${target} ${scope} hwy::hwy)
  elseif(name STREQUAL "cuda")
    set_source_files_properties(${dir}/image.cc PROPERTIES
      COMPILE_DEFINITIONS "TDBG_CUDA_IMAGE=\"${dir}/image/kernels.fatbin\""
      OBJECT_DEPENDS ${dir}/image/kernels.fatbin)
  elseif(name STREQUAL "compat/smdebug/reader")
    target_link_libraries(${target} ${scope} simdjson::simdjson)
  elseif(name STREQUAL "page")
    set(page ${CMAKE_CURRENT_SOURCE_DIR}/ui/dist)
    set_source_files_properties(${dir}/files.cc PROPERTIES
      COMPILE_DEFINITIONS "TDBG_PAGE_DIRECTORY=\"${page}\""
      OBJECT_DEPENDS "${page}/page.html;${page}/page.js;${page}/page.css;${page}/report.html")
  elseif(name STREQUAL "http")
    target_link_libraries(${target} ${scope} tdbg_boost tdbg_tls)
  elseif(name STREQUAL "service")
    target_link_libraries(${target} ${scope} tdbg_tls)
  elseif(name STREQUAL "jobs")
    target_link_libraries(${target} ${scope} tdbg_sqlite)
  elseif(name STREQUAL "storage")
    target_link_libraries(${target} ${scope} CURL::libcurl OpenSSL::Crypto EXPAT::EXPAT)
  elseif(name STREQUAL "cli")
    target_link_libraries(${target} ${scope} yaml-cpp CLI11::CLI11)
  endif()
  # TSan finds races, and a room that names no thread, in its sources or its tests, has none to find.
  if(TDBG_SANITIZE STREQUAL "thread")
    file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${dir}/*.h)
    set(threaded FALSE)
    foreach(file ${sources} ${tests} ${headers})
      file(STRINGS ${file} lines LIMIT_COUNT 1
           REGEX "std::(jthread|thread|atomic|mutex|condition_variable|call_once|async)|thread_local|pthread_")
      if(lines)
        set(threaded TRUE)
      endif()
    endforeach()
    if(NOT threaded)
      set(tests "")
    endif()
  endif()
  if(TDBG_TESTS AND tests)
    string(REPLACE "/" "_" test_name "${name}_test")
    tdbg_batched(units ${tests})
    add_executable(${test_name} ${units})
    # What the tests themselves do takes no time; what they test has all of its optimization.
    target_compile_options(${test_name} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1>)
    target_link_libraries(${test_name} PRIVATE ${target} GTest::gtest_main GTest::gmock)
    if(helpers)
      add_library(${target}_testing STATIC ${helpers})
      target_link_libraries(${target}_testing PUBLIC ${target})
      target_link_libraries(${test_name} PRIVATE ${target}_testing)
    endif()
    # What the reading side is tested with is written by the writing side; the rooms themselves never meet.
    if(name MATCHES "^(store/reader|store/compactor|trial|rules|query)$")
      target_link_libraries(${test_name} PRIVATE tdbg_store_writer)
    endif()
    if(name STREQUAL "query")
      target_link_libraries(${test_name} PRIVATE tdbg_store_compactor)
    endif()
    # A team of threads to borrow, as a training's process has one (src/capture/openmp_team.h).
    if(name STREQUAL "capture")
      target_link_options(${test_name} PRIVATE -Wl,--no-as-needed -lgomp -Wl,--as-needed)
    endif()
    set(filter "")
    if(TDBG_SANITIZE STREQUAL "thread" AND name STREQUAL "cuda")
      # The kernels alone are emulated in one thread, at half a second a launch there.
      set(filter TEST_FILTER "CudaLaneTest.*:RawCopiesTest.*")
    endif()
    gtest_discover_tests(${test_name} ${filter} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300 ENVIRONMENT TDBG_OVERHEAD=none)
  endif()
endfunction()
