# For C++ programs that capture or read runs, from this build folder:
#
#   find_package(tdbg CONFIG REQUIRED)                       # cmake -Dtdbg_DIR=<this build folder>
#   target_link_libraries(mine PRIVATE tdbg::run)            # tdbg/run.h; tdbg::trial for tdbg/trial.h
set_target_properties(tdbg_session PROPERTIES EXPORT_NAME run)
set_target_properties(tdbg_trial PROPERTIES EXPORT_NAME trial)
target_compile_features(tdbg_base PUBLIC cxx_std_20)
export(TARGETS tdbg_fmt tdbg_pcre2 tdbg_xxhash tdbg_base tdbg_tensor tdbg_stats tdbg_tfevents tdbg_plan tdbg_format tdbg_store_writer
               tdbg_store_reader tdbg_capture tdbg_session tdbg_compat_smdebug_reader tdbg_trial
       NAMESPACE tdbg:: FILE ${CMAKE_CURRENT_BINARY_DIR}/tdbg-targets.cmake)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/tdbg-config.cmake [=[
include(CMakeFindDependencyMacro)
foreach(package Threads hwy nlohmann_json fmt simdjson)
  find_dependency(${package})
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/tdbg-targets.cmake)
]=])
