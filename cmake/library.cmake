# libpyecho, shared and static, and its installation: in a wheel within the package, else as the system has it.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

if(SKBUILD)
  set(CMAKE_INSTALL_INCLUDEDIR pyecho/include)
  set(CMAKE_INSTALL_LIBDIR pyecho/lib)
endif()

add_library(pyecho SHARED csrc/capi/exports.cpp)
target_link_libraries(pyecho PRIVATE pyecho_capi $<BUILD_INTERFACE:pyecho_flags>)
# Everything that the shared one is made of, so that nothing else is to be installed.
add_library(pyecho_static STATIC csrc/capi/exports.cpp $<TARGET_OBJECTS:pyecho_capi> $<TARGET_OBJECTS:pyecho_core>)
target_include_directories(pyecho_static PRIVATE csrc)
target_compile_features(pyecho_static PRIVATE cxx_std_20)
target_link_libraries(pyecho_static PUBLIC Threads::Threads PRIVATE $<BUILD_INTERFACE:pyecho_flags>)
set_target_properties(
  pyecho pyecho_static
  PROPERTIES CXX_EXTENSIONS OFF
             CXX_VISIBILITY_PRESET hidden
             VISIBILITY_INLINES_HIDDEN ON
             POSITION_INDEPENDENT_CODE ON
             OUTPUT_NAME pyecho)
foreach(library IN ITEMS pyecho pyecho_static)
  target_compile_definitions(${library} PRIVATE PYECHO_BUILDING)
  target_include_directories(
    ${library} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
if(PYECHO_SANITIZE) # the shared one has it from pyecho_core
  target_compile_options(pyecho_static PUBLIC -fsanitize=${PYECHO_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(pyecho_static PUBLIC -fsanitize=${PYECHO_SANITIZE})
endif()
if(NOT APPLE)
  # Else the standard library's templates are exported as well.
  target_link_options(pyecho PRIVATE LINKER:--version-script=${CMAKE_CURRENT_LIST_DIR}/exports.map)
  set_target_properties(pyecho PROPERTIES LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
endif()
if(NOT SKBUILD) # a wheel has no symbolic links
  set_target_properties(pyecho PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 1) # PYECHO_ABI_VERSION
endif()

install(TARGETS pyecho pyecho_static EXPORT pyecho)
install(DIRECTORY include/pyecho DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/pyecho)
install(EXPORT pyecho NAMESPACE pyecho:: FILE pyecho-targets.cmake DESTINATION ${cmake_dir})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/pyecho-config.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/pyecho-config.cmake INSTALL_DESTINATION ${cmake_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/pyecho-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pyecho-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/pyecho-config-version.cmake
        DESTINATION ${cmake_dir})
# From its folder to the prefix, so that the tree can be moved.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/pyecho.pc.in ${CMAKE_CURRENT_BINARY_DIR}/pyecho.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pyecho.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
