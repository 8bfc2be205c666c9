# find_package(warplink): device link-time optimisation for CUDA targets that clang compiles.
#
#   warplink_target(TARGET... [PTX on|off|all|none|ARCH,...] [LAUNCH_GUARD on|off] [ARCHITECTURES ARCH...])
#
# makes the targets' CUDA sources relocatable device bitcode and lets warplink link them and all that uses them. It
# is for executables, shared and module libraries, static and object libraries; what it needs at the link is passed
# on to users of static and object libraries, also by install(EXPORT). Call it after the sources are added.
#
# CUDA sources are those of the language CUDA, where CMAKE_CUDA_COMPILER is clang++. In a project without that
# language they are the target's sources named *.cu, which are compiled as C++ with `-x cuda`.
#
# Architectures come from ARCHITECTURES, else from CUDA_ARCHITECTURES (CMAKE_CUDA_ARCHITECTURES), and with them the
# choice about PTX, as CMake defines it: `80` means a cubin and PTX, `80-real` a cubin alone. `80-virtual` means PTX,
# and here a cubin too. PTX says it in one word; WARPLINK_PTX does so for the project. The choice is recorded in the
# objects. Given by PTX or WARPLINK_PTX, it also rules the link of an executable or shared library.
#
# LAUNCH_GUARD off, or WARPLINK_LAUNCH_GUARD for the project, leaves out the words that a program says when a launch
# fails because no image fits the GPU. Like PTX, it is recorded in the objects and rules the target's own link.
#
# Variables: WARPLINK_EXECUTABLE (the program, if it is not found beside this file or on PATH), WARPLINK_PTX,
# WARPLINK_LAUNCH_GUARD,
# WARPLINK_CUDA_PATH (the toolkit, if it is neither that of the language CUDA or CUDAToolkit nor in CUDA_PATH).
# Defines: warplink::warplink (the program), warplink::link (what a link needs), WARPLINK_BIN_DIR, and, if the toolkit
# has it, warplink::cudart (the CUDA runtime as a static library, for projects without the language CUDA).

cmake_policy(PUSH)
cmake_policy(VERSION 3.18...4.0)

# Installed, this file is in PREFIX/lib/cmake/warplink.
find_program(WARPLINK_EXECUTABLE warplink HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../bin" DOC "The program warplink")
set(WARPLINK_BIN_DIR "")
if(WARPLINK_EXECUTABLE)
  execute_process(COMMAND "${WARPLINK_EXECUTABLE}" bin-dir OUTPUT_VARIABLE WARPLINK_BIN_DIR
    ERROR_VARIABLE _warplink_error RESULT_VARIABLE _warplink_result OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT _warplink_result EQUAL 0)
    set(WARPLINK_BIN_DIR "")
    set(warplink_NOT_FOUND_MESSAGE "${WARPLINK_EXECUTABLE} bin-dir failed: ${_warplink_error}")
  endif()
else()
  set(warplink_NOT_FOUND_MESSAGE "no program warplink beside this file or on PATH; name it with WARPLINK_EXECUTABLE")
endif()
if(NOT WARPLINK_BIN_DIR)
  set(warplink_FOUND FALSE)
  cmake_policy(POP)
  return()
endif()

if(NOT WARPLINK_CUDA_PATH)
  if(CMAKE_CUDA_COMPILER_TOOLKIT_ROOT)
    set(WARPLINK_CUDA_PATH "${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT}")
  elseif(CUDAToolkit_ROOT)
    set(WARPLINK_CUDA_PATH "${CUDAToolkit_ROOT}")
  elseif(CUDAToolkit_BIN_DIR)
    get_filename_component(WARPLINK_CUDA_PATH "${CUDAToolkit_BIN_DIR}" DIRECTORY)
  elseif(DEFINED ENV{CUDAToolkit_ROOT})
    set(WARPLINK_CUDA_PATH "$ENV{CUDAToolkit_ROOT}")
  elseif(DEFINED ENV{CUDA_PATH})
    set(WARPLINK_CUDA_PATH "$ENV{CUDA_PATH}")
  endif()
endif()

if(NOT TARGET warplink::warplink)
  add_executable(warplink::warplink IMPORTED)
  set_target_properties(warplink::warplink PROPERTIES IMPORTED_LOCATION "${WARPLINK_EXECUTABLE}")

  # -B leads clang to clang-linker-wrapper and every compiler to an ld, each of which is warplink.
  add_library(warplink::link INTERFACE IMPORTED)
  set(_warplink_options "-B${WARPLINK_BIN_DIR}")
  if(WARPLINK_CUDA_PATH)
    list(APPEND _warplink_options "LINKER:--warplink-cuda-path=${WARPLINK_CUDA_PATH}")
  endif()
  foreach(_warplink_language C CXX CUDA)
    list(APPEND _warplink_options "$<$<LINK_LANG_AND_ID:${_warplink_language},Clang>:--offload-link>")
  endforeach()
  set_target_properties(warplink::link PROPERTIES INTERFACE_LINK_OPTIONS "${_warplink_options}")
endif()

if(NOT TARGET warplink::cudart AND WARPLINK_CUDA_PATH)
  find_library(WARPLINK_CUDART cudart_static HINTS "${WARPLINK_CUDA_PATH}" PATH_SUFFIXES lib64 lib lib/x64
    DOC "The CUDA runtime as a static library" NO_CMAKE_FIND_ROOT_PATH)
  if(WARPLINK_CUDART)
    find_package(Threads)
    add_library(warplink::cudart STATIC IMPORTED)
    set_target_properties(warplink::cudart PROPERTIES IMPORTED_LOCATION "${WARPLINK_CUDART}"
      INTERFACE_LINK_LIBRARIES "$<TARGET_NAME_IF_EXISTS:Threads::Threads>;${CMAKE_DL_LIBS};rt")
    if(EXISTS "${WARPLINK_CUDA_PATH}/include")
      set_property(TARGET warplink::cudart PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${WARPLINK_CUDA_PATH}/include")
    endif()
  endif()
endif()

# Sets `result` to `all`, `none`, architectures with commas between them, or nothing where `value` says nothing.
function(_warplink_ptx_word value result)
  string(TOLOWER "${value}" word)
  if(value STREQUAL "")
    set(word "")
  elseif(word MATCHES "^(on|yes|true|1|all)$")
    set(word all)
  elseif(word MATCHES "^(off|no|false|0|none)$")
    set(word none)
  else()
    string(REPLACE "," ";" word "${word}")
    list(TRANSFORM word PREPEND sm_)
    list(TRANSFORM word REPLACE "^sm_(sm_|compute_)" sm_)
    string(REPLACE ";" "," word "${word}")
  endif()
  set(${result} "${word}" PARENT_SCOPE)
endfunction()

# Sets `result` to `on`, `off`, or nothing where `value` says nothing.
function(_warplink_guard_word value result)
  string(TOLOWER "${value}" word)
  if(word MATCHES "^(on|yes|true|1)$")
    set(word on)
  elseif(word MATCHES "^(off|no|false|0)$")
    set(word off)
  elseif(NOT word STREQUAL "")
    message(FATAL_ERROR "warplink_target: the launch guard is on or off, not '${value}'")
  endif()
  set(${result} "${word}" PARENT_SCOPE)
endfunction()

# Splits CMake's notation of architectures into the names for code generation and the choice about PTX.
function(_warplink_architectures value names ptx)
  if("${value}" MATCHES "^(all|all-major|native)$")
    string(REPLACE "-" "_" kind "_${CMAKE_MATCH_1}")
    string(TOUPPER "${kind}" kind)
    set(known "${CMAKE_CUDA_ARCHITECTURES${kind}}")
    if(NOT known)
      message(FATAL_ERROR "warplink_target: the architectures '${value}' are known with the language CUDA only; list them")
    endif()
    set(value "${known}")
  endif()
  set(found "")
  set(wanted "")
  foreach(arch IN LISTS value)
    if(NOT arch MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
      message(FATAL_ERROR "warplink_target: '${arch}' is no architecture such as 90, 90-real or 90-virtual")
    endif()
    set(name "${CMAKE_MATCH_1}")
    set(kind "${CMAKE_MATCH_2}")
    list(APPEND found "${name}")
    # PTX of an `a` variant can run on no other GPU than the cubin does.
    if(NOT kind STREQUAL "-real" AND NOT name MATCHES "a$")
      list(APPEND wanted "sm_${name}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  list(REMOVE_DUPLICATES wanted)
  string(REPLACE ";" "," wanted "${wanted}")
  if(found AND NOT wanted)
    set(wanted none)
  endif()
  set(${names} "${found}" PARENT_SCOPE)
  set(${ptx} "${wanted}" PARENT_SCOPE)
endfunction()

function(warplink_target)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PTX;LAUNCH_GUARD" "ARCHITECTURES")
  if(NOT arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "warplink_target: no target is named")
  endif()
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(language CXX)
  if("CUDA" IN_LIST languages)
    set(language CUDA)
  endif()
  if(NOT CMAKE_${language}_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "warplink_target: CUDA sources must be compiled by clang; CMAKE_${language}_COMPILER is "
      "${CMAKE_${language}_COMPILER} (${CMAKE_${language}_COMPILER_ID})")
  endif()
  set(explicit "${arg_PTX}")
  if(explicit STREQUAL "" AND DEFINED WARPLINK_PTX)
    set(explicit "${WARPLINK_PTX}")
  endif()
  _warplink_ptx_word("${explicit}" explicit)
  set(guard "${arg_LAUNCH_GUARD}")
  if(guard STREQUAL "" AND DEFINED WARPLINK_LAUNCH_GUARD)
    set(guard "${WARPLINK_LAUNCH_GUARD}")
  endif()
  _warplink_guard_word("${guard}" guard)

  foreach(target IN LISTS arg_UNPARSED_ARGUMENTS)
    if(NOT TARGET ${target})
      message(FATAL_ERROR "warplink_target: ${target} is no target")
    endif()
    get_target_property(done ${target} WARPLINK_TARGET)
    if(done)
      message(FATAL_ERROR "warplink_target: ${target} was given before")
    endif()
    set_property(TARGET ${target} PROPERTY WARPLINK_TARGET ON)
    get_target_property(type ${target} TYPE)
    get_target_property(architectures ${target} CUDA_ARCHITECTURES)
    if(arg_ARCHITECTURES)
      set(architectures "${arg_ARCHITECTURES}")
    elseif(architectures MATCHES "NOTFOUND$")
      set(architectures "${CMAKE_CUDA_ARCHITECTURES}")
    endif()
    set(names "")
    set(ptx "")
    if(architectures) # OFF: flags of the user's own name them
      _warplink_architectures("${architectures}" names ptx)
    elseif(language STREQUAL "CXX" AND "${architectures}" STREQUAL "")
      message(FATAL_ERROR "warplink_target: no architectures for ${target}: set CMAKE_CUDA_ARCHITECTURES or give ARCHITECTURES")
    endif()
    if(NOT explicit STREQUAL "")
      set(ptx "${explicit}")
    endif()

    # Not every source uses all of them, which is no reason for a warning.
    set(options -fgpu-rdc -foffload-lto "-B${WARPLINK_BIN_DIR}")
    # What the packager finds in its environment and records.
    set(recorded "")
    if(NOT ptx STREQUAL "")
      # clang's own options about PTX have no effect on bitcode. They are on the line for compiler caches, which look
      # at the line and not at the environment, where the packager finds the choice.
      set(given --no-cuda-include-ptx=all)
      if(NOT ptx STREQUAL "none")
        string(REPLACE "," ";--cuda-include-ptx=" given "${given};--cuda-include-ptx=${ptx}")
      endif()
      list(APPEND options ${given})
      list(APPEND recorded "WARPLINK_PTX=${ptx}")
    endif()
    if(NOT guard STREQUAL "")
      # A place to look for programs where there are none: on the line for compiler caches, too.
      list(APPEND options "-Bwarplink-launch-guard=${guard}")
      list(APPEND recorded "WARPLINK_LAUNCH_GUARD=${guard}")
    endif()
    if(recorded)
      get_target_property(launcher ${target} ${language}_COMPILER_LAUNCHER)
      if(NOT launcher)
        set(launcher "")
      endif()
      set_property(TARGET ${target} PROPERTY ${language}_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env ${recorded} ${launcher})
    endif()
    if(language STREQUAL "CUDA")
      if(NOT names STREQUAL "")
        # Without -real and -virtual: CMake would warn about these, or add options that clang warns about.
        set_property(TARGET ${target} PROPERTY CUDA_ARCHITECTURES ${names})
      endif()
      # CMake's device link is that of nvcc.
      set_target_properties(${target} PROPERTIES CUDA_SEPARABLE_COMPILATION OFF CUDA_RESOLVE_DEVICE_SYMBOLS OFF)
    else()
      foreach(name IN LISTS names)
        list(APPEND options "--offload-arch=sm_${name}")
      endforeach()
      if(WARPLINK_CUDA_PATH)
        list(APPEND options "--cuda-path=${WARPLINK_CUDA_PATH}")
      endif()
      # clang takes *.cu for CUDA by itself.
      get_target_property(sources ${target} SOURCES)
      get_target_property(directory ${target} SOURCE_DIR)
      list(FILTER sources INCLUDE REGEX "\\.cu$")
      if(sources)
        set_property(SOURCE ${sources} DIRECTORY "${directory}" PROPERTY LANGUAGE CXX)
      endif()
    endif()
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:${language}>:--start-no-unused-arguments;${options};--end-no-unused-arguments>")

    # Not through target_link_libraries: its signatures with and without keywords exclude each other in one target.
    if(type MATCHES "^(STATIC|OBJECT)_LIBRARY$")
      set_property(TARGET ${target} APPEND PROPERTY INTERFACE_LINK_LIBRARIES warplink::link)
    else()
      set_property(TARGET ${target} APPEND PROPERTY LINK_LIBRARIES warplink::link)
      if(NOT explicit STREQUAL "")
        set_property(TARGET ${target} APPEND PROPERTY LINK_OPTIONS "LINKER:--warplink-ptx=${explicit}")
      endif()
      if(guard STREQUAL "on")
        set_property(TARGET ${target} APPEND PROPERTY LINK_OPTIONS "LINKER:--warplink-launch-guard")
      elseif(guard STREQUAL "off")
        set_property(TARGET ${target} APPEND PROPERTY LINK_OPTIONS "LINKER:--warplink-no-launch-guard")
      endif()
    endif()
  endforeach()
endfunction()

set(warplink_FOUND TRUE)
cmake_policy(POP)
