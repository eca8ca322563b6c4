# `cmake --install BUILD --prefix PLACE` and `cpack`: included by CMakeLists.txt. What is installed finds its files
# beside itself (compiler/base/places.c) and can be moved; the runtime is installed as sources, and pdc compiles it where
# it is used (compiler/build/library.c).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS pdc RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
set(SHARE share/pdc)
install(DIRECTORY stdlib_layers docs/reference/diagnostics DESTINATION ${SHARE} FILES_MATCHING PATTERN "*.pdm" PATTERN "*.md")
install(FILES docs/reference/layers.md DESTINATION ${SHARE})
install(DIRECTORY tools/editors DESTINATION ${SHARE})
install(DIRECTORY runtime DESTINATION ${SHARE} FILES_MATCHING PATTERN "*.[ch]" PATTERN "*.cu" PATTERN folders)
install(DIRECTORY models DESTINATION share/doc/pdc/examples FILES_MATCHING PATTERN "*.pdm")
install(FILES README.md CHANGELOG.md DESTINATION share/doc/pdc)
install(DIRECTORY docs DESTINATION share/doc/pdc FILES_MATCHING PATTERN "*.md" PATTERN "*.svg"
        PATTERN diagnostics EXCLUDE)

# Manual pages and completions, which pdc prints.
add_custom_command(OUTPUT share/man/man1/pdc.1
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/tools/manuals $<TARGET_FILE:pdc> ${CMAKE_CURRENT_BINARY_DIR}/share
  DEPENDS pdc pd_runtime tools/manuals docs/reference/language.md COMMENT "Making manual pages" VERBATIM)
add_custom_target(manuals ALL DEPENDS share/man/man1/pdc.1)
foreach(kind man bash-completion zsh fish)
  install(DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/share/${kind} DESTINATION share)
endforeach()

set(PACKAGE_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/Pdc)
configure_package_config_file(tools/cmake/PdcConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/PdcConfig.cmake
                              INSTALL_DESTINATION ${PACKAGE_FOLDER})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/PdcConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/PdcConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/PdcConfigVersion.cmake
              tools/cmake/PdcAddModel.cmake DESTINATION ${PACKAGE_FOLDER})

set(CPACK_GENERATOR TGZ)
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps) # of dpkg-dev: finds the packages of the libraries that pdc is linked with
if(DPKG_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_PACKAGE_NAME pdc)
set(CPACK_PACKAGE_VENDOR "the authors of pdc")
set(CPACK_PACKAGE_CONTACT "the authors of pdc <pdc@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "compiler of models into pipelines of C or CUDA programs")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(IMAGE_LIBRARIES)
  set(IMAGE_PACKAGES "libjpeg-dev, libpng-dev, ")
endif()
# What compiles and links stage programs, and launches them.
set(CPACK_DEBIAN_PACKAGE_DEPENDS
    "clang, binutils, libomp-dev, libdnnl-dev, libcjson-dev, libxxhash-dev, ${IMAGE_PACKAGES} libopenmpi-dev | libmpich-dev, openmpi-bin | mpich")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "nvidia-cuda-toolkit, slurm-client")
include(CPack)
