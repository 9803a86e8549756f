# The C library, static and shared, with what finds it: pkg-config and CMake.
#
#     cmake -S . -B build/c && cmake --build build/c && cmake --install build/c --prefix /usr/local

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Functions that nothing calls are left out.
target_compile_options(core PRIVATE -ffunction-sections -fdata-sections)
foreach(kind static shared)
    string(TOUPPER ${kind} KIND)
    add_library(${kind} ${KIND} $<TARGET_OBJECTS:core>)
    set_target_properties(${kind} PROPERTIES OUTPUT_NAME bitfactor VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})  # before 1.0
    target_include_directories(${kind} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_link_libraries(${kind} PRIVATE Threads::Threads)
endforeach()
if(NOT APPLE AND NOT WIN32)
    set(EXPORTS ${CMAKE_CURRENT_SOURCE_DIR}/native/cmake/exports.map)
    target_link_options(shared PRIVATE -Wl,--gc-sections -Wl,-z,noseparate-code
                        -Wl,--version-script=${EXPORTS})
    set_target_properties(shared PROPERTIES LINK_DEPENDS ${EXPORTS})
endif()
if(WIN32)
    set_target_properties(static PROPERTIES OUTPUT_NAME bitfactor_static)
    target_compile_definitions(core PRIVATE BITFACTOR_BUILDS_SHARED)
    target_compile_definitions(static INTERFACE BITFACTOR_STATIC)
endif()

install(TARGETS static shared EXPORT bitfactor)
install(FILES native/include/bitfactor.h TYPE INCLUDE)
set(CMAKE_PACKAGE ${CMAKE_INSTALL_LIBDIR}/cmake/bitfactor)
install(EXPORT bitfactor NAMESPACE bitfactor:: DESTINATION ${CMAKE_PACKAGE} FILE bitfactorTargets.cmake)
configure_package_config_file(native/cmake/bitfactorConfig.cmake.in bitfactorConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_PACKAGE})
write_basic_package_version_file(bitfactorConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/bitfactorConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/bitfactorConfigVersion.cmake DESTINATION ${CMAKE_PACKAGE})
file(RELATIVE_PATH PREFIX_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
foreach(kind INCLUDE LIB)
    file(RELATIVE_PATH ${kind}_FROM_PREFIX ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_${kind}DIR})
endforeach()
configure_file(native/cmake/bitfactor.pc.in bitfactor.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/bitfactor.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
