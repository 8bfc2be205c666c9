include(CMakeFindDependencyMacro)
find_dependency(warplink)
include("${CMAKE_CURRENT_LIST_DIR}/vectorTargets.cmake")
